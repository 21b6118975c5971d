"""The policy of a platform team: placement preferences, trials, migration, start times, guardrails."""

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
    """Placement constraints for one kind of work, and the cost of an hour of delay.

    A key that is left out constrains nothing.
    """

    markets: tuple[Market, ...] | None = Field(None, min_length=1, description="allowed markets; null: any")
    pools: tuple[Glob, ...] | None = Field(
        None, min_length=1, description="patterns of allowed pools or node pools, such as gpu-*; null: any"
    )
    hardware: Literal["any", "cpu", "gpu"] = Field(
        "any", description="cpu: only machines without GPUs; gpu: only machines with GPUs"
    )
    gpus: tuple[Glob, ...] | None = Field(
        None, min_length=1, description="patterns of allowed GPU types; null: any"
    )
    max_preemptions_per_hour: float | None = Field(
        None, ge=0, description="maximum preemption rate of a pool; null: any"
    )
    delay_usd_per_hour: HourlyPrice | None = Field(
        None, description="cost of one hour of delay in dollars; null: the policy's"
    )

    @model_validator(mode="after")
    def _allows_some_pool(self) -> Self:
        if self.hardware == "cpu" and self.gpus is not None:
            raise ValueError("hardware: cpu and gpus exclude each other: leave out one of them")
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
    """The placement preferences: the part of a policy that every decision records, so that it can be
    replayed.
    """

    name: str = Field("default", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="its name in decisions")
    version: int = Field(1, ge=1, description="increase it with every change")
    delay_usd_per_hour: HourlyPrice = Field(
        usd("0"),
        description="dollars that one hour less of a stage's time is worth, in addition to its price",
    )
    workload_classes: dict[WorkloadKind, WorkloadClass] = Field(
        {}, description="constraints by kind of work: compute, data or memory"
    )

    @property
    def preferences(self) -> Preferences:
        """Return the preferences alone, without the rest of a policy file."""
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
        """Return the cost of one hour of delay for this kind of work, in micro-dollars."""
        own = self.workload_class(kind).delay_usd_per_hour
        return microusd(self.delay_usd_per_hour if own is None else own)

    def workload_class(self, kind: WorkloadKind) -> WorkloadClass:
        return self.workload_classes.get(kind, ANY_PLACEMENT)


ANY_PLACEMENT = WorkloadClass()


class CandidatePolicy(Record):
    """A policy on trial: recorded next to the live policy, then applied to a share of the runs, rolled back
    if they overspend.
    """

    policy: Preferences
    share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of runs that follow it; 0: its choices are only recorded",
    )
    max_overspend: float = Field(
        1.25,
        ge=1,
        description="it is rolled back if its stages cost more than this multiple of their estimate, or of "
        "the live policy's",
    )
    min_runs: int = Field(5, ge=1, description="runs that must have ended before a rollback")

    def propensity(self, arm: Arm, rolled_back: str = "") -> float:
        """Return the probability that a run is assigned to an arm of the trial."""
        share = 0.0 if rolled_back else self.share
        return share if arm == "candidate" else 1.0 - share

    def arm_of(self, run_id: str, rolled_back: str = "") -> Arm:
        """Return the arm of a run, by a hash of its id and the candidate's title: a larger share keeps the
        runs of a smaller one.
        """
        point = int(digest(f"{self.policy.title} {run_id}".encode())[:13], 16) / 16**13
        return "candidate" if point < self.propensity("candidate", rolled_back) else "live"


class MigrationPolicy(Record):
    """When a running elastic stage stops at a checkpoint and migrates to another offer.

    The engine must retry the stage.
    """

    check_every_s: float = Field(0.0, ge=0, description="seconds between two checks of prices; 0: never")
    saving_over_disruption: float = Field(
        2.0,
        ge=1,
        description="minimum ratio of the relative saving to the share of time that the migration costs",
    )
    min_dwell_s: float = Field(600.0, ge=0, description="minimum seconds on a pool before a migration")
    extra_saving_per_migration: float = Field(
        0.1, ge=0, description="additional relative saving required for each earlier migration of the run"
    )
    max_migrations: int = Field(
        1, ge=0, description="maximum migrations of a run; each uses one of the engine's retries"
    )
    critical_phases: tuple[str, ...] = Field(
        (), description="training phases without migration, in addition to warm-up and decay"
    )


