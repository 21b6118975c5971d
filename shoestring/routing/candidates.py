"""The candidates of a decision: every offer of every remaining stage, stored as integer cost factors.

A target is a pool on a market. An offer is a target, the format a stage reads and the format it writes.
Offers are not stored one by one: 10,000 targets x 6 formats read x 6 formats written are 360,000 offers a
stage, but only 10,000 prices, a few hundred kinds of machine and two rows of six formats. These factors are
rounded when they are computed, recorded, and only then multiplied (offers/offer_costs.py) and compared, so a
replay reproduces every offer exactly. Where the store has several storage classes, each (format, storage
class) pair counts as a format of its own, because storing and reading it has its own price.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from shoestring.core.record import Record, record_bytes
from shoestring.core.types import STANDARD_CLASS, Format, Market

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MS_PER_HOUR = 3_600_000
PPB = 1_000_000_000
BYTES_PER_GB = 1e9

UNKNOWN_SIZE_RATIO = 1.0
"""Bytes on disk for each byte of row, for a data set of unknown format."""

MAX_ESTIMATE = 10**15
"""Largest estimate in micro-dollars (a billion dollars) or milliseconds, so that sums fit 64 bits."""

MAX_US = 10**18
"""Largest duration in microseconds. At most a few of these are added before they are divided."""

MAX_PREEMPTIONS = 50.0
"""Largest number of expected preemptions of one offer. Above it the exponential would only overflow."""

NONE = -1
"""Index of no format, or of an unknown one: it selects the last element of a row, reserved for it."""

StoredFormats = tuple[tuple[Format, str], ...]
"""The ways a data set can be stored: a format on a storage class."""


def stored_format_index(stored_formats: StoredFormats, written: Format | None, storage_class: str) -> int:
    """Return the index of a stored format. A storage class without a price counts as the standard one."""
    if written is None:
        return NONE
    if (written, storage_class) in stored_formats:
        return stored_formats.index((written, storage_class))
    return stored_formats.index((written, STANDARD_CLASS))


def _parse_int_array(value: Any) -> Ints:
    """Parse integers from text ("1 2 3"), a list or an array.

    Raises:
        ValueError: it holds anything but integers in one dimension.
    """
    numbers = json.loads(f"[{value.replace(' ', ',')}]") if isinstance(value, str) else value
    array = np.array(numbers) if len(numbers) else np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind != "i":
        raise ValueError("expected integers separated by single spaces")
    return array.astype(np.int64, copy=False)


IntArray = Annotated[
    Ints,
    PlainValidator(_parse_int_array),
    PlainSerializer(lambda array: str(array.tolist())[1:-1].replace(",", ""), return_type=str),
    WithJsonSchema({"type": "string", "description": "integers separated by single spaces"}),
]


def round_up(values: Floats, maximum: int = MAX_ESTIMATE) -> Ints:
    """Round up to integers, capped at `maximum` so that they can be added without overflow."""
    whole = np.ceil(values)
    np.minimum(whole, maximum, out=whole)
    return whole.astype(np.int64)


class RefusalCode(StrEnum):
    """The reason why a candidate was not chosen."""

    TOO_LITTLE_MEMORY = "too-little-memory"
    NO_GPU = "no-gpu"
    TOO_LITTLE_GPU_MEMORY = "too-little-gpu-memory"
    NO_PRICE = "no-price"
    MARKET_NOT_DECLARED = "market-not-declared"
    NO_CAPACITY = "no-capacity"
    STOCK_OUT = "stock-out"
    POD_ELSEWHERE = "pod-elsewhere"
    MARKET_NOT_ALLOWED = "market-not-allowed"
    POOL_NOT_ALLOWED = "pool-not-allowed"
    HARDWARE_NOT_ALLOWED = "hardware-not-allowed"
    GPU_TYPE_NOT_ALLOWED = "gpu-type-not-allowed"
    PREEMPTION_RATE_NOT_ALLOWED = "preemption-rate-not-allowed"
    OVER_STAGE_BUDGET = "over-stage-budget"
    LATER_STAGE_INFEASIBLE = "later-stage-infeasible"
    OVER_BUDGET = "over-budget"
    OVER_DEADLINE = "over-deadline"
    OVER_BUDGET_OR_DEADLINE = "over-budget-or-deadline"
    MORE_EXPENSIVE = "more-expensive"
    FEWER_SAMPLES = "fewer-samples"
    TIED = "tied"


REFUSAL_CODES = tuple(RefusalCode)

POLICY_CODES = {
    "markets": RefusalCode.MARKET_NOT_ALLOWED,
    "pools": RefusalCode.POOL_NOT_ALLOWED,
    "hardware": RefusalCode.HARDWARE_NOT_ALLOWED,
    "gpus": RefusalCode.GPU_TYPE_NOT_ALLOWED,
    "max_preemptions_per_hour": RefusalCode.PREEMPTION_RATE_NOT_ALLOWED,
}
"""The code of each key of a workload class that can exclude a target. Another policy may allow it."""


def index_codes(numbers: npt.NDArray[np.integer[Any]]) -> tuple[tuple[RefusalCode, ...], Ints]:
    """Compress indices into REFUSAL_CODES (-1: none) to the codes that occur and indices into those."""
    counts = np.bincount(numbers + 1, minlength=len(REFUSAL_CODES) + 1)
    occurring = np.flatnonzero(counts[1:])
    index = np.full(len(counts), NONE)
    index[occurring + 1] = np.arange(len(occurring))
    return tuple(REFUSAL_CODES[each] for each in occurring.tolist()), index[numbers + 1]


class ArrayRecord(Record):
    """A record with array fields. Two of them are equal when they serialize to the same bytes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and record_bytes(self) == record_bytes(other)

    __hash__ = None  # type: ignore[assignment]


