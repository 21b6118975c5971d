"""Gather the samples of a block, and the time that each part of it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self

from shoestring.core.receipt import TimeShares
from shoestring.data.loading.samples import Positions, SampleReader, Samples


class Divisible(Protocol):
    """Rows that batches are parts of: `Samples`, or what a learner reads in their place."""

    def __len__(self) -> int: ...

    def part(self, start: int, stop: int) -> Self:
        """Return the rows from `start` to `stop`, as views."""
        ...

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Return one piece as it is, and several as a copy."""
        ...


class GatherSeconds(NamedTuple):
    """Seconds in which background threads read rows, decoded them, and moved them to a device."""

    read: float
    decode: float
    transfer: float = 0.0

    def plus(self, more: GatherSeconds) -> GatherSeconds:
        return GatherSeconds(*(one + other for one, other in zip(self, more, strict=True)))


NO_SECONDS = GatherSeconds(0.0, 0.0)


class GatheredSamples(NamedTuple):
    """The samples of a block, and what they took."""

    samples: Any
    seconds: GatherSeconds


def as_decoded(samples: Samples) -> Samples:
    return samples


def gather_samples(
    rows: SampleReader, samples: Positions, prepare: Callable[[Samples], Divisible] = as_decoded
) -> GatheredSamples:
    """Return samples of a split. `prepare`: what is made of them once they are decoded."""
    began_s = time.perf_counter()
    records = rows.read(samples)
    read_s = time.perf_counter()
    prepared = prepare(rows.collate(records))
    return GatheredSamples(prepared, GatherSeconds(read_s - began_s, time.perf_counter() - read_s))


class LoaderTimes(NamedTuple):
    """Seconds since the loader was opened: in all, those in which the trainer waited for rows, and those of
    the threads."""

    elapsed_s: float
    waited_s: float
    gathering: GatherSeconds

    def shares_since(self, earlier: LoaderTimes) -> TimeShares:
        """Return where the trainer's time went since then: it waited for reading, decoding and transfers in
        proportion to what they took."""
        elapsed_s = self.elapsed_s - earlier.elapsed_s
        waited = min(1.0, (self.waited_s - earlier.waited_s) / elapsed_s) if elapsed_s > 0 else 0.0
        took = [now - then for now, then in zip(self.gathering, earlier.gathering, strict=True)]
        parts = [each / sum(took) for each in took] if sum(took) else [1.0, 0.0, 0.0]
        read, decode, transfer = (round(waited * each, 4) for each in parts)
        compute = round(1 - read - decode - transfer, 4)
        return TimeShares(read=read, decode=decode, transfer=transfer, compute=compute)
