"""A decision: what was asked, everything that was considered, what was chosen and what was refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from shoestring.config.policy import Arm, CandidatePolicy, Preferences
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import IMAGES, CommittedHours
from shoestring.core.attempt_id import AttemptId
from shoestring.core.money import Usd, usd
from shoestring.core.record import SCHEMA_VERSION, Record
from shoestring.core.types import (
    STANDARD_CLASS,
    Format,
    FormatSpeed,
    LearnedSpeed,
    Market,
    Need,
    Placement,
    Pool,
    Quote,
    RejectedPrice,
    StockOut,
    StorageClassName,
)
from shoestring.routing.candidates import NONE, ArrayRecord, IntArray
from shoestring.routing.candidates import Candidates as Candidates
from shoestring.routing.candidates import RefusalCode as RefusalCode
from shoestring.routing.dag import UpstreamStage as UpstreamStage
from shoestring.routing.dag import build_dag

NOTHING = usd("0")


class CachedOutcome(Record):
    """The result of a later stage that is there already; of what it reads that is the result before it."""

    outcome: str
    format: Format | None = Field(None, description="None: it is no data set")
    storage_class: StorageClassName = STANDARD_CLASS


class Question(Record):
    """Everything a choice rests on; `decide` looks at nothing else.

    `needs` holds this stage and then every stage that remains, none before one that it comes after (routing/shape.py); at most one of
    them is elastic. `given` holds those that they come after and that remain no more. `row_bytes` and `reads_format` are
    of the data set that this stage is given (None: not one of ours, its reading is priced in the need). `cached_format` is the format
    of the cached outcome's data set. `reads_storage_class` and `cached_storage_class` are the storage classes that these lie on. `speeds` has to hold every
    format named here, and at least one if a stage writes.
    """

    run_id: str
    stage: str
    attempt: int = 1
    seed: int
    asked_at: AwareDatetime
    needs: tuple[Need, ...] = Field(min_length=1)
    rows: int = Field(ge=0)
    row_bytes: int = Field(ge=0)
    reads_format: Format | None = None
    reads_storage_class: StorageClassName = STANDARD_CLASS
    given: tuple[UpstreamStage, ...] = Field((), exclude_if=lambda given: not given)
    data_region: str = "local"
    cached_outcome: str | None = None
    cached_format: Format | None = None
    cached_storage_class: StorageClassName = STANDARD_CLASS
    cached_later_stages: tuple[CachedOutcome, ...] = Field(
        (), description="of a chain whose first stage is cached: of the stages after it, in order"
    )
    budget_usd: Usd
    spent_usd: Usd = NOTHING
    held_usd: Usd = NOTHING
    stage_budgets: dict[str, Usd] = Field({}, description="only those that a person declared")
    deadline_left_s: float | None = Field(None, allow_inf_nan=False)
    pools: tuple[Pool, ...]
    quotes: tuple[Quote, ...]
    rejected_prices: tuple[RejectedPrice, ...] = ()
    commitments: tuple[CommittedHours, ...] = Field(
        (), description="what is paid for already of pools, and not used yet"
    )
    stockouts: tuple[StockOut, ...] = Field((), description="those that are still remembered at asked_at")
    tariffs: Tariffs = Tariffs()
    speeds: tuple[FormatSpeed, ...] = ()
    learned: tuple[LearnedSpeed, ...] = ()
    exploration_sd: float = Field(
        0.0,
        ge=0,
        exclude_if=lambda sd: sd == 0,
        description="of an elastic stage: by how many standard deviations it takes a place for better than it is known to be; 0: none",
    )
    images: dict[str, str] = IMAGES
    preferences: Preferences = Field(Preferences(), description="of the policy in force")
    candidate: CandidatePolicy | None = Field(None, description="the policy on trial beside it")
    rollback_reason: str = Field(
        "", description="why no run obeys the candidate any more; empty: none has overspent"
    )
    notes: tuple[str, ...] = Field(
        (), description="what a reader has to know of how this was asked; for the page alone"
    )
    digests: dict[str, str] = Field(
        {}, description="sha256 of the world, recipe, ... that this was made from"
    )

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt that the question is about. The ledger and the store name its records by it."""
        return AttemptId(self.run_id, self.stage, self.attempt)

    @property
    def arm(self) -> Arm:
        return self.candidate.arm_of(self.run_id, self.rollback_reason) if self.candidate else "live"

    @property
    def active_policy(self) -> Preferences:
        """The policy that this run obeys."""
        return self.candidate.policy if self.candidate and self.arm == "candidate" else self.preferences

    def commitment(self, pool: str, market: Market) -> CommittedHours | None:
        """What is paid for already of a place."""
        return next((each for each in self.commitments if (each.pool, each.market) == (pool, market)), None)

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if self.needs[0].stage != self.stage:
            raise ValueError(
                f"the question is about {self.stage}, its first need about {self.needs[0].stage}"
            )
        if sum(need.elastic for need in self.needs) > 1:
            raise ValueError("more than one elastic stage: they could not share what is left")
        build_dag(self.needs, self.given)
        known = {speed.format for speed in self.speeds}
        lie_in = (
            {self.reads_format, self.cached_format}
            | {each.format for each in self.given}
            | {each.format for each in self.cached_later_stages}
        )
        if missing := lie_in - known - {None}:
            raise ValueError(f"no speed for {', '.join(sorted(map(str, missing)))}: probe the volume first")
        if not known and any(need.writes_bytes_per_row for need in self.needs):
            raise ValueError(
                "a stage writes a data set and there is no speed of any format: probe the volume first"
            )
        return self


