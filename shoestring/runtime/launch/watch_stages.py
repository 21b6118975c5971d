"""Ends the stages of a run on this machine whose supervisors are silent, and what killed supervisors leave.

It is the second line of defence: a supervisor that is stopped or hangs can neither meter nor stop its stage.
The store is read here. The `StageClock` needs no store, and nothing that waits for one delays it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

import psutil

from shoestring.backends.processes import adopt_orphans, end_tree, is_running
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import DataError, ShoestringError, UnknownName
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import Run, read_record, read_records
from shoestring.routing.decision import Decision
from shoestring.runtime.launch.account_money import AccountMoney
from shoestring.runtime.launch.stage_clock import SEE_EVERY_S, StageClock, StageTree, end_orphans
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.spending.exit_money import CHECK_EVERY_S, seconds_usd
from shoestring.spending.heartbeat import (
    MIN_SILENCE_S,
    RUNNING_STATES,
    SILENT,
    Heartbeat,
    last_heartbeat,
    put_heartbeat,
    record_lost,
    silence_limit_s,
)
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import book_cost
from shoestring.spending.lost_pods import settle_ended

LOOK_EVERY_S = 1.0
RECORD_EVERY_S = 0.1
MIN_BOOKED_S = 0.5
"""Seconds from the end that a supervisor settled to the end of its process which are booked; fewer are
`pod_exit_s` of the policy.
"""
MAX_LOOK_SHARE = 0.2
"""Share of the silence limit that one look can add. A look that took longer may mean that the store was away
meanwhile, or that this machine was suspended, and no stage could write either.
"""


@dataclass(slots=True)
class StageWatch:
    """The stages of one start of a run, as the launcher has seen them. Times are on the monotonic clock.

    `looked_s`: when the last look read the heartbeats; None: it failed, or there was none. `last` is, by
    attempt, the last heartbeat and for how many seconds of looks it has not changed.
    """

    world: World
    run: Run
    clock: StageClock = field(init=False)
    looked_s: float | None = None
    last: dict[str, tuple[Heartbeat | None, float]] = field(default_factory=dict)
    _ledger: Ledger = field(init=False)
    _recording: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.clock = StageClock(self.world, self.run.run_id, AccountMoney(self.run.start))
        self._ledger = self._new_ledger()

    def look(self) -> None:
        """Read the heartbeats, and end the stages that are silent. Raises StoreError, DataError."""
        store, before_s = self.world.store, self.looked_s
        # A probe that cannot be written says that the store is away, which silences every stage.
        self.looked_s = None
        store.put(store_layout.LAUNCHER_PROBE, b"")
        over = {
            store_layout.heartbeat(self.run.run_id, tree.attempt_id)
            for tree in self.clock.trees
            if tree.is_recorded
        }
        keys = [key for key in store.list(store_layout.heartbeats(self.run.run_id)) if key not in over]
        read, _ = read_records(store, keys, Heartbeat)
        self.looked_s = self.world.clock.monotonic_s()
        passed_s = None if before_s is None else self.looked_s - before_s
        found = {f"{each.stage}-{each.attempt}": each for each in read}
        for each in read:
            self._find(each)
        self.clock.look()
        for tree in self.clock.running():
            heartbeat = found.get(tree.name)
            # A stage can write each heartbeat: one that it ended, or garbled, does not end its silence.
            if heartbeat is None or heartbeat.state in RUNNING_STATES or tree.is_stage_running():
                self._check_silence(tree, heartbeat, passed_s)
        self.record()

    def _find(self, heartbeat: Heartbeat) -> None:
        """Watch the pod of a heartbeat, if it is a process below this one. If it has ended unseen, record
        that.
        """
        pod, name = heartbeat.pod, f"{heartbeat.stage}-{heartbeat.attempt}"
        # The process ids of another machine, or of another container, mean nothing here.
        if not isinstance(pod, LocalProcess) or pod.host != socket.gethostname():
            return
        life = self.world.cluster.lifetime(pod)
        if not life.is_seen or heartbeat.state not in RUNNING_STATES or self.clock.tree_of(name):
            return
        if life.alive:
            attempt_id = AttemptId(self.run.run_id, heartbeat.stage, heartbeat.attempt)
            self.clock.add_below(attempt_id, pod.pid, heartbeat.usd_per_hour)
            return
        end_orphans()
        # At most one interval after its last heartbeat.
        at = min(self.world.clock.now(), heartbeat.at + timedelta(seconds=heartbeat.interval_s))
        record_lost(self.world.store, self.run.run_id, name, at)

    def _check_silence(self, tree: StageTree, heartbeat: Heartbeat | None, passed_s: float | None) -> None:
        """Add the seconds since the last look to a heartbeat that has not changed; None: that look failed.

        End its stage after the limit.
        """
        before, silent_s = self.last.get(tree.name, (None, 0.0))
        interval_s = heartbeat.interval_s if heartbeat else self.world.policy.heartbeat_s
        limit_s = silence_limit_s(interval_s, self.world.policy.silent_intervals)
        is_same = tree.name in self.last and before == heartbeat and passed_s is not None
        silent_s = silent_s + min(passed_s or 0.0, MAX_LOOK_SHARE * limit_s) if is_same else 0.0
        self.last[tree.name] = (heartbeat, silent_s)
        if silent_s >= limit_s:
            self.clock.end(tree, SILENT)

    def read_money(self, ledger: Ledger) -> None:
        """Read the run's account, and the decisions of the attempts that it pays for. Raises StoreError,
        DataError, LedgerCorrupt, UnknownName.
        """
        state = ledger.state(self.run.start.account)
        self.clock.money.read(state)
        for tree in self.clock.running():
            reservation = state.reservations.get(tree.name)
            if tree.attempt is not None or reservation is None:
                continue
            key = reservation.decision_key or store_layout.decision(self.run.run_id, tree.name)
            decision = read_record(self.world.store, key, Decision)
            # A decision that differs from the job, which was read before the stage's code began, is forged.
            if decision.choice and decision.choice.usd_per_hour == tree.usd_per_hour:
                tree.attempt = Attempt(
                    self.world, self.run, decision, key, {}, tree.started_s, reservation.amount_usd
                )

    def read_prices(self) -> None:
        """Read the current prices of the running stages."""
        for tree in self.clock.running():
            if tree.attempt is not None:
                tree.attempt.update_price()

    def record(self) -> None:
        """Record and book the end of each attempt that its supervisor did not settle. Raises StoreError,
        LedgerCorrupt.
        """
        with self._recording:
            for tree in self.clock.trees:
                if tree.gone_at is not None and not tree.is_recorded:
                    self._record(tree)
                    tree.is_recorded = True

    def _record(self, tree: StageTree) -> None:
        store, account = self.world.store, self.run.start.account
        with contextlib.suppress(UnknownName):
            if tree.name in (state := self._ledger.state(account)).settled_usd:
                self._book_exit(tree, state)
                return
        try:
            last = last_heartbeat(store, self.run.run_id, tree.name)
        except DataError:
            # The stage garbled it.
            last = None
        ended = self.clock.ended_heartbeat(tree, last)
        try:
            put_heartbeat(store, ended)
        finally:
            with contextlib.suppress(UnknownName):
                settle_ended(self._ledger, account, ended)

    def _book_exit(self, tree: StageTree, state: AccountState) -> None:
        """Book the time that a supervisor took to its end beyond what it settled, as far as caps allow."""
        key = store_layout.receipt(self.run.run_id, tree.name)
        if state.closed or not any(self.world.store.list(key)):
            return
        receipt = read_record(self.world.store, key, Receipt)
        cost_usd = max(Decimal(0), tree.time_usd(tree.seen_s) - receipt.committed_usd) + receipt.fees_usd
        booked_usd = state.settled_usd[tree.name] + state.overruns_usd.get(tree.name, Decimal(0))
        if cost_usd - booked_usd > seconds_usd(tree.usd_per_hour, MIN_BOOKED_S):
            reason = f"its process ran on until it had cost ${cost_usd}"
            book_cost(self._ledger, state.account, tree.name, cost_usd, reason, id=f"{tree.name}-exit")

    def end(self) -> None:
        """Give supervisors that are stopping their stages time to do so; then end what is left of them."""
        clock = self.world.clock
        due_s = clock.monotonic_s() + MIN_SILENCE_S
        while self.clock.running() and clock.monotonic_s() < due_s:
            self.clock.look()
            clock.sleep(SEE_EVERY_S)
        with contextlib.suppress(ShoestringError, psutil.Error):
            self.look()
        for tree in self.clock.running():
            if tree.stopped_s is not None:
                self.clock.end(tree, SILENT)
            # A supervisor that waits for the store settles by itself.
            for process in filter(is_running, tree.processes):
                end_tree(process.pid)
        with contextlib.suppress(ShoestringError):
            self.record()

    def _new_ledger(self) -> Ledger:
        return world_ledger(self.world)

    def threads(self, over: threading.Event) -> list[threading.Thread]:
        """Return the threads that watch until `over` is set. Each waits for itself alone."""

        def repeat(act: Callable[[], None], every_s: float) -> None:
            while not over.wait(every_s):
                # An unreachable store: the next look starts to count again. And a stage can write anything.
                with contextlib.suppress(ShoestringError, psutil.Error):
                    act()

        ledger = self._new_ledger()
        doing: tuple[tuple[Callable[[], None], float], ...] = (
            (self.clock.look, SEE_EVERY_S),
            (lambda: self.read_money(ledger), LOOK_EVERY_S),
            (self.read_prices, CHECK_EVERY_S),
            (self.look, LOOK_EVERY_S),
            (self.record, RECORD_EVERY_S),
        )
        return [threading.Thread(target=repeat, args=each, daemon=True) for each in doing]


@contextmanager
def watched_stages(world: World, run: Run) -> Iterator[None]:
    """Watch the stages of a run's latest start while the block runs; at its end, end what is left of them."""
    watch, over = StageWatch(world, run), threading.Event()
    with contextlib.suppress(ShoestringError):
        watch.read_money(world_ledger(world))
    adopt_orphans()
    threads = watch.threads(over)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=MIN_SILENCE_S)
        watch.end()
        adopt_orphans(adopt=False)
