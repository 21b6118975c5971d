"""The decision: the question, its candidates, the choice, and why each other candidate was refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import Field

from shoestring.config.preferences import Arm
from shoestring.core.money import Usd
from shoestring.core.record import SCHEMA_VERSION, Record, SchemaVersion
from shoestring.core.types import STANDARD_CLASS, Format, Market, Need, Placement, StorageClassName
from shoestring.routing.candidates import NONE, ArrayRecord, Candidates, IntArray, RefusalCode
from shoestring.routing.dag import build_dag
from shoestring.routing.question import ZERO_USD, Question
from shoestring.routing.question_parts import AppliedPolicy


class Choice(Record):
    """The chosen offer. `format` is what this stage writes, on the storage class `storage_class`."""

    pool: str
    market: Market
    format: Format | None
    candidate: int = Field(NONE, description="number of the chosen candidate; -1: not recorded")
    usd_per_hour: Usd
    est_usd: Usd
    p95_usd: Usd
    est_s: float
    p95_s: float
    prior_s: float
    fixed_s: float = Field(description="the part of prior_s that does not grow with the samples")
    samples: int
    budget_usd: Usd
    reserved_later_usd: Usd = Field(description="reserved for the stages after this one")
    cached: bool
    objective: Literal["min-cost", "max-samples"]
    sentence: str
    transfer_in_usd: Usd = Field(
        ZERO_USD,
        exclude_if=lambda paid: not paid,
        description="part of the price: retrieving what it reads and moving it to the pool's region",
    )
    transfer_out_usd: Usd = Field(
        ZERO_USD,
        exclude_if=lambda paid: not paid,
        description="part of the price: moving what it writes to the store",
    )
    storage_usd: Usd = Field(
        ZERO_USD, exclude_if=lambda paid: not paid, description="part of the price: storing what it writes"
    )
    storage_class: StorageClassName = STANDARD_CLASS

    @property
    def fees_usd(self) -> Decimal:
        """The charges of a finished attempt for transfer and storage, apart from its pod's time."""
        return self.transfer_in_usd + self.transfer_out_usd + self.storage_usd

    def incurred_usd(self, *, done: bool) -> Decimal:
        """Return the fees that a started attempt owes. An unfinished one has written nothing."""
        return self.fees_usd if done else self.transfer_in_usd

    def prior_s_of(self, samples: int) -> float:
        """Return the seconds that the prior predicts for the work done, to compare with a receipt's seconds.

        The work is `samples` samples for an elastic stage and all of it for a fixed one. A cached result
        takes 0 s.
        """
        if self.objective == "min-cost" or not self.samples:
            return self.prior_s
        return self.fixed_s + (self.prior_s - self.fixed_s) * samples / self.samples


class PlannedStage(Record):
    """The plan for one later stage. `reserved_*` is for the fewest samples of an elastic stage."""

    stage: str
    pool: str
    market: Market
    format: Format | None
    est_usd: Usd
    est_s: float
    reserved_usd: Usd
    reserved_s: float
    storage_class: StorageClassName = STANDARD_CLASS


class Refusal(Record):
    """A candidate of this stage that was not chosen, with the reason."""

    candidate: int
    code: RefusalCode
    sentence: str


class Algorithm(Record):
    """The constants that the code used. A replay with other constants shows the difference."""

    algorithm_version: int
    constants: dict[str, str]
    sha256: str


class ShadowChoice(Record):
    """The choice of the other policy of a trial, without effect. `pool` is None where nothing fits."""

    name: str
    version: int
    sha256: str
    arm: Arm
    same: bool = Field(description="both policies choose the same offer")
    pool: str | None = None
    market: Market | None = None
    format: Format | None = None
    samples: int = 0
    est_usd: Usd = ZERO_USD
    p95_usd: Usd = ZERO_USD
    est_s: float = 0.0
    sentence: str = ""
    storage_class: StorageClassName = STANDARD_CLASS


class BothLimits(Record):
    """A budget, and a deadline in seconds from the start of the run."""

    budget_usd: Usd
    deadline_s: float


def is_none(value: object) -> bool:
    """Return True for None: such a field is left out of the record."""
    return value is None


class Decision(ArrayRecord):
    """The decision artifact.

    `choice` is None when nothing fits; then `smallest_budget_usd` is the smallest run budget that would be
    enough (None: no budget is enough). `refusal_index` holds, by candidate of this stage, an index into
    `refusal_codes`, and -1 for the chosen one. `refusals` explains the candidates that a page shows first.
    """

    schema_version: SchemaVersion = SCHEMA_VERSION
    question: Question
    candidates: Candidates
    choice: Choice | None
    plan: tuple[PlannedStage, ...]
    refusal_codes: tuple[RefusalCode, ...]
    refusal_index: IntArray
    refusals: tuple[Refusal, ...]
    smallest_budget_usd: Usd | None
    smallest_deadline_s: float | None = Field(
        None,
        exclude_if=is_none,
        description="seconds; where nothing fits: the smallest deadline of the run that would be enough with "
        "this budget",
    )
    smallest_both: BothLimits | None = Field(
        None,
        exclude_if=is_none,
        description="where neither limit is enough alone: the smallest budget, and the deadline for it",
    )
    fitting_items: int | None = Field(
        None, exclude_if=is_none, description="where nothing fits: the items of its loop that would"
    )
    nearest: int | None = Field(
        None,
        exclude_if=is_none,
        description="where nothing fits: the candidate whose plan exceeds the limits by the smallest share",
    )
    optimality_gap_ppm: int | None = Field(
        0,
        exclude_if=lambda ppm: ppm == 0,
        description="upper bound on the distance from the best cost or samples, in parts per million,"
        " where a DAG has too many plans to compare all; null: no plan was found, but one may exist",
    )
    placement: Placement | None
    algorithm: Algorithm
    applied_policy: AppliedPolicy | None = Field(
        None, description="None: written before policy files existed"
    )
    shadow: ShadowChoice | None = Field(None, description="by the other policy of a trial")
    made_by: str


def reserved_later_s(decision: Decision) -> float:
    """Return the P95 seconds reserved for the stages after this one: the longest path through them."""
    before = build_dag(decision.question.needs, decision.question.upstream).before
    path_s = [0.0] * len(before)
    for stage, later in reversed(list(enumerate(decision.plan, 1))):
        for each in before[stage]:
            path_s[each] = max(path_s[each], later.reserved_s + path_s[stage])
    return path_s[0]


def sample_unit(need: Need) -> str:
    """Return the name of a stage's samples, in the plural."""
    if not need.by_time:
        return "samples"
    return "TFLOP" if need.gpu == "must" else "core-seconds"
