"""The launcher's own clock of the stages of a run: it ends a stage before the money of its account could be
gone, whatever the files hold.

A stage has the rights of its user: it can stop its supervisor, and write each file of the store. So nothing
here reads the store. A stage is found below the launcher in the kernel's table of processes, and its time
counts from the start of its supervisor. What its account has comes from `AccountMoney`.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from shoestring.backends.processes import descendants, end_tree, is_running, process_ref
from shoestring.config.world import World
from shoestring.core.attempt_id import AttemptId
from shoestring.core.money import usd
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.receipt import PricePoint
from shoestring.runtime.launch.account_money import AccountMoney
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.child import JOB_FILE, ChildJob
from shoestring.runtime.supervisor.child_process import STAGE_PROCESS
from shoestring.spending.exit_money import EXIT_S
from shoestring.spending.heartbeat import BROKE, LOST, Heartbeat
from shoestring.spending.meter import Meter

SEE_EVERY_S = 0.2
"""How often the processes of the stages are read: one that starts and is left in between is missed."""
OVERDUE_S = 1.0
"""A supervisor that runs ends its stage when its money is gone. This long after that, the launcher does."""
STOPPED_STATES = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


@dataclass(slots=True, eq=False)
class StageTree:
    """A supervisor and the processes below it, as the launcher has seen them. `*_s`: on the monotonic clock.

    `usd_per_hour`: the price at its start. `attempt`: its reservation and its decision; None: they
    were not read yet. `stopped_s`: since when a signal or a debugger stops the supervisor; None: it runs.
    `seen_s`: when the supervisor was last seen to run. `gone_at`: when all of it was seen to be gone;
    `state`: of the heartbeat that records it.
    """

    attempt_id: AttemptId
    supervisor: psutil.Process
    started_s: float
    seen_s: float
    usd_per_hour: Decimal
    attempt: Attempt | None = None
    processes: set[psutil.Process] = field(default_factory=set)
    stopped_s: float | None = None
    gone_at: datetime | None = None
    state: str = LOST
    is_recorded: bool = False

    @property
    def name(self) -> str:
        return str(self.attempt_id)

    @property
    def pod(self) -> LocalProcess:
        return process_ref(self.supervisor)

    @property
    def highest_usd_per_hour(self) -> Decimal:
        """The highest price so far, and at least on-demand on a market whose price moves."""
        if self.attempt is None:
            return self.usd_per_hour
        rates = (price for _, price in self.attempt.rate_changes)
        return max(self.usd_per_hour, self.attempt.fallback_usd_per_hour, *rates)

    def rates(self) -> tuple[tuple[float, Decimal], ...]:
        """Return its prices, each with its beginning.

        From when its supervisor was stopped, its price is not followed, and the highest one counts.
        """
        changes = self.attempt.limit_meter().rate_changes if self.attempt else ()
        rates = ((self.started_s, self.usd_per_hour), *changes)
        if self.stopped_s is None:
            return rates
        before = (rate for rate in rates if rate[0] < self.stopped_s)
        return (*before, (self.stopped_s, self.highest_usd_per_hour))

    def cost_usd(self, now_s: float) -> Decimal:
        """Return what it has cost at most, with its fees."""
        return self.time_usd(now_s) + (self.attempt.choice.fees_usd if self.attempt else Decimal(0))

    def time_usd(self, now_s: float) -> Decimal:
        """Return what its time has cost at most."""
        (began_s, price), *changes = self.rates()
        return Meter(price, began_s, Decimal(0), None, tuple(changes)).spent_usd(now_s)

    def is_stage_running(self) -> bool:
        return any(map(is_running, self.processes))

    def note_stop(self, now_s: float) -> None:
        """Record since when the supervisor is stopped, if it is."""
        is_stopped = self.supervisor.status() in STOPPED_STATES
        if not is_stopped:
            self.stopped_s = None
        elif self.stopped_s is None:
            self.stopped_s = now_s


@dataclass(slots=True)
class StageClock:
    """The stages of one run on this machine. `trees` has those that ended, too."""

    world: World
    run_id: str
    money: AccountMoney
    trees: list[StageTree] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def look(self) -> None:
        """Find new stages, and end those whose money could be gone, or whose supervisors are. It needs no
        store.
        """
        with self._lock:
            for tree in self.running():
                self._check(tree)
            for process in descendants(os.getpid()):
                if is_stage_process(process):
                    self._find(process)

    def running(self) -> list[StageTree]:
        return [tree for tree in self.trees if tree.gone_at is None]

    def tree_of(self, name: str) -> StageTree | None:
        """Return the attempt of this name; None: no process of it was seen."""
        return next((tree for tree in reversed(self.trees) if tree.name == name), None)

    def add_below(self, attempt_id: AttemptId, pid: int, usd_per_hour: Decimal) -> None:
        """Watch the processes below a supervisor, if it is itself a process below this one."""
        with self._lock:
            for process in descendants(os.getpid()):
                if process.pid == pid and self.tree_of(str(attempt_id)) is None:
                    self._add(attempt_id, process, usd_per_hour)

    def _add(self, attempt_id: AttemptId, supervisor: psutil.Process, usd_per_hour: Decimal) -> None:
        clock = self.world.clock
        age_s, now_s = (
            self.world.cluster.lifetime(process_ref(supervisor)).age_s(clock.now()),
            clock.monotonic_s(),
        )
        tree = StageTree(attempt_id, supervisor, now_s - age_s, now_s, usd_per_hour)
        tree.processes.update(descendants(supervisor.pid))
        self.trees.append(tree)

    def end(self, tree: StageTree, state: str) -> None:
        """End a supervisor, if it still runs, and all processes that were seen below it."""
        with self._lock:
            if tree.gone_at is not None:
                return
            for process in (tree.supervisor, *tree.processes):
                # A process object knows its creation time, so it never means a later process of the same id.
                if is_running(process):
                    end_tree(process.pid)
            tree.state, tree.gone_at = state, self.world.clock.now()

    def ended_heartbeat(self, tree: StageTree, last: Heartbeat | None) -> Heartbeat:
        """Return the last heartbeat of a tree that is gone. Its money and times are the launcher's own; the
        rest is that of `last`.
        """
        now, now_s = self.world.clock.now(), self.world.clock.monotonic_s()
        at, began_at = tree.gone_at or now, now - timedelta(seconds=now_s - tree.started_s)
        prices = tuple(
            PricePoint(at=now - timedelta(seconds=now_s - since_s), usd_per_hour=price)
            for since_s, price in tree.rates()
        )
        known: dict[str, Any] = {
            "run_id": self.run_id,
            "stage": tree.attempt_id.stage,
            "attempt": tree.attempt_id.number,
            "pod": tree.pod,
            "state": tree.state,
            "usd_per_hour": prices[-1].usd_per_hour,
            "prices": prices,
            "started_at": began_at,
            "at": max(began_at, at),
            "spent_usd": tree.cost_usd(now_s - (now - at).total_seconds()),
            "fees_usd": tree.attempt.choice.incurred_usd(done=False) if tree.attempt else usd("0"),
        }
        if last is None:
            return Heartbeat(interval_s=self.world.policy.heartbeat_s, **known)
        return last.model_copy(update=known)

    def _check(self, tree: StageTree) -> None:
        if not is_running(tree.supervisor):
            self.end(tree, LOST)
            return
        tree.processes.update(descendants(tree.supervisor.pid))
        now_s = tree.seen_s = self.world.clock.monotonic_s()
        tree.note_stop(now_s)
        # One look more, since Ctrl-Z stops and continues all processes of a run together.
        is_stopped = tree.stopped_s is not None and now_s > tree.stopped_s
        most_usd = self.money.most_usd(tree.name, may_extend=not is_stopped)
        if is_stopped and tree.cost_usd(now_s + EXIT_S) > most_usd:
            self.end(tree, BROKE)
        elif tree.cost_usd(now_s - OVERDUE_S) > most_usd:
            # Its supervisor runs, and settles it.
            for process in descendants(tree.supervisor.pid):
                end_tree(process.pid)

    def _find(self, process: psutil.Process) -> None:
        """Add the stage of a process that runs a stage's code, unless it is known."""
        above = process.parents()
        if any(process in tree.processes or tree.supervisor in above for tree in self.running()):
            return
        if not above or above[0].pid == os.getpid():
            # Its supervisor died before it was seen, and the launcher adopted it.
            end_tree(process.pid)
            return
        try:
            job = ChildJob.model_validate_json((Path(process.cmdline()[-1]) / JOB_FILE).read_bytes())
        except (OSError, ValidationError, psutil.Error):
            # It has just ended, and its scratch folder with it.
            return
        if job.run_id == self.run_id:
            self._add(AttemptId(job.run_id, job.stage, job.attempt), above[0], job.usd_per_hour)


def end_orphans() -> int:
    """End the stages' processes that this process adopted, since their supervisors died; return how many."""
    found = [process for process in psutil.Process().children() if is_stage_process(process)]
    for process in found:
        end_tree(process.pid)
    return len(found)


def is_stage_process(process: psutil.Process) -> bool:
    try:
        return is_running(process) and STAGE_PROCESS in process.cmdline()
    except psutil.Error:
        return False
