"""The parts of a question that it holds several of, or none, and what a need takes for its rows."""

from __future__ import annotations

from math import ceil

from pydantic import AwareDatetime, Field

from shoestring.config.preferences import Arm
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Market, Need, StorageClassName, WorkloadKind
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.candidates import BYTES_PER_GB

COMPUTE_US_PER_ROW = 10.0
"""A stage is compute-heavy from 10 us a row on a reference core: about ten times what reading takes."""

MEMORY_HEAVY_GB = 16.0
"""A stage is memory-heavy from 16 GB: more than a general-purpose machine has for four cores."""


class CachedOutcome(Record):
    """The cached result of a later stage. It was made from the result of the stage before it."""

    outcome: str
    format: Format | None = Field(None, description="None: the result is not a data set")
    storage_class: StorageClassName = STANDARD_CLASS


class AppliedPolicy(Record):
    """The policy that a choice was made by, and the probability that its run was assigned to it."""

    name: str
    version: int
    sha256: str
    arm: Arm = "live"
    propensity: float = 1.0


class ExistingPod(Record):
    """The pod that asks: its engine created it again for an earlier decision, so it cannot be placed."""

    decision_key: str = Field(description="the decision of the router that placed it")
    pool: str
    market: Market
    began_at: AwareDatetime | None = Field(
        None,
        exclude_if=lambda moment: moment is None,
        description="when a node accepted the pod of an external component; null: a supervisor asks from it",
    )


class FamilyOption(Record):
    """A family of models that a training may choose, with its need."""

    name: str
    need: Need
    enough_samples: int = Field(
        ge=0, description="with fewer samples, a family further back in the order is expected to be better"
    )
    learned: tuple[LearnedSpeed, ...] = Field((), description="of this training")
    cache_key: str = Field("", description="the key of its result; empty: not known")
    cached_outcome: str | None = None
    cached_later_stages: tuple[CachedOutcome, ...] = ()


class FamilyChoice(Record):
    """The chosen family, and the reason."""

    name: str
    reason: str


def stage_memory_gb(need: Need, rows: int) -> float:
    """Return the memory in GB that a stage needs for a number of rows."""
    return need.memory_fixed_gb + need.memory_bytes_per_row * rows / BYTES_PER_GB


def workload_kind(need: Need, rows: int) -> WorkloadKind:
    """Return the kind of work of a stage, where its need does not name one.

    compute: it can use a GPU, or takes COMPUTE_US_PER_ROW or more over all its passes;
    memory: otherwise, if it takes MEMORY_HEAVY_GB or more; data: otherwise.
    """
    if need.workload is not None:
        return need.workload
    if (
        need.gpu == "must"
        or need.gpu_flop_per_row > 0
        or need.cpu_us_per_row * need.passes >= COMPUTE_US_PER_ROW
    ):
        return "compute"
    return "memory" if stage_memory_gb(need, rows) >= MEMORY_HEAVY_GB else "data"


def sample_range(need: Need, rows: int) -> tuple[int, int]:
    """Return the fewest samples worth starting for, and all samples. For a fixed stage both are the same."""
    maximum = int(rows * need.passes)
    return (min(maximum, ceil(rows * need.min_passes)) if need.elastic else maximum), maximum
