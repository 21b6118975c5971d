"""The policy of a platform team: preferences, trials, migration, start times, guardrails, retention."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import CarbonGrid, Guardrails
from shoestring.config.preferences import CandidatePolicy, Preferences
from shoestring.config.retention import RetentionPolicy
from shoestring.core.record import Record
from shoestring.core.types import Market

Priority = Literal["low", "normal", "high"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class MigrationPolicy(Record):
    """The conditions under which a running elastic stage stops at a checkpoint and migrates to another offer.

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
    """The rules for when a run starts, now or later. It pays the prices of the price book at its start."""

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
    silent_intervals: float = Field(
        4.0,
        ge=2,
        description="heartbeat intervals (at least 10 s) without a heartbeat after which a stage is ended "
        "from outside",
    )
    migration: MigrationPolicy = MigrationPolicy()
    start: StartPolicy = StartPolicy()
    floating_markets: tuple[Market, ...] = Field(
        (Market.SPOT,),
        description="markets where a pod pays the current price; elsewhere the price of its decision applies",
    )
    max_price_factor: float = Field(
        10.0,
        ge=1,
        description="on those markets, a price above this many times the on-demand price of its decision is "
        "no price; spot has been seen at 10 times on-demand, where providers once allowed such bids",
    )
    unpriced_s: float = Field(
        5.0,
        ge=0,
        description="on those markets, seconds of an attempt without a readable price after which the "
        "on-demand price is charged, from the last readable price on",
    )
    retention: RetentionPolicy = Field(
        RetentionPolicy(), exclude_if=lambda retention: retention == RetentionPolicy()
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
