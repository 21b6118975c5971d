"""Simulated time: processes that take turns, each with a clock and a store that may be wrong, late or interrupted.

A race is made where it happens: when a process is about to write an entry, another one's turn comes first, on a ledger of its own.
Everything follows from the seed.
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
"""A process: yields the moment, in seconds from the beginning, at which it goes on; returns what whoever waits for it is told."""

# Processes whose turns come so soon after one another may come in each other's way.
OVERLAP_S = 30.0


class ProcessDied(BaseException):
    """The process is gone in the middle of what it did. Nobody may catch it but whoever sees processes end."""


class ProcessSlot:
    """Where one process acts at a time: a ledger that remembers what it read, and how far the clock of whoever acts is off."""

    def __init__(self, loop: EventLoop, faults: FaultModel, store: Store, dice: Random) -> None:
        self.skew_s = 0.0
        self.ledger = Ledger(FaultyStore(loop, faults, store, dice), SimulatedClock(loop), "simulated", dice)


class SimulatedClock:
    """The clock of whoever acts."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return self._loop.moment(self._loop.now_s + self._loop.slot.skew_s)

    def monotonic_s(self) -> float:
        return self._loop.now_s

    def sleep(self, seconds: float) -> None:
        self._loop.now_s += seconds


class FaultyStore:
    """A store at each write to which whoever writes may be overtaken, or die, or be told that it failed."""

    def __init__(self, loop: EventLoop, faults: FaultModel, store: Store, dice: Random) -> None:
        self._loop, self._faults, self._store, self._dice = loop, faults, store, dice

    def fetch(self, key: str) -> Path:
        return self._store.fetch(key)

    def list(self, prefix: str) -> Iterator[str]:
        return self._store.list(prefix)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        faults, chance = self._faults, self._dice.random
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
    """Whose turn it is. A process goes back to its home slot where that is free, since the ledger there has read its account."""

    def __init__(
        self, starts_at: datetime, slots: int, faults: FaultModel, store: Store, dice: Random
    ) -> None:
        self.now_s = 0.0
        self.overlaps = 0
        self._starts_at = starts_at
        self._due: list[tuple[float, int, int, Process[None]]] = []
        self._started = 0
        self._slots = [ProcessSlot(self, faults, store, dice) for _ in range(slots)]
        self._busy: list[ProcessSlot] = []

    @property
    def slot(self) -> ProcessSlot:
        """The one where somebody acts now; between turns, the first."""
        return self._busy[-1] if self._busy else self._slots[0]

    @property
    def ledger(self) -> Ledger:
        return self.slot.ledger

    def ledger_of_slot(self, home: int) -> Ledger:
        """The ledger of a home slot."""
        return self._slots[home % len(self._slots)].ledger

    def moment(self, seconds: float) -> datetime:
        return self._starts_at + timedelta(microseconds=round(seconds * 1e6))

    def start(self, steps: Process[None], at_s: float, home: int = 0) -> None:
        self._started += 1
        heapq.heappush(self._due, (at_s, self._started, home % len(self._slots), steps))

    def run(self, on_progress: Callable[[], object]) -> None:
        """Until nobody has anything to do any more. `on_progress`: called after each turn."""
        while self._due:
            self._turn()
            on_progress()

    def overlap(self) -> None:
        """Give whoever is next a turn now, if there is one soon and a slot for it."""
        if self._due and self._due[0][0] <= self.now_s + OVERLAP_S and len(self._busy) < len(self._slots):
            self.overlaps += 1
            self._turn()

    def _turn(self) -> None:
        at_s, _, home, steps = heapq.heappop(self._due)
        self.now_s = max(self.now_s, at_s)
        free = [slot for slot in (self._slots[home], *self._slots) if slot not in self._busy]
        self._busy.append(free[0])
        try:
            next_s = next(steps, None)
        finally:
            self._busy.pop()
        if next_s is not None:
            self.start(steps, next_s, home)

    def as_process(self, skew_s: float, steps: Process[Result]) -> Process[Result]:
        """These steps by a process of its own, whose clock is off by so much."""
        while True:
            slot = self.slot
            before, slot.skew_s = slot.skew_s, skew_s
            try:
                next_s = next(steps)
            except StopIteration as ended:
                result: Result = ended.value
                return result
            finally:
                slot.skew_s = before
            yield next_s
