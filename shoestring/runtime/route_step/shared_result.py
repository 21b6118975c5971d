"""One run computes a result that several need; the others wait for it in their route steps.

A run waits with the time and the money that its own plan leaves over, so that it can still compute by itself
afterwards. While it waits, nothing is reserved for the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.interfaces import StoreInventory
from shoestring.core.pod_ref import ClusterPod
from shoestring.data.run_records import Run
from shoestring.data.storage.leases import Lease, TakenLease, newest_lease, take_lease
from shoestring.data.storage.store_clock import written_at
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.question import Question
from shoestring.runtime.admission.start_gate import slack_s
from shoestring.runtime.records.overhead import OverheadPod
from shoestring.runtime.route_step.lease_holder import HolderState, LeaseHolders
from shoestring.spending.ledger.ledger import Ledger

MAX_WAIT_S = 86_400.0
"""The longest wait of a run without a deadline."""
MAX_HOLDERS = 3
"""A run waits for at most this many holders that end without a result: it may be the stage that fails."""
MIN_POLL_S, MAX_POLL_S, POLL_SHARE = 0.25, 60.0, 0.1
"""The time between two looks at a holder is this share of the wait so far, between the two limits."""
SPARE_S = 2 * MIN_POLL_S
"""A wait ends this long before it would miss the deadline: its last sleep may be MIN_POLL_S too long, and the
decision after it takes time.
"""
FIRST_REPORT_S = 5.0
"""A wait is reported from here on, each time that it has doubled."""


def print_now(line: str) -> None:
    """Print a line to the log of a pod that still runs."""
    print(line, flush=True)


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """How long a run may wait for a result, and what speaks against a longer wait."""

    seconds: float
    cause: str


def wait_limit(world: World, run: Run, decision: Decision, choice: Choice, amount_usd: Decimal) -> WaitLimit:
    """Return how long a run may wait and still compute by itself afterwards. `amount_usd`: what it reserves
    then.

    On a machine of its own, a process that waits costs nothing. On a cluster its pod is charged to the
    overhead.
    """
    question, limits = decision.question, [WaitLimit(MAX_WAIT_S, "is too long")]
    slack = slack_s(decision, choice)
    if question.soft_left_s is not None or slack is not None:
        limits.append(WaitLimit(max(0.0, (slack or 0.0) - SPARE_S), "could miss the deadline"))
    if isinstance(world.pod, ClusterPod) and run.start.overhead_usd_per_hour:
        spare_usd = max(Decimal(0), question.left_usd - amount_usd - choice.reserved_later_usd)
        seconds = float(spare_usd * 3600 / run.start.overhead_usd_per_hour)
        limits.append(WaitLimit(seconds, "would cost more than the plan leaves of the budget"))
    return min(limits, key=lambda limit: limit.seconds)


@dataclass(slots=True)
class SharedResult:
    """The result that one route step needs, and others may need as well.

    `pod`: of the route step. `can_wait`: false for a stage's pod, which is paid for already. `computes`: this
    run computes the result, with the lease or without. `seen_entry`: when the cache entry was written that
    could not be used. `failed_holders`: those that were waited for in vain.
    """

    world: World
    run: Run
    ledger: Ledger
    pod: OverheadPod
    can_wait: bool = True
    report: Callable[[str], object] = print_now
    notes: tuple[str, ...] = ()
    computes: bool = False
    seen_entry: datetime | None = None
    failed_holders: int = 0
    report_at_s: float = 0.0

    def noted(self, question: Question) -> Question:
        """Return a question with the notes on a wait, and its length."""
        if not self.notes:
            return question
        notes, waited_s = (*question.notes, *self.notes), round(self.pod.waited_s, 3)
        return question.model_copy(update={"notes": notes, "waited_s": waited_s})

    def claim(self, decision: Decision, choice: Choice, amount_usd: Decimal) -> bool:
        """Return whether this run computes the stage now, as decided.

        False: it has waited, or has a note for the decision, so the caller asks and decides again. Raises
        StoreError.
        """
        key, store, waited_s = decision.question.digests["cache"], self.world.store, self.pod.waited_s
        if self.computes or choice.cached or not key or not isinstance(store, StoreInventory):
            return True
        limit = wait_limit(self.world, self.run, decision, choice, amount_usd)
        holders = LeaseHolders(self.world, store, self.ledger)
        while True:
            newest = newest_lease(store, key)
            others = newest is not None and (newest.lease is None or newest.lease.run_id != self.run.run_id)
            if newest is not None and others and not self._outlives(holders, key, newest, limit, waited_s):
                return False
            if take_lease(store, key, newest, self._lease(decision, choice)):
                self.computes = True
                return self.pod.waited_s == waited_s

    def _outlives(
        self, holders: LeaseHolders, key: str, taken: TakenLease, limit: WaitLimit, before_s: float
    ) -> bool:
        """Wait for a holder; return True if it ended without a result, so that this run takes over.

        False: there is a result, or this run computes by itself. `before_s`: waited before this decision.
        """
        while True:
            state = holders.look(taken)
            waited_s = self.pod.waited_s - before_s
            # Read after the holder was: it publishes before it ends.
            if self._is_published(holders.inventory, key):
                self._note_wait(taken, waited_s, "which computed the same {stage}: nothing is paid for it")
                return False
            if state.end:
                self._count_failed(taken, state, waited_s)
                return True
            if reason := self._reason_to_compute(taken, state, limit, waited_s):
                self.notes += (reason,)
                self.computes = True
                return False
            self._sleep(taken, limit, waited_s)

    def _is_published(self, inventory: StoreInventory, key: str) -> bool:
        """Return whether the cache has an entry that this route step has not tried to use."""
        written = written_at(inventory, store_layout.cache_entry(key))
        is_new, self.seen_entry = written != self.seen_entry, written
        return is_new and written is not None

    def _count_failed(self, taken: TakenLease, state: HolderState, waited_s: float) -> None:
        """Count a holder that ended without a result. One that completed its stage has one of its own, and so
        would the next.
        """
        if waited_s:
            self.failed_holders += MAX_HOLDERS if state.is_done else 1
            ended = f"which computed the same {{stage}} and left no result for other runs ({state.end})"
            self._note_wait(taken, waited_s, ended)

    def _reason_to_compute(
        self, taken: TakenLease, state: HolderState, limit: WaitLimit, waited_s: float
    ) -> str:
        """Return why this run does not wait for a holder, or no longer, as a sentence; empty: it waits."""
        assert taken.lease is not None
        left_s = max(0.0, taken.lease.expected_s - state.age_s)
        alone = f"computes by itself, although {taken.lease.run_id} computes the same {taken.lease.stage}"
        if not self.can_wait:
            return f"{alone}: this pod is paid for already"
        if self.failed_holders >= MAX_HOLDERS:
            return f"{alone}: what it waited for before left no result for other runs"
        if waited_s < limit.seconds and left_s <= limit.seconds - waited_s:
            return ""
        return f"{alone}, for {left_s:.0f} s more: waiting for more than {limit.seconds:.0f} s {limit.cause}"

    def _sleep(self, taken: TakenLease, limit: WaitLimit, waited_s: float) -> None:
        """Sleep until the next look, and report the wait now and then."""
        assert taken.lease is not None
        if waited_s >= self.report_at_s:
            self.report_at_s = max(FIRST_REPORT_S, 2 * waited_s)
            name, stage = taken.lease.run_id, taken.lease.stage
            self.report(
                f"waiting for {name}, which computes the same {stage}; "
                f"{waited_s:.0f} s of at most {limit.seconds:.0f} s"
            )
        clock = self.world.clock
        began_s = clock.monotonic_s()
        poll_s = min(MAX_POLL_S, max(MIN_POLL_S, POLL_SHARE * waited_s))
        clock.sleep(min(poll_s, max(MIN_POLL_S, limit.seconds - waited_s)))
        self.pod.waited_s += clock.monotonic_s() - began_s

    def _note_wait(self, taken: TakenLease, waited_s: float, ending: str) -> None:
        if waited_s and taken.lease is not None:
            ending = ending.format(stage=taken.lease.stage)
            self.notes += (f"waited {waited_s:.1f} s for {taken.lease.run_id}, {ending}",)

    def _lease(self, decision: Decision, choice: Choice) -> Lease:
        start = self.run.start
        return Lease(
            run_id=self.run.run_id,
            account=start.account,
            stage=decision.question.stage,
            attempt=decision.question.attempt,
            router=self.world.pod,
            launcher=start.launcher,
            expected_s=choice.est_s,
        )
