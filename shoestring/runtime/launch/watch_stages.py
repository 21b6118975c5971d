"""Ends the stages of a run on this machine whose supervisors are silent, and what killed supervisors leave.

It is the second line of defence: a supervisor that is stopped or hangs can neither meter nor stop its stage.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import psutil

from shoestring.backends.processes import adopt_orphans, descendants, end_tree, is_running
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import DataError, StoreError
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.record import record_bytes
from shoestring.data.run_records import read_records
from shoestring.runtime.supervisor.child_process import STAGE_PROCESS
from shoestring.spending.heartbeat import (
    MIN_SILENCE_S,
    RUNNING_STATES,
    Heartbeat,
    ended_silent,
    record_lost,
    silence_limit_s,
)

LOOK_EVERY_S = 1.0
SEE_EVERY_S = 0.2
"""How often the processes below a supervisor are read: one that starts and is left in between is missed."""
MAX_LOOK_SHARE = 0.2
"""Share of the silence limit that one look can add. A look that took longer may mean that the store was away
meanwhile, or that this machine was suspended, and no stage could write either.
"""


@dataclass(slots=True)
class StageWatch:
    """The stages of one run, as the launcher has seen them. Times are on the monotonic clock.

    `looked_s`: when the last look read the heartbeats; None: it failed, or there was none. `last` is, by key,
    the last heartbeat and for how many seconds of looks it has stood. `trees` holds, by key, all processes
    that were seen below a supervisor; `gone_at` when it and they were seen to be gone.
    """

    world: World
    run_id: str
    looked_s: float | None = None
    last: dict[str, tuple[Heartbeat, float]] = field(default_factory=dict)
    trees: dict[str, set[psutil.Process]] = field(default_factory=dict)
    gone_at: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> None:
        """Read the heartbeats, and end the stages that are silent. Raises StoreError, DataError."""
        store, before_s = self.world.store, self.looked_s
        # A probe that cannot be written says that the store is away, which silences every stage.
        self.looked_s = None
        store.put(store_layout.LAUNCHER_PROBE, b"")
        keys = list(store.list(store_layout.heartbeats(self.run_id)))
        found, _ = read_records(store, keys, Heartbeat)
        self.looked_s = self.world.clock.monotonic_s()
        passed_s = None if before_s is None else self.looked_s - before_s
        for heartbeat in found:
            key = store_layout.heartbeat(self.run_id, f"{heartbeat.stage}-{heartbeat.attempt}")
            self._count_silence(key, heartbeat, passed_s)
            # The process ids of another machine mean nothing here.
            pod = heartbeat.pod
            if not isinstance(pod, LocalProcess) or pod.host != socket.gethostname():
                continue
            if heartbeat.state in RUNNING_STATES:
                self._check(key, heartbeat, pod)

    def _count_silence(self, key: str, heartbeat: Heartbeat, passed_s: float | None) -> None:
        """Add the seconds since the last look to a heartbeat that has not changed. None: that look failed."""
        before, silent_s = self.last.get(key, (None, 0.0))
        if before != heartbeat or passed_s is None:
            self.last[key] = (heartbeat, 0.0)
        else:
            self.last[key] = (heartbeat, silent_s + min(passed_s, MAX_LOOK_SHARE * self._limit_s(heartbeat)))

    def _limit_s(self, heartbeat: Heartbeat) -> float:
        return silence_limit_s(heartbeat.interval_s, self.world.policy.silent_intervals)

    def _check(self, key: str, heartbeat: Heartbeat, pod: LocalProcess) -> None:
        if not self.world.cluster.lifetime(pod).alive:
            self._end_lost(key, heartbeat)
            return
        with self._lock:
            self.trees.setdefault(key, set()).update(descendants(pod.pid))
        if self.last[key][1] >= self._limit_s(heartbeat):
            end_tree(pod.pid)
            ended = ended_silent(heartbeat, self.world.clock.now())
            self.world.store.put(key, record_bytes(ended))
            self.end_leftovers(key)

    def see_processes(self) -> None:
        """Read the supervisors and the processes below them, which may end before the next look. It needs no
        store.
        """
        for key, (heartbeat, _) in list(self.last.items()):
            with self._lock:
                if key not in self.trees or not isinstance(heartbeat.pod, LocalProcess):
                    continue
                if self.world.cluster.lifetime(heartbeat.pod).alive:
                    self.trees[key].update(descendants(heartbeat.pod.pid))
                elif key not in self.gone_at or any(map(is_running, self.trees[key])):
                    self.gone_at[key] = self.world.clock.now()

    def _end_lost(self, key: str, heartbeat: Heartbeat) -> None:
        """End what a dead supervisor left, and record when that was done."""
        found = self.end_leftovers(key) + end_orphans()
        now, world = self.world.clock.now(), self.world
        if found:
            self.gone_at[key] = now
        # One that was never seen: at most one interval after its last heartbeat.
        unseen_at = min(now, heartbeat.at + timedelta(seconds=heartbeat.interval_s))
        at = self.gone_at.get(key, unseen_at)
        record_lost(world.store, self.run_id, f"{heartbeat.stage}-{heartbeat.attempt}", at)

    def end_leftovers(self, key: str) -> int:
        """End the processes that were seen below a supervisor that is gone; return how many still ran."""
        # A process object knows its creation time, so it never means a later process of the same id.
        with self._lock:
            seen = self.trees.pop(key, set())
        found = [process for process in seen if is_running(process)]
        for process in found:
            end_tree(process.pid)
        return len(found)

    def end(self) -> None:
        """Give supervisors that are stopping their stages time to do so; then end what is left of them."""
        clock = self.world.clock
        due_s = clock.monotonic_s() + MIN_SILENCE_S
        while any(map(self._is_alive, list(self.trees))) and clock.monotonic_s() < due_s:
            clock.sleep(SEE_EVERY_S)
        with contextlib.suppress(StoreError, DataError, psutil.Error):
            self.look()
        for key in list(self.trees):
            self.end_leftovers(key)

    def _is_alive(self, key: str) -> bool:
        return self.world.cluster.lifetime(self.last[key][0].pod).alive


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


@contextmanager
def watched_stages(world: World, run_id: str) -> Iterator[None]:
    """Watch the stages of a run while the block runs; at its end, end what is left of them."""
    watch, over = StageWatch(world, run_id), threading.Event()
    adopt_orphans()

    def repeat(act: Callable[[], None], every_s: float) -> None:
        while not over.wait(every_s):
            # An unreachable store: the next look starts to count again.
            with contextlib.suppress(StoreError, DataError, psutil.Error):
                act()

    # A look waits for the store, and processes end meanwhile.
    doing = ((watch.look, LOOK_EVERY_S), (watch.see_processes, SEE_EVERY_S))
    threads = [threading.Thread(target=repeat, args=each, daemon=True) for each in doing]
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