class CachedOffer(Record):
    """The cached result of a stage as one free offer, on the target where a pod starts at the lowest cost."""

    target: int
    reads: int
    writes: int


class StageOffers(ArrayRecord):
    """The cost factors of one stage's offers.

    `reads` and `writes` hold the indices of the formats it may find and leave; -1 is no format, or an unknown
    one. `exclusion` holds, by target, an index into `exclusions`; -1 means not excluded. Fields that end in
    `_by_machine` are indexed by kind of machine, `_by_format` by format with the unknown one last,
    `_by_region` by region and then by format. Transfer into a region includes retrieval from the storage
    class of the data set.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    samples: int
    min_samples: int
    checkpoint_ms: int = Field(description="0: a preempted attempt keeps nothing")
    gives_notice: bool = Field(
        True,
        exclude_if=lambda gives: gives,
        description="whether a preempted attempt can write a checkpoint at its end",
    )
    take_us: int = Field(description="random reads of all samples; included in the work")
    exclusions: tuple[RefusalCode, ...]
    exclusion: IntArray
    setup_us_by_machine: IntArray
    work_us_by_machine: IntArray
    min_work_us_by_machine: IntArray
    mean_ppb_by_machine: IntArray
    p95_ppb_by_machine: IntArray
    exploration_ppb_by_machine: IntArray = Field(
        np.zeros(0, dtype=np.int64),
        description="exploration bonus, as a share of the expected cost: what measuring the speed is worth",
    )
    scan_us_by_format: IntArray
    write_us_by_format: IntArray
    storage_microusd_by_format: IntArray
    transfer_in_microusd_by_region: IntArray
    transfer_out_microusd_by_region: IntArray
    cached: CachedOffer | None = None
    items: int = Field(
        1, exclude_if=lambda items: items == 1, description="of a loop: the stage's price counts for each"
    )
    rounds: int = Field(
        1, exclude_if=lambda rounds: rounds == 1, description="in which its items run, one after another"
    )


class Candidates(ArrayRecord):
    """All offers of all remaining stages, as cost factors.

    Targets are sorted by pool, then market; `pool`, `market` and `region` hold, by target, indices into the
    lists of names. Offers are numbered by stage, then target, then format read, then format written, with a
    cached result last in its stage.
    """

    stages: tuple[str, ...]
    pools: tuple[str, ...]
    markets: tuple[Market, ...]
    regions: tuple[str, ...]
    formats: tuple[Format, ...]
    storage_classes: tuple[str, ...] = Field(
        (),
        exclude_if=lambda classes: not classes,
        description="the storage class of each element of `formats`; empty: all are on the standard one",
    )
    pool: IntArray
    market: IntArray
    region: IntArray
    machine: IntArray = Field(
        description="kind of machine; machines of one kind do the same work in the same time"
    )
    usd_per_hour_micro: IntArray = Field(description="0: no accepted price")
    startup_ms: IntArray
    preemptions_ppb: IntArray = Field(description="preemptions in 1e9 hours")
    prepaid_ms: IntArray = Field(
        np.zeros(0, dtype=np.int64),
        description="time covered by a commitment; empty: there are no commitments",
    )
    offers: tuple[StageOffers, ...]

    @property
    def stored_formats(self) -> StoredFormats:
        """The formats, each with its storage class."""
        classes = self.storage_classes or (STANDARD_CLASS,) * len(self.formats)
        return tuple(zip(self.formats, classes, strict=True))

    def stored_format(self, index: int) -> tuple[Format | None, str]:
        """Return the format and storage class of a format index; no format for -1."""
        return self.stored_formats[index] if index >= 0 else (None, STANDARD_CLASS)

    def first_offer(self, stage: int) -> int:
        """Return the number of a stage's first offer; after the last stage, the count of all offers."""
        return sum(
            len(self.pool) * len(each.reads) * len(each.writes) + (each.cached is not None)
            for each in self.offers[:stage]
        )


def format_text(written: Format | None, storage_class: str) -> str:
    """Return a stored format as text: "parquet", "parquet on STANDARD_IA"; empty for no data set."""
    if written is None:
        return ""
    return f"{written} on {storage_class}" if storage_class != STANDARD_CLASS else str(written)


def offer_text(pool: str, market: Market, writes: Format | None, storage_class: str = STANDARD_CLASS) -> str:
    """Return an offer as text: "cpu-2 spot writing parquet"."""
    return f"{pool} {market}" + (f" writing {format_text(writes, storage_class)}" if writes else "")
