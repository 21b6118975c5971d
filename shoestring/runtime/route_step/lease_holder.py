"""Judge whether the holder of a lease still computes, from another run.

Its heartbeats count by the store's clock, so clocks of machines may differ. A holder that is taken for ended
and is not costs money twice, but its result is the published one or is not used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import ClusterError, DataError, NotInStore, UnknownName
from shoestring.core.interfaces import StoreInventory
from shoestring.core.pod_ref import PodRef
from shoestring.data.storage.leases import Lease, TakenLease
from shoestring.data.storage.store_clock import store_time, written_at
from shoestring.spending.heartbeat import RUNNING_STATES, Heartbeat, last_heartbeat, silence_limit_s
from shoestring.spending.ledger.ledger import Ledger

RESERVED_WITHIN_S = 60.0
"""A router reserves right after it took a lease; one that has not by then never will."""
STARTED_WITHIN_S = 1800.0
"""A node may have to pull a large image before the stage's first heartbeat, beyond the wait for the node."""


@dataclass(frozen=True, slots=True)
class HolderState:
    """The state of a lease's holder.

    `age_s`: of its lease. `end`: why it computes no longer, as a clause; empty: it computes. `is_done`: it
    completed its stage.
    """

    age_s: float
    end: str = ""
    is_done: bool = False


@dataclass(slots=True)
class LeaseHolders:
    """Looks at holders of leases. `suspect` is the silent heartbeat that the last look found: when it was
    written, and when it was first found silent.
    """

    world: World
    inventory: StoreInventory
    ledger: Ledger
    suspect: tuple[datetime, float] | None = field(default=None)

    def look(self, taken: TakenLease) -> HolderState:
        """Return the state of a lease's holder. Raises StoreError."""
        lease, store = taken.lease, self.world.store
        now = store_time(store, self.inventory, store_layout.LEASE_PROBE)
        written = written_at(self.inventory, taken.key)
        if lease is None or written is None:
            return HolderState(0.0, "its lease cannot be read")
        age_s = (now - written).total_seconds()
        try:
            heartbeat = last_heartbeat(store, lease.run_id, lease.attempt_id)
            if heartbeat is None:
                return HolderState(age_s, self._end_before_start(lease, age_s))
            is_done = heartbeat.state == "done"
            return HolderState(age_s, self._end_of_attempt(lease, heartbeat, now), is_done)
        except (DataError, UnknownName, NotInStore) as error:
            return HolderState(age_s, f"its records cannot be read: {error}")

    def _end_before_start(self, lease: Lease, age_s: float) -> str:
        """Return why an attempt without a heartbeat will never begin; empty: it may."""
        name, state = str(lease.attempt_id), self.ledger.state(lease.account)
        if name in state.settled_usd or state.closed:
            return "it was settled before it began"
        if lease.launcher is not None and not self._is_alive(lease.launcher):
            return "the process that launched its run has ended"
        within_s = STARTED_WITHIN_S + self.world.policy.queue_delay_s
        if name not in state.reservations:
            if not self._is_alive(lease.router):
                return "its router ended before it reserved any money"
            within_s = RESERVED_WITHIN_S
        return f"it did not begin within {within_s:.0f} s" if age_s > within_s else ""

    def _end_of_attempt(self, lease: Lease, heartbeat: Heartbeat, now: datetime) -> str:
        """Return why an attempt with a heartbeat has ended; empty: it runs."""
        if heartbeat.state not in RUNNING_STATES:
            return f"it is {heartbeat.state}"
        if not self._is_alive(heartbeat.pod):
            return "its pod has ended"
        key = store_layout.heartbeat(lease.run_id, lease.attempt_id)
        written = written_at(self.inventory, key) or now
        silent_s = (now - written).total_seconds()
        if silent_s <= silence_limit_s(heartbeat.interval_s, self.world.policy.silent_intervals):
            return ""
        # A store that was away silences everybody. Once it is back, a live holder writes within an interval.
        at_s = self.world.clock.monotonic_s()
        if self.suspect is None or self.suspect[0] != written:
            self.suspect = (written, at_s)
        is_silent = at_s - self.suspect[1] >= heartbeat.interval_s
        return f"its last heartbeat is {silent_s:.0f} s old" if is_silent else ""

    def _is_alive(self, pod: PodRef) -> bool:
        try:
            return self.world.cluster.lifetime(pod).alive
        except ClusterError:
            # A pod in a namespace that this one may not read: its heartbeats decide.
            return True
