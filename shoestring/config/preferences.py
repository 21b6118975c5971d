"""Placement preferences: constraints by workload class, the price of delay, and a policy on trial."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shoestring.core.money import Usd, microusd, usd
from shoestring.core.record import Record, digest, record_bytes
from shoestring.core.types import Market, Pool, WorkloadKind

Arm = Literal["live", "candidate"]
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
    min_sample_share: float = Field(
        0.95,
        gt=0,
        le=1,
        description="an elastic stage compares, by dollars for each sample, the plans that buy at least this "
        "share of the most samples; 1: it always takes the most",
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
        of_class = self.workload_class(kind).delay_usd_per_hour
        return microusd(self.delay_usd_per_hour if of_class is None else of_class)

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
