"""The question that a decision answers: its stages, budget, deadline, pools, prices and policy."""

from __future__ import annotations

from decimal import Decimal
from typing import Self

from pydantic import AwareDatetime, Field, model_validator

from shoestring.config.engines import EngineTimes
from shoestring.config.preferences import Arm, CandidatePolicy, Preferences, WorkloadClass
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import IMAGES, CommittedHours
from shoestring.core.attempt_id import AttemptId
from shoestring.core.money import Usd, usd
from shoestring.core.record import Record
from shoestring.core.text import join_names
from shoestring.core.types import (
    STANDARD_CLASS,
    Format,
    Market,
    Need,
    Pool,
    Quote,
    RejectedPrice,
    StockOut,
    StorageClassName,
    WorkloadKind,
)
from shoestring.pricing.format_speeds import NO_WAIT, FormatSpeed, StoreFetch, StoreWait
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.branches import ways
from shoestring.routing.dag import UpstreamStage, build_dag
from shoestring.routing.question_parts import (
    AppliedPolicy,
    CachedOutcome,
    ExistingPod,
    FamilyChoice,
    FamilyOption,
    stage_memory_gb,
    workload_kind,
)

ZERO_USD = usd("0")


class Question(Record):
    """Everything a choice rests on; `decide` reads nothing else.

    `needs` holds this stage and then every stage that still has to be routed, each behind those it waits for
    (routing/dag.py); at most one is elastic. `upstream` holds the stages they wait for that are already
    routed. `row_bytes`, `reads_format` and `reads_storage_class` describe the data set this stage reads
    (`reads_format` None: Shoestring did not write it, and the need prices its reading). `cached_format` and
    `cached_storage_class` describe the data set of the cached result. `speeds` must hold every format named
    here, and at least one if a stage writes.
    """

    run_id: str
    stage: str
    attempt: int = 1
    seed: int
    asked_at: AwareDatetime
    needs: tuple[Need, ...] = Field(min_length=1)
    pipeline: tuple[Need, ...] = Field(
        (),
        exclude_if=lambda needs: not needs,
        description="all that may still be routed, where `needs` are those of the dearest branches",
    )
    rows: int = Field(ge=0)
    row_bytes: int = Field(ge=0)
    reads_format: Format | None = None
    reads_storage_class: StorageClassName = STANDARD_CLASS
    upstream: tuple[UpstreamStage, ...] = Field((), exclude_if=lambda stages: not stages)
    data_region: str = "local"
    cached_outcome: str | None = None
    cached_format: Format | None = None
    cached_storage_class: StorageClassName = STANDARD_CLASS
    cached_later_stages: tuple[CachedOutcome, ...] = Field(
        (),
        description="in a chain whose first stage is cached: cached results of the stages after it",
    )
    families: tuple[FamilyOption, ...] = Field(
        (),
        exclude_if=lambda options: not options,
        description="the families of models that this training may choose among, the preferred first",
    )
    family: FamilyChoice | None = Field(
        None,
        exclude_if=lambda choice: choice is None,
        description="the chosen one, whose need is this stage's",
    )
    budget_usd: Usd
    spent_usd: Usd = ZERO_USD
    held_usd: Usd = ZERO_USD
    stage_budgets: dict[str, Usd] = Field({}, description="only the budgets that the user declared")
    deadline_left_s: float | None = Field(None, allow_inf_nan=False)
    deadline_used_s: float = Field(
        0.0,
        ge=0,
        exclude_if=lambda seconds: seconds == 0,
        description="seconds of the run's deadline that have passed, or are kept for the engine",
    )
    engine: EngineTimes | None = Field(
        None, exclude_if=lambda times: times is None, description="what the engine takes between stages"
    )
    engine_s: float = Field(
        0.0,
        ge=0,
        exclude_if=lambda seconds: seconds == 0,
        description="seconds that are kept for the engine; no part of deadline_left_s",
    )
    soft_left_s: float | None = Field(
        None,
        exclude_if=lambda seconds: seconds is None,
        description="seconds left to a soft deadline that the stage may miss; then no other applies",
    )
    existing_pod: ExistingPod | None = Field(
        None,
        exclude_if=lambda pod: pod is None,
        description="None: a pod will be created for the stage, wherever the decision places it",
    )
    pools: tuple[Pool, ...]
    quotes: tuple[Quote, ...]
    rejected_prices: tuple[RejectedPrice, ...] = ()
    commitments: tuple[CommittedHours, ...] = Field(
        (), description="prepaid hours of pools that are not used up yet"
    )
    stockouts: tuple[StockOut, ...] = Field((), description="stock-outs still in effect at asked_at")
    tariffs: Tariffs = Tariffs()
    speeds: tuple[FormatSpeed, ...] = ()
    fetching: StoreFetch | None = Field(None, exclude_if=lambda fetching: fetching is None)
    store_wait: StoreWait = Field(NO_WAIT, exclude_if=lambda wait: not wait.request_s)
    learned: tuple[LearnedSpeed, ...] = ()
    exploration_sd: float = Field(
        0.0,
        ge=0,
        exclude_if=lambda sd: sd == 0,
        description="standard deviations by which an elastic stage scores the speed of an unmeasured pool "
        "optimistically; 0: no exploration",
    )
    images: dict[str, str] = IMAGES
    preferences: Preferences = Field(Preferences(), description="of the live policy")
    candidate_policy: CandidatePolicy | None = Field(None, description="the policy on trial")
    rollback_reason: str = Field(
        "", description="why the candidate policy was rolled back; empty: it was not rolled back"
    )
    waited_s: float = Field(
        0.0,
        ge=0,
        exclude_if=lambda seconds: seconds == 0,
        description="seconds that its route step waited for a result of another run, or for money",
    )
    notes: tuple[str, ...] = Field((), description="remarks on how the question was built, for pages")
    digests: dict[str, str] = Field(
        {}, description="sha256 of the world, recipe and other inputs of the question"
    )

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt that the question is about. The ledger and the store name its records by it."""
        return AttemptId(self.run_id, self.stage, self.attempt)

    @property
    def arm(self) -> Arm:
        """The arm of the policy trial that this run belongs to."""
        return (
            self.candidate_policy.arm_of(self.run_id, self.rollback_reason)
            if self.candidate_policy
            else "live"
        )

    @property
    def active_policy(self) -> Preferences:
        """The policy that applies to this run."""
        candidate = self.candidate_policy
        return candidate.policy if candidate and self.arm == "candidate" else self.preferences

    @property
    def applied_policy(self) -> AppliedPolicy:
        """The active policy as the decision records it."""
        policy, candidate = self.active_policy, self.candidate_policy
        propensity = candidate.propensity(self.arm, self.rollback_reason) if candidate else 1.0
        return AppliedPolicy(
            name=policy.name,
            version=policy.version,
            sha256=policy.sha256,
            arm=self.arm,
            propensity=propensity,
        )

    @property
    def left_usd(self) -> Decimal:
        """The rest of the run's budget, before anything is reserved for later stages."""
        return self.budget_usd - self.spent_usd - self.held_usd

    @property
    def may_be_routed(self) -> tuple[Need, ...]:
        """This stage and all that may still be routed, those of other branches included."""
        return (self.needs[0], *(self.pipeline or self.needs)[1:])

    def of_way(self, way: tuple[Need, ...], reason: str) -> Question:
        """Return the question about one way through the branches of its pipeline."""
        taken = {need.stage for need in way}
        left_out = join_names([need.stage for need in self.needs if need.stage not in taken])
        notes = (*self.notes, f"planned without {left_out}: {reason}")
        return self.model_copy(update={"needs": way, "pipeline": self.needs, "notes": notes})

    def of_family(self, option: FamilyOption, reason: str) -> Question:
        """Return the question about a training of one of its families."""
        others = tuple(each for each in self.learned if each.stage != self.stage)
        return self.model_copy(
            update={
                "needs": (option.need, *self.needs[1:]),
                "family": FamilyChoice(name=option.name, reason=reason),
                "learned": others + option.learned,
                "cached_outcome": option.cached_outcome,
                "cached_later_stages": option.cached_later_stages,
                "digests": self.digests | {"cache": option.cache_key},
            }
        )

    def without_deadline(self) -> Question:
        """Return the question with a soft deadline that may be missed."""
        return self.model_copy(
            update={"deadline_left_s": None, "deadline_used_s": 0.0, "soft_left_s": self.deadline_left_s}
        )

    def pool(self, name: str) -> Pool:
        """Return the pool of this name. Raises KeyError: there is none."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise KeyError(f"the question has no pool {name}")

    def quote(self, pool: str, market: Market) -> Quote | None:
        """Return the price of a pool on a market; None: it has no accepted price."""
        return next((each for each in self.quotes if (each.pool, each.market) == (pool, market)), None)

    def commitment(self, pool: str, market: Market) -> CommittedHours | None:
        """Return the commitment that covers a pool on a market; None: there is none."""
        return next((each for each in self.commitments if (each.pool, each.market) == (pool, market)), None)

    def stockout(self, pool: Pool, market: Market) -> StockOut | None:
        """Return the stock-out that excludes a pool on a market; None: there is none."""
        target = (pool.node_pool or pool.name, market)
        return next((each for each in self.stockouts if (each.node_pool, each.market) == target), None)

    def memory_gb(self, need: Need) -> float:
        """Return the memory that a stage takes for the question's rows."""
        return stage_memory_gb(need, self.rows)

    def workload_kind(self, need: Need) -> WorkloadKind:
        """Return the kind of work of a stage on the question's rows."""
        return workload_kind(need, self.rows)

    def workload_class(self, need: Need) -> WorkloadClass:
        """Return the rules of the active policy for a stage's kind of work."""
        return self.active_policy.workload_class(self.workload_kind(need))

    def delay_microusd_per_hour(self, need: Need) -> int:
        """Return what an hour of delay of a stage costs by the active policy, in micro-dollars."""
        return self.active_policy.delay_microusd_per_hour(self.workload_kind(need))

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.needs[0].stage != self.stage:
            raise ValueError(
                f"the question is about {self.stage}, but its first need is {self.needs[0].stage}"
            )
        if any(sum(need.elastic for need in way) > 1 for way in ways(self.needs)):
            raise ValueError(
                "more than one elastic stage: Shoestring cannot divide what is left between them"
            )
        build_dag(self.needs, self.upstream)
        measured = {speed.format for speed in self.speeds}
        stored = (
            {self.reads_format, self.cached_format}
            | {each.format for each in self.upstream}
            | {each.format for each in self.cached_later_stages}
        )
        if missing := stored - measured - {None}:
            raise ValueError(f"no speed for {', '.join(sorted(map(str, missing)))}: probe the volume first")
        if not measured and any(need.writes_bytes_per_row for need in self.needs):
            raise ValueError("a stage writes a data set, but no format has a speed: probe the volume first")
        return self
