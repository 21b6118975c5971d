"""Ends the stages of a run on this machine whose supervisors are silent, and what killed supervisors leave.

It is the second line of defence: a supervisor that is stopped or hangs can neither meter nor stop its stage.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from shoestring.backends.processes import adopt_orphans, descendants, end_tree
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import DataError, StoreError
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.record import record_bytes
from shoestring.data.run_records import read_records
from shoestring.spending.heartbeat import (
    MIN_SILENCE_S,
    RUNNING_STATES,
    Heartbeat,
    ended_silent,
    silence_limit_s,
)

LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class StageWatch:
    """What the launcher has seen of the stages of one run. Times are on the monotonic clock.

    `last` is, by key, the last heartbeat and when it was first seen. `trees` holds, by key, all processes
    that were seen below a supervisor.
    """

    world: World
    run_id: str
    looked_s: float = 0.0
    last: dict[str, tuple[Heartbeat, float]] = field(default_factory=dict)
    trees: dict[str, set[psutil.Process]] = field(default_factory=dict)

    def look(self) -> None:
        """Read the heartbeats, and end the stages that are silent. Raises StoreError, DataError."""
        store, now_s = self.world.store, self.world.clock.monotonic_s()
        # A probe that cannot be written says that the store is away, which silences every stage.
        store.put(store_layout.LAUNCHER_PROBE, b"")
        keys = list(store.list(store_layout.heartbeats(self.run_id)))
        found, _ = read_records(store, keys, Heartbeat)
        was_away = now_s - self.looked_s > MIN_SILENCE_S / 2
        self.looked_s = now_s
        for heartbeat in found:
            key = store_layout.heartbeat(self.run_id, f"{heartbeat.stage}-{heartbeat.attempt}")
            before = self.last.get(key)
            if before is None or before[0] != heartbeat or was_away:
                self.last[key] = (heartbeat, now_s)
            # The process ids of another machine mean nothing here.
            pod, silent_s = heartbeat.pod, now_s - self.last[key][1]
            if not isinstance(pod, LocalProcess) or pod.host != socket.gethostname():
                continue
            if heartbeat.state in RUNNING_STATES:
                self._check(key, heartbeat, pod, silent_s)

    def _check(self, key: str, heartbeat: Heartbeat, pod: LocalProcess, silent_s: float) -> None:
        if not self.world.cluster.lifetime(pod).alive:
            self.end_leftovers(key)
            return
        self.trees.setdefault(key, set()).update(descendants(pod.pid))
        if silent_s > silence_limit_s(heartbeat.interval_s, self.world.policy.silent_intervals):
            end_tree(pod.pid)
            ended = ended_silent(heartbeat, self.world.clock.now())
            self.world.store.put(key, record_bytes(ended))
            self.end_leftovers(key)

    def end_leftovers(self, key: str) -> None:
        """End the processes that were seen below a supervisor that is gone."""
        for process in self.trees.pop(key, set()):
            # A process object knows its creation time, so it never means a later process of the same id.
            if process.is_running():
                end_tree(process.pid)


@contextmanager
def watched_stages(world: World, run_id: str) -> Iterator[None]:
    """Watch the stages of a run while the block runs; at its end, end what is left of them."""
    watch, over = StageWatch(world, run_id), threading.Event()
    adopt_orphans()

    def watch_until_over() -> None:
        while not over.wait(LOOK_EVERY_S):
            # An unreachable store: the next look starts to count again.
            with contextlib.suppress(StoreError, DataError, psutil.Error):
                watch.look()

    thread = threading.Thread(target=watch_until_over, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=MIN_SILENCE_S)
        for key in list(watch.trees):
            watch.end_leftovers(key)
        adopt_orphans(adopt=False)
