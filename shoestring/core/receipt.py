"""The receipt of one attempt: its true time, cost and result."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, Field, model_validator

from shoestring.core.money import Usd, usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import Count, Record, StoredRecord
from shoestring.core.types import STANDARD_CLASS, Format, Market, StageOutcome, StorageClassName

Cause = Literal[
    "", "money", "stop-requested", "code", "memory", "store", "lost", "migrated", "guardrail", "silent"
]
"""Why an attempt did not finish; empty if it did.

A retry can help with all causes except money, code and guardrail.
"""


MAX_WAIT_SHARE = 0.1
"""A trainer that waits for rows for a larger share of its time is slowed down by them."""


class Hardware(Record):
    """The hardware that does a stage's per-row work on a pool: its cores, or GPUs of one type."""

    kind: Literal["cores", "gpu"]
    type: str = Field(description="the name of the GPU, or the speed of the core")
    count: int = Field(ge=1, description="number that the stage uses")
    gflop_s: float = Field(
        gt=0, description="1e9 operations/s of one: a GPU's peak, a core's useful operations"
    )
    gb_s: float = Field(0.0, ge=0, description="memory bandwidth of one GPU, 1e9 bytes/s; 0: unknown")

    @property
    def name(self) -> str:
        return f"{self.count} x {self.type}"


class PricePoint(Record):
    """The hourly price of a pod from one moment on."""

    at: AwareDatetime
    usd_per_hour: Usd


DeviceLever = Literal["precision", "micro-batch", "activations"]
"""What a device makes of a training's steps: it changes their speed and memory, not their plan."""

Lever = Literal["length", "validation", "batch", "pool", "guardrail"] | DeviceLever
"""The settings that a running stage may adapt, mildest first, the changes that a guardrail forces, and those
of a device."""


class AdaptationChange(Record):
    """One adaptation of a running stage, with its reason as a sentence with numbers."""

    at: AwareDatetime
    samples: Count
    lever: Lever
    before: str
    after: str
    reason: str

    @property
    def sentence(self) -> str:
        return f"at {self.samples:,} samples, {self.lever} {self.before} -> {self.after}: {self.reason}"


class SpendForecast(Record):
    """The forecast spend of a stage at its planned end, from its recent pace and the current price.

    `low_usd` and `high_usd` use the fastest and the slowest of the last windows. `needed_s` is the time to
    the planned end; `left_s` the time until the budget or the deadline ends.
    """

    planned_samples: Count
    samples_per_s: float
    usd: Usd
    low_usd: Usd
    high_usd: Usd
    limit_usd: Usd
    needed_s: float
    left_s: float | None = Field(description="null: neither ends it")


Bottleneck = Literal["read", "decode", "transfer", "compute"]


class TimeShares(Record):
    """Where the time of a trainer went: it waited for rows to be read, decoded into samples, or moved to its
    device, or computed.

    They add up to 1.
    """

    read: float
    decode: float
    transfer: float = 0.0
    compute: float

    @property
    def bottleneck(self) -> Bottleneck:
        """Computing, unless the trainer waited for more than a tenth of the time."""
        if self.compute >= 1 - MAX_WAIT_SHARE:
            return "compute"
        waits: tuple[Bottleneck, ...] = ("read", "decode", "transfer")
        return max(waits, key=self.share_of)

    def share_of(self, part: Bottleneck) -> float:
        return float(getattr(self, part))


class GpuUse(Record):
    """The use of all GPUs of an attempt, by their own counters."""

    busy: float | None = Field(
        description="mean share of the time in which a kernel ran on them; null: one reports none"
    )
    memory_bytes: int = Field(description="the memory that they have")
    peak_memory_bytes: int
    received_bytes: int | None = Field(
        description="moved to them over PCIe, from a reading of 20 ms each second; null: one reports none"
    )
    joules: float | None = Field(
        description="since the first reading; null: one reports neither energy nor power"
    )
    watts: float | None = Field(description="mean power; null: one reports none")
    energy_from: Literal["counter", "power"] | None = Field(
        description="joules are those of the energy counters, or the sum of readings of the power; null: none"
    )


class ResourceUsage(Record):
    """The resources that an attempt used, measured by its supervisor.

    `joules` of cores are an estimate: declared watts x utilisation. Those of GPUs are measured, where they
    report them.
    """

    joules: float = 0.0
    core_minutes: float = Field(0.0, description="minutes of one busy core")
    co2_g: float | None = Field(None, description="null: the carbon intensity of the region is unknown")


class Receipt(StoredRecord):
    """The true time, cost and result of one attempt at a stage. Later decisions learn from it."""

    run_id: str
    stage: str
    attempt: int
    pod: PodRef | None = Field(description="null: no pod began, or none is known")
    decision_key: str
    status: Literal["done", "failed", "stopped", "lost"]
    cause: Cause = ""
    reason: str = ""
    exit_code: int | None = Field(
        None,
        exclude_if=lambda code: code is None,
        description="of a command that failed by itself; null: for every other end",
    )
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
        0.0,
        description="predicted seconds for the work that was really done, before learning; 0: teaches "
        "nothing",
    )
    work: str = Field("", description="name of the work, by which speeds are learned")
    hardware: Hardware | None = Field(None, description="hardware that did the per-row work")
    spent_usd: Usd
    committed_usd: Usd = Field(
        usd("0"), description="part of its cost that a commitment had prepaid; not in spent_usd"
    )
    overrun_usd: Usd = Field(
        usd("0"), description="part of its cost that its account had no money for; not in spent_usd"
    )
    fees_usd: Usd = Field(
        usd("0"), description="part of spent_usd for data transfer and storage, not for time"
    )
    prices: tuple[PricePoint, ...] = Field(
        (), description="hourly prices of its pod, each from a moment on; empty: the decided price throughout"
    )
    policy_sha256: str = Field("", description="digest of the policy that chose the offer")
    candidate_sha256: str = Field("", description="digest of the candidate policy on trial; empty: none")
    live_policy_est_usd: Usd | None = Field(
        None,
        description="estimate of the live policy for its own choice; null: no offer fitted",
    )
    started_at: AwareDatetime
    finished_at: AwareDatetime
    seconds: float
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    gpu: GpuUse | None = Field(
        None, exclude_if=lambda use: use is None, description="null: it had none, or none was measured"
    )
    usage: ResourceUsage = ResourceUsage()
    changes: tuple[AdaptationChange, ...] = Field(
        (),
        description="its adaptations, in order, with those of the attempts that it resumed from",
    )
    forecast: SpendForecast | None = Field(
        None, description="the last forecast of the spend at its planned end"
    )
    outcome: StageOutcome | None = None
    ledger_head: str

    @model_validator(mode="before")
    @classmethod
    def _without_earlier_fields(cls, content: Any) -> Any:
        """Drop two fields of earlier versions that nothing has read."""
        if isinstance(content, dict):
            dropped = ("gpu_busy", "peak_gpu_memory_bytes")
            return {name: value for name, value in content.items() if name not in dropped}
        return content

    @property
    def is_learnable(self) -> bool:
        """True if the performance model can learn from it: it finished, or it migrated and its samples are
        known, and it did all of its work itself.
        """
        return (
            (self.status == "done" or self.cause == "migrated")
            and self.prior_s > 0
            and self.seconds > 0
            and not self.cache_hit
            and not (self.outcome and self.outcome.reused_rows)
        )
