"""Simulate time: an event loop of processes whose clocks and store writes can fail.

Races are injected where they happen: when a process is about to write an entry, another process runs first,
on its own ledger. All random events follow from the seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TypeVar

from shoestring.core.errors import StoreError
from shoestring.core.interfaces import Store
from shoestring.core.types import STANDARD_CLASS
from shoestring.simulation.scenario import FaultModel
from shoestring.spending.ledger.ledger import Ledger

Result = TypeVar("Result")
Process = Generator[float, None, Result]
"""A process: yields the time at which it continues, in seconds from the start of the simulation, and
returns its result.
"""

OVERLAP_S = 30.0
"""Processes that are due within this many seconds of each other can race."""


class ProcessDied(BaseException):
    """The process died in the middle of its work.

    Only the code that observes the end of processes catches this.
    """


class ProcessSlot:
    """A slot in which one process runs at a time: a ledger with its cache, and the clock skew of the
    running process.
    """

    def __init__(self, loop: EventLoop, faults: FaultModel, store: Store, rng: Random) -> None:
        self.skew_s = 0.0
        self.ledger = Ledger(FaultyStore(loop, faults, store, rng), SimulatedClock(loop), "simulated", rng)


class SimulatedClock:
    """The clock of the running process: simulated time plus its clock skew."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return self._loop.moment(self._loop.now_s + self._loop.slot.skew_s)

    def monotonic_s(self) -> float:
        return self._loop.now_s

    def sleep(self, seconds: float) -> None:
        self._loop.now_s += seconds


class FaultyStore:
    """A store that injects faults at writes: another process runs first, the writer dies, or the write
    reports an error.
    """

    def __init__(self, loop: EventLoop, faults: FaultModel, store: Store, rng: Random) -> None:
        self._loop, self._faults, self._store, self._rng = loop, faults, store, rng

    def fetch(self, key: str) -> Path:
        return self._store.fetch(key)

    def list(self, prefix: str) -> Iterator[str]:
        return self._store.list(prefix)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        faults, chance = self._faults, self._rng.random
        if if_absent and faults.race_per_write and chance() < faults.race_per_write:
            self._loop.overlap()
        crashes, fails = chance() < faults.crash_per_write, chance() < faults.error_per_write
        if (crashes or fails) and chance() < 0.5:
            raise ProcessDied if crashes else StoreError(f"the store did not take {key}")
        written = self._store.put(key, data, if_absent=if_absent, storage_class=storage_class)
        if crashes or fails:
            raise ProcessDied if crashes else StoreError(f"the store's answer on {key} was lost")
        return written


class EventLoop:
    """Runs processes in the order of their due times.

    A process returns to its home slot if that is free, because the ledger of that slot has its account in
    the cache.
    """

    def __init__(
        self, starts_at: datetime, slots: int, faults: FaultModel, store: Store, rng: Random
    ) -> None:
        self.now_s = 0.0
        self.overlaps = 0
        self._starts_at = starts_at
        self._due: list[tuple[float, int, int, Process[None]]] = []
        self._started = 0
        self._slots = [ProcessSlot(self, faults, store, rng) for _ in range(slots)]
        self._busy: list[ProcessSlot] = []

    @property
    def slot(self) -> ProcessSlot:
        """Return the slot of the running process; the first slot if none runs."""
        return self._busy[-1] if self._busy else self._slots[0]

    @property
    def ledger(self) -> Ledger:
        """Return the ledger of the running process."""
        return self.slot.ledger

    def ledger_of_slot(self, home_slot: int) -> Ledger:
        """Return the ledger of a home slot."""
        return self._slots[home_slot % len(self._slots)].ledger

    def moment(self, seconds: float) -> datetime:
        """Return the simulated time this many seconds after the start."""
        return self._starts_at + timedelta(microseconds=round(seconds * 1e6))

    def start(self, process: Process[None], at_s: float, home_slot: int = 0) -> None:
        """Schedule a process to run at `at_s`."""
        self._started += 1
        heapq.heappush(self._due, (at_s, self._started, home_slot % len(self._slots), process))

    def run(self, on_progress: Callable[[], object]) -> None:
        """Run until no process is scheduled. `on_progress` is called after each step of a process."""
        while self._due:
            self._step()
            on_progress()

    def overlap(self) -> None:
        """Run the next process now if it is due within OVERLAP_S and a slot is free."""
        if self._due and self._due[0][0] <= self.now_s + OVERLAP_S and len(self._busy) < len(self._slots):
            self.overlaps += 1
            self._step()

    def _step(self) -> None:
        at_s, _, home_slot, process = heapq.heappop(self._due)
        self.now_s = max(self.now_s, at_s)
        free = [slot for slot in (self._slots[home_slot], *self._slots) if slot not in self._busy]
        self._busy.append(free[0])
        try:
            next_s = next(process, None)
        finally:
            self._busy.pop()
        if next_s is not None:
            self.start(process, next_s, home_slot)

    def run_inline(self, skew_s: float, process: Process[Result]) -> Process[Result]:
        """Run a process with its own clock skew, as part of the calling process."""
        while True:
            slot = self.slot
            before, slot.skew_s = slot.skew_s, skew_s
            try:
                next_s = next(process)
            except StopIteration as ended:
                result: Result = ended.value
                return result
            finally:
                slot.skew_s = before
            yield next_s
