"""What those who run the cluster and those who pay for it have set, as data, and the stock-outs that one of the rules remembers."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import CarbonGrid, Guardrails
from shoestring.core.money import Usd, microusd, usd
from shoestring.core.record import Record, digest, record_bytes
from shoestring.core.types import Market, Pool, WorkloadKind

Arm = Literal["live", "candidate"]
Priority = Literal["low", "normal", "high"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HourlyPrice = Annotated[Usd, Field(ge=0, le=10_000)]
Glob = Annotated[str, Field(min_length=1)]


class WorkloadClass(Record):
    """What one kind of work may be placed on, and what an hour of waiting for it is worth. Nothing said: nothing kept out."""

    markets: tuple[Market, ...] | None = Field(
        None, min_length=1, description="the markets it may be bought on; null: any"
    )
    pools: tuple[Glob, ...] | None = Field(
        None, min_length=1, description="patterns like gpu-*, of pools or node pools; null: any"
    )
    hardware: Literal["any", "cpu", "gpu"] = Field(
        "any", description="cpu: never on a machine with GPUs; gpu: only on one"
    )
    gpus: tuple[Glob, ...] | None = Field(
        None, min_length=1, description="patterns of the GPU types that it may be given; null: any"
    )
    max_preemptions_per_hour: float | None = Field(
        None, ge=0, description="no pool that is taken away more often; null: any"
    )
    delay_usd_per_hour: HourlyPrice | None = Field(None, description="null: the policy's own")

    @model_validator(mode="after")
    def _leaves_something(self) -> Self:
        if self.hardware == "cpu" and self.gpus is not None:
            raise ValueError("hardware is cpu, so no GPU type can be named: leave out one of them")
        return self

    def violated_key(self, pool: Pool, market: Market) -> str:
        """Return the first key of this class that excludes a pool on a market; empty: none does."""
        if self is ANY_PLACEMENT:
            return ""
        if self.markets is not None and market not in self.markets:
            return "markets"
        if self.pools is not None and not matches_any((pool.name, pool.node_pool or ""), self.pools):
            return "pools"
        if self.hardware != "any" and (self.hardware == "gpu") != (pool.gpu_count > 0):
            return "hardware"
        if self.gpus is not None and pool.gpu_count and not matches_any((pool.gpu or "",), self.gpus):
            return "gpus"
        terms, maximum = pool.markets.get(market), self.max_preemptions_per_hour
        if maximum is not None and terms and terms.preemptions_per_hour > maximum:
            return "max_preemptions_per_hour"
        return ""


def matches_any(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Return whether one of the names matches one of the patterns, ignoring case."""
    return any(fnmatchcase(name.casefold(), each.casefold()) for name in names for each in patterns)


class Preferences(Record):
    """How places are chosen: the part of a policy that every decision holds, so that it can be made again."""

    name: str = Field("default", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="what decisions call it")
    version: int = Field(1, ge=1, description="raised by whoever changes it")
    delay_usd_per_hour: HourlyPrice = Field(
        usd("0"), description="what an hour less of a stage's time is worth, beside its price"
    )
    workload_classes: dict[WorkloadKind, WorkloadClass] = Field(
        {}, description="by kind of work: compute, data or memory"
    )

    @property
    def preferences(self) -> Preferences:
        """Themselves, without whatever else a policy file says."""
        if type(self) is Preferences:
            return self
        return Preferences.model_validate({name: getattr(self, name) for name in Preferences.model_fields})

    @property
    def sha256(self) -> str:
        return digest(record_bytes(self.preferences))

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    def delay_microusd_per_hour(self, kind: WorkloadKind) -> int:
        """Return what an hour of delay of this kind of work costs, in micro-dollars."""
        own = self.workload_class(kind).delay_usd_per_hour
        return microusd(self.delay_usd_per_hour if own is None else own)

    def workload_class(self, kind: WorkloadKind) -> WorkloadClass:
        return self.workload_classes.get(kind, ANY_PLACEMENT)


ANY_PLACEMENT = WorkloadClass()


class CandidatePolicy(Record):
    """Another policy on trial: beside the one in force, then for a share of the runs; out of the trial when its runs overspend."""

    policy: Preferences
    share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="of the runs, that obey it; 0: what it would choose is recorded, nobody obeys it",
    )
    max_overspend: float = Field(
        1.25,
        ge=1,
        description="times what its stages, or those of the policy in force, were expected to cost; beyond, it is rolled back",
    )
    min_runs: int = Field(5, ge=1, description="runs that have to be over before it is rolled back")

    def propensity(self, arm: Arm, rolled_back: str = "") -> float:
        """How likely a run is to be given the candidate, or the policy in force."""
        share = 0.0 if rolled_back else self.share
        return share if arm == "candidate" else 1.0 - share

    def arm_of(self, run_id: str, rolled_back: str = "") -> Arm:
        """Which of the two a run obeys: by a hash of its id and the candidate's title, so a share that is raised keeps the runs it had."""
        point = int(digest(f"{self.policy.title} {run_id}".encode())[:13], 16) / 16**13
        return "candidate" if point < self.propensity("candidate", rolled_back) else "live"


