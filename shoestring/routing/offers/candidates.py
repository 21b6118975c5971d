"""What was considered, as whole numbers: the factors that every offer's price is made of.

An offer is a slot (a pool on a market) that reads a data set in one format and writes one in another. What can be told apart is kept
apart: 10,000 slots x 6 formats read x 6 written are 360,000 offers a stage, made of 10,000 prices, as many machines as there are kinds,
and two rows of six. The factors are rounded when they are made, recorded, and only then multiplied (routing/priced) and compared.
Where the store has several storage classes, a format on each of them counts as one of its own: it holds and is read at other prices.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from shoestring.core.types import STANDARD_CLASS, Format, Market, Record, record_bytes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MS_PER_HOUR = 3_600_000
PPB = 1_000_000_000

MOST_MICRO = 10**15
"""Estimates stop here (a billion dollars, thirty thousand years), so that sums of them fit 64 bits."""

MOST_US = 10**18
"""Of which no more than a few are added before they are divided."""

MOST_LOSSES = 50.0
"""Expected preemptions beyond which an offer is hopeless and the exponential only overflows."""

NONE = -1
"""No format, or one that is not known. As an index it takes the last number of a row, which is made for it."""


Lies = tuple[tuple[Format, str], ...]
"""The ways in which a data set may lie in the store: a format, on a storage class."""


def number_of(lies: Lies, written: Format | None, storage_class: str) -> int:
    """A storage class that has no price counts as the standard one."""
    if written is None:
        return NONE
    return lies.index((written, storage_class)) if (written, storage_class) in lies else lies.index((written, STANDARD_CLASS))


def _column(value: Any) -> Ints:
    """Whole numbers from text ("1 2 3"), a list or an array. Raises ValueError."""
    numbers = json.loads(f"[{value.replace(' ', ',')}]") if isinstance(value, str) else value
    found = np.array(numbers) if len(numbers) else np.zeros(0, dtype=np.int64)
    if found.ndim != 1 or found.dtype.kind != "i":
        raise ValueError("not whole numbers with a blank between them")
    return found.astype(np.int64, copy=False)


Column = Annotated[
    Ints,
    PlainValidator(_column),
    PlainSerializer(lambda column: str(column.tolist())[1:-1].replace(",", ""), return_type=str),
    WithJsonSchema({"type": "string", "description": "whole numbers with a blank between them"}),
]


def up(values: Floats, most: int = MOST_MICRO) -> Ints:
    """Rounded up to whole numbers that are small enough to add."""
    whole = np.ceil(values)
    np.minimum(whole, most, out=whole)
    return whole.astype(np.int64)


class Reason(StrEnum):
    """Why a candidate was not taken."""

    MEMORY = "memory"
    NO_GPU = "no-gpu"
    GPU_MEMORY = "gpu-memory"
    NO_PRICE = "no-price"
    NO_TERMS = "no-terms"
    NO_ROOM = "no-room"
    STOCKED_OUT = "stocked-out"
    MARKET = "market-not-allowed"
    POOL = "pool-not-allowed"
    HARDWARE = "hardware-not-allowed"
    GPU_TYPE = "gpu-type-not-allowed"
    PREEMPTIONS = "preempted-too-often"
    STAGE_BUDGET = "stage-budget"
    LATER_STAGE = "later-stage"
    BUDGET = "budget"
    DEADLINE = "deadline"
    BUDGET_AND_DEADLINE = "budget-and-deadline"
    COSTLIER = "costlier"
    FEWER_SAMPLES = "fewer-samples"
    TIE = "tie"


class Columns(Record):
    """A noun that holds arrays: equal when it is written down alike."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and record_bytes(self) == record_bytes(other)

    __hash__ = None  # type: ignore[assignment]


class Cached(Record):
    """The outcome that is there already: one free offer, on the slot where a pod's start is cheapest."""

    slot: int
    reads: int
    writes: int


class StageOffers(Columns):
    """The factors of one stage's offers. `reads` and `writes` number the formats it may find and leave; -1 is no format, or an unknown one.

    `objection` goes by slot and numbers `objections`; -1 is none. Of the rest, what ends in `_by_machine` goes by kind of machine,
    `_by_format` by format with the unknown one last, `_by_region` by region and, inside one, by format. What is moved `into` a region is
    read off its storage class, too, at that one's price.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    samples: int
    least_samples: int
    checkpoint_ms: int = Field(description="0: nothing is kept when it is preempted")
    takes_us: int = Field(description="random takes of all samples; a part of the work")
    objections: tuple[Reason, ...]
    objection: Column
    setup_us_by_machine: Column
    work_us_by_machine: Column
    least_work_us_by_machine: Column
    mean_ppb_by_machine: Column
    p95_ppb_by_machine: Column
    worth_ppb_by_machine: Column = Field(
        np.zeros(0, dtype=np.int64),
        description="of the expected cost: what finding out how fast it is here is worth; of fixed work alone",
    )
    scan_us_by_format: Column
    write_us_by_format: Column
    storage_microusd_by_format: Column
    into_microusd_by_region: Column
    out_microusd_by_region: Column
    cached: Cached | None = None


class Candidates(Columns):
    """All offers for all remaining stages, by their factors. Slots are sorted by pool, then market; `pool`, `market`, `region` number the
    lists of names. An offer's number counts stages, then slots, then formats read, then written, a cached outcome last in its stage."""

    stages: tuple[str, ...]
    pools: tuple[str, ...]
    markets: tuple[Market, ...]
    regions: tuple[str, ...]
    formats: tuple[Format, ...]
    tiers: tuple[str, ...] = Field(
        (),
        exclude_if=lambda tiers: not tiers,
        description="the storage class of each of the formats; empty: all are on the standard one",
    )
    pool: Column
    market: Column
    region: Column
    machine: Column = Field(description="machines of one kind take the same time for the same work")
    usd_per_hour_micro: Column = Field(description="0: no price that is believed")
    startup_ms: Column
    preemptions_ppb: Column = Field(description="preemptions in 1e9 hours")
    free_ms: Column = Field(
        np.zeros(0, dtype=np.int64), description="for how long it is paid for already; empty: nothing is"
    )
    offers: tuple[StageOffers, ...]

    @property
    def lies(self) -> Lies:
        """The formats, each with its storage class."""
        return tuple(zip(self.formats, self.tiers or (STANDARD_CLASS,) * len(self.formats), strict=True))

    def lying(self, number: int) -> tuple[Format | None, str]:
        """What a number of a format stands for."""
        return self.lies[number] if number >= 0 else (None, STANDARD_CLASS)

    def first(self, stage: int) -> int:
        """The number of a stage's first offer; of the stage after the last: how many offers there are."""
        return sum(
            len(self.pool) * len(each.reads) * len(each.writes) + (each.cached is not None)
            for each in self.offers[:stage]
        )