class Choice(Record):
    """The offer taken. `format` is what this stage writes, on the storage class `storage_class`; `keep_usd` is set aside for the stages after it."""

    pool: str
    market: Market
    format: Format | None
    candidate: int = Field(NONE, description="its number; -1: recorded before candidates were numbered so")
    usd_per_hour: Usd
    est_usd: Usd
    p95_usd: Usd
    est_s: float
    p95_s: float
    prior_s: float
    fixed_s: float = Field(description="the part of prior_s that does not grow with the samples")
    samples: int
    budget_usd: Usd
    keep_usd: Usd
    cached: bool
    objective: Literal["min-cost", "max-samples"]
    sentence: str
    transfer_in_usd: Usd = Field(
        NOTHING,
        exclude_if=lambda paid: not paid,
        description="of its price, for bringing what it reads off its shelf and to where it runs",
    )
    transfer_out_usd: Usd = Field(
        NOTHING, exclude_if=lambda paid: not paid, description="for bringing what it writes to the store"
    )
    stored_usd: Usd = Field(NOTHING, exclude_if=lambda paid: not paid, description="for holding that there")
    storage_class: StorageClassName = STANDARD_CLASS

    @property
    def fees_usd(self) -> Decimal:
        """What it pays beside its pod's time, when it is done."""
        return self.transfer_in_usd + self.transfer_out_usd + self.stored_usd

    def incurred_usd(self, *, done: bool) -> Decimal:
        """What of that an attempt that began owes: one that is not done has read, and left nothing."""
        return self.fees_usd if done else self.transfer_in_usd

    def prior_s_of(self, samples: int) -> float:
        """Seconds the prior predicts for what was done, to compare a receipt's seconds with: an elastic stage's so many samples,
        a fixed stage's all. 0 when cached."""
        if self.objective == "min-cost" or not self.samples:
            return self.prior_s
        return self.fixed_s + (self.prior_s - self.fixed_s) * samples / self.samples


class PlannedStage(Record):
    """What a later stage is expected to take, and what is set aside for it (an elastic stage: for its least)."""

    stage: str
    pool: str
    market: Market
    format: Format | None
    est_usd: Usd
    est_s: float
    keep_usd: Usd
    keep_s: float
    storage_class: StorageClassName = STANDARD_CLASS


class Refusal(Record):
    """A candidate of this stage that was not taken."""

    candidate: int
    code: RefusalCode
    sentence: str


class Policy(Record):
    """The constants that the code used. Written by it, never read back: a replay by other constants differs here."""

    version: int
    constants: dict[str, str]
    sha256: str


class AppliedPolicy(Record):
    """The policy that a choice was made by, and how likely its run was to be given it."""

    name: str
    version: int
    sha256: str
    arm: Arm = "live"
    propensity: float = 1.0


class ShadowChoice(Record):
    """What the other of the two policies would have chosen; nothing is done about it. `pool` is None where nothing would fit."""

    name: str
    version: int
    sha256: str
    arm: Arm
    same: bool = Field(description="it chooses the same offer")
    pool: str | None = None
    market: Market | None = None
    format: Format | None = None
    samples: int = 0
    est_usd: Usd = NOTHING
    p95_usd: Usd = NOTHING
    est_s: float = 0.0
    sentence: str = ""
    storage_class: StorageClassName = STANDARD_CLASS


class Decision(ArrayRecord):
    """The artifact. `choice` is None when nothing fits; then `smallest_budget_usd` is what would, None when no budget would.

    `code` says of each candidate of this stage why it was not taken, as a number in `codes`, -1 for the one that was. `refusals` says
    it in sentences, of those that a page shows first.
    """

    schema_version: Literal[3] = SCHEMA_VERSION
    question: Question
    candidates: Candidates
    choice: Choice | None
    plan: tuple[PlannedStage, ...]
    codes: tuple[RefusalCode, ...]
    code: IntArray
    refusals: tuple[Refusal, ...]
    smallest_budget_usd: Usd | None
    optimality_gap_ppm: int | None = Field(
        0,
        exclude_if=lambda ppm: ppm == 0,
        description="of the best possible cost or samples, in millionths, what the choice may lack: stages that branch in too many ways to "
        "look at all; null: nothing was found, and it is not known that there is nothing",
    )
    placement: Placement | None
    policy: Policy
    obeyed: AppliedPolicy | None = Field(None, description="None: made before there were policy files")
    shadow: ShadowChoice | None = Field(None, description="by the other policy, where one is on trial")
    made_by: str