class PriceWindow(Record):
    """Hours of the week, in UTC, with other prices or load.

    A window that ends before it begins lasts over midnight.
    """

    days: tuple[Day, ...] = Field(DAYS, min_length=1)
    from_hour: int = Field(ge=0, le=23)
    to_hour: int = Field(ge=0, le=24)
    price_factor: float = Field(
        1.0, gt=0, description="prices in the window divided by prices outside all windows"
    )
    peak: bool = Field(False, description="runs with low priority do not start in it")

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if self.from_hour == self.to_hour:
            raise ValueError(
                f"it begins and ends at {self.from_hour}: write from_hour 0 and to_hour 24 for a whole day"
            )
        return self


class StartPolicy(Record):
    """When a run starts: now or later. The prices that it pays are those of the price book at its start."""

    max_delay_s: float = Field(
        0.0, ge=0, le=7 * 86400, description="maximum delay of a start in seconds; 0: no delay"
    )
    min_saving: float = Field(
        0.1, ge=0, le=1, description="minimum share of its expected cost that a run must save by a delay"
    )
    windows: tuple[PriceWindow, ...] = Field((), description="price windows; the first that is open applies")
    yield_to_queue: int = Field(
        0, ge=0, description="pending pods of its pool at which a run with low priority waits; 0: never"
    )
    poll_s: float = Field(300.0, gt=0, description="seconds between two reads of the queue")
    budget_wait_s: float = Field(
        0.0,
        ge=0,
        le=600,
        description="seconds that a route step on a cluster waits for money of other runs, billed as "
        "overhead; then it refuses",
    )


class Policy(Preferences):
    """The whole policy file (`policy.yaml`): the live preferences, and all other rules for runs."""

    candidate: CandidatePolicy | None = Field(None, description="a policy on trial")
    queue_delay_s: float = Field(
        300.0, gt=0, description="seconds that a stage's pod may wait for a node before it is routed again"
    )
    stockout_ttl_s: float = Field(
        900.0, ge=0, description="seconds that routers avoid a node pool that accepted no pod in time"
    )
    memory_growth: float = Field(
        1.5, ge=1, description="factor on the memory of a stage after it ran out of memory"
    )
    pod_exit_s: float = Field(
        0.0, ge=0, description="billed seconds between a pod's last ledger entry and its end"
    )
    heartbeat_s: float = Field(
        1.0,
        gt=0,
        description="seconds between two heartbeats of a stage; the store may charge for each",
    )
    migration: MigrationPolicy = MigrationPolicy()
    start: StartPolicy = StartPolicy()
    floating_markets: tuple[Market, ...] = Field(
        (Market.SPOT,),
        description="markets where a pod pays the current price; elsewhere the price of its decision applies",
    )
    adaptation_limits: AdaptationLimits = AdaptationLimits()
    guardrails: Guardrails = Guardrails()
    carbon_grids: dict[str, CarbonGrid] = Field(
        {}, description="carbon intensity by region; required for a cap on CO2, and recorded in receipts"
    )
    abandoned_after_s: float = Field(
        3600.0,
        gt=0,
        description="seconds without a pod and without a heartbeat after which a run counts as ended",
    )

    @model_validator(mode="after")
    def _candidate_is_another(self) -> Self:
        if self.candidate and self.candidate.policy.title == self.title:
            raise ValueError(
                f"the candidate has the same title as the live policy, {self.title}: give it another "
                "version or name"
            )
        return self

    @model_validator(mode="after")
    def _knows_the_grid(self) -> Self:
        if self.guardrails.co2_g and not self.carbon_grids:
            raise ValueError(
                "guardrails.co2_g needs the carbon intensity of a region: add g_per_kwh and source to "
                "carbon_grids, by region"
            )
        return self
