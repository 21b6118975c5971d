"""Group commit: under contention, writers of one account propose entries, and one of them writes all
proposals in one object.

A proposal is for one number. Once an object exists under that number, the proposal was either written in it
or not, so no proposal is written later, when its writer no longer waits. A writer whose proposal was left out
proposes it again for a later number. Correctness does not depend on who collects the proposals: one writer
claims to, the others wait for it, and if it died they collect themselves. The conditional write of the number
decides.

A writer that got a number after it lost one marks its object as contended (`StoredObject.contended`), and so
does a writer of a batch. The next writers see the mark and propose. It ends with a writer that no other
writer joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from pydantic import ConfigDict, Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import BudgetExceeded, LedgerConflict, NotInStore, StoreError
from shoestring.core.interfaces import PARALLEL_READS, Clock, Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.account_checkpoint import (
    HashedCheckpoint,
    checkpoint_is_due,
    make_checkpoint,
)
from shoestring.spending.ledger.entry import (
    MAX_BATCH_ENTRIES,
    SEQUENTIAL_READS,
    Entry,
    HashedEntry,
    StoredObject,
    hash_entry,
)

# All pauses are multiples of how long the writer's own proposal took to write, so that they suit a local disk
# as well as a distant or a busy server. Each pause is twice the one before it.
COLLECT_ROUNDS, FIRST_COLLECT_PAUSE = 4, 2.0
"""Times that the collecting writer lists the proposals, at most, and the first pause."""
POLLS, FIRST_POLL_PAUSE, LONGEST_POLL_PAUSE = 6, 8.0, 16.0
"""Times that a waiting writer looks for the object, and the first and the longest pause."""
LONGEST_PAUSE_S = 2.0
EAGER_CLAIMERS, PATIENT_POLLS = 4, 2
"""Of as many writers as the last batch had, this many claim to collect at once; the others after two polls
without an object.
"""


class PendingEntry(StoredRecord):
    """A proposed entry without its position in the chain.

    `min_left_microusd` must still be free after it is written, in micro-dollars.
    """

    model_config = ConfigDict(strict=True)

    draft: Entry
    min_left_microusd: int = Field(0, ge=0)


@dataclass(frozen=True, slots=True)
class NextObject:
    """The object to put under the next number, and the checkpoint that one of its entries names, if any."""

    stored: StoredObject
    checkpoint: HashedCheckpoint | None


class GroupCommit:
    """Proposes an entry, and collects the proposals of other writers."""

    def __init__(self, store: Store, clock: Clock, rng: Random) -> None:
        self._store, self._clock, self._rng = store, clock, rng

    def prepare(self, account: Account, own: PendingEntry, is_taken: Callable[[], bool]) -> NextObject | None:
        """Return the next object of `account`, with `own` first, or None if another writer wrote it.

        `is_taken` reads the store and returns whether there is an object under the next number.

        Raises:
            StoreError: the proposal could not be written.
        """
        folder = store_layout.pending_entries(account.name, account.number + 1)
        began_s = self._clock.monotonic_s()
        name = digest(f"{folder}{own.draft.id}".encode())[:32]
        self._store.put(f"{folder}{name}.json", record_bytes(own))
        took_s = self._clock.monotonic_s() - began_s
        last_batch = account.number + 1 - account.object_number
        longest_s = max(LONGEST_PAUSE_S, took_s * LONGEST_POLL_PAUSE)
        is_eager = int(name, 16) / 16 ** len(name) * last_batch < EAGER_CLAIMERS
        for poll in range(POLLS):
            if poll == (0 if is_eager else PATIENT_POLLS) and self._claim(f"{folder}claimed-by", name):
                break
            pause_s = min(longest_s, took_s * FIRST_POLL_PAUSE * 2**poll)
            self._clock.sleep(self._rng.uniform(0.5, 1.0) * pause_s)
            if is_taken():
                return None
        expected, pause_s = max(1, last_batch - 1), took_s * FIRST_COLLECT_PAUSE
        return self._batch(account, own, self._collect(folder, f"{name}.json", expected, pause_s))

    def _claim(self, key: str, name: str) -> bool:
        with suppress(StoreError):
            return self._store.put(key, name.encode(), if_absent=True)
        return False

    def _collect(self, folder: str, own: str, expected: int, pause_s: float) -> Iterator[PendingEntry]:
        """Yield the other writers' proposals, once there are `expected` of them or their number stops
        growing.
        """
        keys = list[str]()
        for collect_round in range(COLLECT_ROUNDS):
            self._clock.sleep(min(LONGEST_PAUSE_S, pause_s * 2**collect_round))
            before, keys = len(keys), self._list(folder, own)
            if before == len(keys) >= expected or len(keys) >= MAX_BATCH_ENTRIES - 1:
                break
        if len(keys) < SEQUENTIAL_READS:
            yield from filter(None, map(self._read, keys))
            return
        with ThreadPoolExecutor(PARALLEL_READS) as pool:
            yield from filter(None, pool.map(self._read, keys))

    def _list(self, folder: str, own: str) -> list[str]:
        with suppress(StoreError):
            return [key for key in self._store.list(folder) if key.endswith(".json") and key != folder + own]
        return []

    def _read(self, key: str) -> PendingEntry | None:
        with suppress(NotInStore, StoreError, ValidationError):
            return PendingEntry.model_validate_json(self._store.fetch(key).read_bytes())
        return None

    def _batch(self, account: Account, own: PendingEntry, others: Iterator[PendingEntry]) -> NextObject:
        """Return the proposals that may follow each other. The writer of another one sees that it was left
        out.
        """
        trial, entries, checkpoint = account.copy(), list[HashedEntry](), None
        for pending in (own, *others):
            if len(entries) == MAX_BATCH_ENTRIES:
                break
            if pending.draft.account != trial.name or trial.requests.entry_number(pending.draft.id):
                continue
            with suppress(BudgetExceeded, LedgerConflict):
                trial.check(pending.draft, pending.min_left_microusd)
                hashed, made = next_entry(trial, pending.draft, self._clock, account.number + 1)
                entries.append(hashed)
                checkpoint = made or checkpoint
                trial.apply(hashed)
        # After a batch, one lone proposal is no sign yet that all other writers are done.
        contended = len(entries) > 1 or account.object_number < account.number
        return NextObject(StoredObject(tuple(entries), contended), checkpoint)


def next_entry(
    account: Account, draft: Entry, clock: Clock, object_number: int
) -> tuple[HashedEntry, HashedCheckpoint | None]:
    """Return the draft as the account's next entry, in the object of this number, with its hash.

    When a checkpoint is due, the entry names the one that is returned with it.
    """
    number, checkpoint = account.number + 1, None
    if account.number and checkpoint_is_due(number):
        checkpoint = make_checkpoint(account, object_number)
    position = {"number": number, "prev": account.head, "at": clock.now()}
    entry = draft.model_copy(update={**position, "checkpoint": checkpoint.sha256 if checkpoint else None})
    return hash_entry(entry), checkpoint