class MigrationPolicy(Record):
    """When an elastic stage that runs is stopped at a checkpoint and placed anew. Whatever runs the pipeline has to try it again."""

    check_every_s: float = Field(0.0, ge=0, description="seconds between two looks at prices; 0: never")
    saving_over_disruption: float = Field(
        2.0, ge=1, description="the relative saving has to be so many times what moving takes of it"
    )
    min_dwell_s: float = Field(600.0, ge=0, description="no move before so many seconds in a place")
    extra_saving_per_migration: float = Field(
        0.1, ge=0, description="relative saving needed besides, for each move that the run has made already"
    )
    max_migrations: int = Field(
        1, ge=0, description="in one run; each is an attempt, of which an engine makes only so many"
    )
    critical_phases: tuple[str, ...] = Field(
        (), description="phases in which nothing is moved, beside warm-up and decay"
    )


class PriceWindow(Record):
    """Hours of the week, in UTC, when prices or crowds are usually others. Where it ends before it begins, it lasts over midnight."""

    days: tuple[Day, ...] = Field(DAYS, min_length=1)
    from_hour: int = Field(ge=0, le=23)
    to_hour: int = Field(ge=0, le=24)
    price_factor: float = Field(1.0, gt=0, description="prices then, over prices outside all windows")
    peak: bool = Field(False, description="runs of low priority yield")

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.from_hour == self.to_hour:
            raise ValueError(
                f"it begins and ends at {self.from_hour}: a whole day is from_hour 0, to_hour 24"
            )
        return self


class StartPolicy(Record):
    """Whether a run starts now or later. It says nothing of prices that are paid: those are the book's, when it starts."""

    max_delay_s: float = Field(
        0.0, ge=0, le=7 * 86400, description="the longest that a start is put off; 0: never"
    )
    min_saving: float = Field(
        0.1, ge=0, le=1, description="share of its expected cost that a run has to save by waiting"
    )
    windows: tuple[PriceWindow, ...] = Field((), description="the first that is open counts")
    yield_to_queue: int = Field(
        0, ge=0, description="so many pods waiting for its pool, and a run of low priority waits; 0: never"
    )
    poll_s: float = Field(300.0, gt=0, description="how long it waits before it looks at the queue again")
    budget_wait_s: float = Field(
        0.0,
        ge=0,
        le=600,
        description="so long a router on a cluster waits, paid as overhead; else it refuses",
    )


class Policy(Preferences):
    """What a platform team lets a run do by itself (`policy.yaml`): the policy in force, and what else it says."""

    candidate: CandidatePolicy | None = Field(None, description="a policy on trial")
    queue_delay_s: float = Field(
        300.0, gt=0, description="seconds that a stage's pod may wait for a node; then it is routed again"
    )
    stockout_ttl_s: float = Field(
        900.0, ge=0, description="seconds that a node pool which took no pod in time is left out"
    )
    memory_growth: float = Field(
        1.5, ge=1, description="how much more memory a stage is given after it ran out of it"
    )
    pod_exit_s: float = Field(
        0.0, ge=0, description="seconds from a pod's last entry in the books to its end, for which it is paid"
    )
    heartbeat_s: float = Field(
        1.0,
        gt=0,
        description="seconds between a stage's signs of life, each of which the store may charge for",
    )
    migration: MigrationPolicy = MigrationPolicy()
    start: StartPolicy = StartPolicy()
    floating_markets: tuple[Market, ...] = Field(
        (Market.SPOT,),
        description="markets where a pod pays the price of the moment; elsewhere that of its decision holds",
    )
    adaptation_limits: AdaptationLimits = AdaptationLimits()
    guardrails: Guardrails = Guardrails()
    carbon_grids: dict[str, CarbonGrid] = Field(
        {}, description="by region; needed for a cap on CO2, and where there is one, receipts tell it"
    )
    abandoned_after_s: float = Field(
        3600.0,
        gt=0,
        description="seconds without a pod and without a word after which a run is held to be over",
    )

    @model_validator(mode="after")
    def _candidate_is_another(self) -> Self:
        if self.candidate and self.candidate.policy.title == self.title:
            raise ValueError(
                f"the candidate is called {self.title} like the policy in force: give it a version or a name of its own"
            )
        return self

    @model_validator(mode="after")
    def _knows_the_grid(self) -> Self:
        if self.guardrails.co2_g and not self.carbon_grids:
            raise ValueError(
                "guardrails.co2_g: no region's grid is known: name g_per_kwh and source in grids, by region"
            )
        return self
