"""Leases: which attempt computes a result, so that other runs that need the same one wait for it.

A lease is an object that only its first writer creates. Its number, the fence, rises by one whenever another
attempt takes over. A lease has no time of its own: it lasts as long as its attempt writes heartbeats. It
guards only money. A result is published once, by the first attempt that has it (`cache.publish_outcome`), so
an attempt that wakes after it lost its lease does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import Field

from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.data.run_records import read_record


class Lease(StoredRecord):
    """The attempt that computes a result, and the processes that show whether it still does."""

    run_id: str
    account: str = Field(description="of its run's start in the ledger, which holds its reservation")
    stage: str
    attempt: int
    router: PodRef = Field(description="the pod that took the lease; no other lease names the same two")
    launcher: PodRef | None = Field(description="the process that launched the run; null: an engine did")
    expected_s: float = Field(ge=0, description="seconds that its decision expects of it")

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.run_id, self.stage, self.attempt)


@dataclass(frozen=True, slots=True)
class TakenLease:
    """A lease, and its key in the store. `lease` None: it cannot be read, so no run waits for its holder."""

    key: str
    lease: Lease | None

    @property
    def fence(self) -> int:
        return int(PurePosixPath(self.key).stem)


def newest_lease(store: Store, cache_key: str) -> TakenLease | None:
    """Return the lease with the highest fence on a result; None: there is none."""
    key = max(store.list(store_layout.leases(cache_key)), default=None)
    if key is None:
        return None
    try:
        return TakenLease(key, read_record(store, key, Lease))
    except (DataError, NotInStore):
        return TakenLease(key, None)


def take_lease(store: Store, cache_key: str, before: TakenLease | None, lease: Lease) -> bool:
    """Take the lease after `before` (None: the first); return False if another attempt was faster. Raises
    StoreFull.
    """
    fence = 1 + (before.fence if before else 0)
    return store.put(store_layout.lease(cache_key, fence), record_bytes(lease), if_absent=True)
