"""What one attempt at a stage really took."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core.money import Usd, usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import STANDARD_CLASS, Format, Hardware, Market, StageOutcome, StorageClassName

Cause = Literal["", "money", "stop-requested", "code", "memory", "store", "lost", "migrated", "guardrail"]
"""Why an attempt was not done: trying again may help with all but money, code and guardrail. Empty when it was done."""


class PricePoint(Record):
    """What a pod costs an hour, from a moment on."""

    at: AwareDatetime
    usd_per_hour: Usd


Lever = Literal["length", "looks", "batch", "pool", "guardrail"]
"""What a running stage may change of itself, gentlest first; and what a guardrail made it do."""


class AdaptationChange(Record):
    """What a running stage changed of itself, and the sentence that says why, with the numbers."""

    at: AwareDatetime
    samples: int
    lever: Lever
    before: str
    after: str
    reason: str

    @property
    def sentence(self) -> str:
        return f"at {self.samples:,} samples, {self.lever} {self.before} -> {self.after}: {self.reason}"


class SpendForecast(Record):
    """What a stage will have spent at its planned end, by its recent pace and the price now.

    `low_usd` and `high_usd`: by the quickest and the slowest of the last windows. `needed_s`: from now to there; `left_s`: until the
    money or the time ends.
    """

    planned_samples: int
    samples_per_s: float
    usd: Usd
    low_usd: Usd
    high_usd: Usd
    limit_usd: Usd
    needed_s: float
    left_s: float | None = Field(description="null: nothing ends it")


class ResourceUsage(Record):
    """What a stage's attempt used beside money, by its frame. `joules` are reckoned, not metered: declared watts by the cores' use."""

    joules: float = 0.0
    core_minutes: float = Field(0.0, description="of one core at work")
    co2_g: float | None = Field(None, description="null: the region's grid is not known")


class Receipt(StoredRecord):
    """What one attempt at a stage really took. It teaches the next decision."""

    run_id: str
    stage: str
    attempt: int
    pod: PodRef | None = Field(description="null: no pod began, or none is known")
    decision_key: str
    status: Literal["done", "failed", "stopped", "lost"]
    cause: Cause = ""
    reason: str = ""
    pool: str
    market: Market
    format: Format | None
    storage_class: StorageClassName = STANDARD_CLASS
    cache_hit: bool
    budget_usd: Usd
    est_usd: Usd
    p95_usd: Usd
    est_s: float
    prior_s: float = Field(
        0.0, description="seconds the prior predicts for what was really done; 0 = teaches nothing"
    )
    work: str = Field(
        "", description="what the stage did; empty in what was written before that was told apart"
    )
    hardware: Hardware | None = Field(
        None, description="what did its per-row work; None in what was written before that was kept"
    )
    spent_usd: Usd
    committed_usd: Usd = Field(
        usd("0"), description="of what it took, paid for by a commitment and so not spent"
    )
    fees_usd: Usd = Field(
        usd("0"), description="of what it spent, for moving its data and holding what it wrote: not for time"
    )
    prices: tuple[PricePoint, ...] = Field(
        (), description="what its pod cost an hour, each from when on; empty: as was decided, all along"
    )
    policy_sha256: str = Field("", description="of the policy that its place was chosen by")
    candidate_sha256: str = Field(
        "", description="of the policy that was on trial for a share of the runs; empty: none was"
    )
    live_policy_est_usd: Usd | None = Field(
        None,
        description="what the policy in force expected of its own choice; None: nothing would have fitted",
    )
    started_at: AwareDatetime
    finished_at: AwareDatetime
    seconds: float
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    gpu_busy: float | None = Field(
        None, description="share of the time in which its GPUs computed, as NVML says; None: nobody measured"
    )
    peak_gpu_memory_bytes: int = 0
    usage: ResourceUsage = ResourceUsage()
    changes: tuple[AdaptationChange, ...] = Field(
        (),
        description="what it changed of itself, in order; those of earlier attempts that it went on from included",
    )
    forecast: SpendForecast | None = Field(
        None, description="the last one, of what it would have spent at its planned end"
    )
    outcome: StageOutcome | None = None
    ledger_head: str

    @property
    def teaches(self) -> bool:
        """Can its time be held against the prior's: it did all its work, or was moved and its samples are known."""
        return (
            (self.status == "done" or self.cause == "migrated")
            and self.prior_s > 0
            and self.seconds > 0
            and not self.cache_hit
        )
