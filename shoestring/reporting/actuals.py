"""Estimate against actual, by stage, GPU type, pool, market or campaign, and the dollars that bought no
computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import fmean, median, pvariance
from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core.attempt_id import declared_stage
from shoestring.core.money import Usd, from_microusd
from shoestring.core.receipt import Receipt
from shoestring.core.record import Record, StoredRecord
from shoestring.reporting.charges import Charge, ChargeParts

GroupBy = Literal["stage", "gpu", "pool", "market", "campaign"]
NO_GPU = "none"


class IdleCost(Record):
    """Money that bought no computation."""

    startup_usd: Usd = Field(
        description="time outside the attempts' own seconds: from the node taking the pod to the first line, "
        "and the exit"
    )
    idle_cores_usd: Usd = Field(
        description="cores that did nothing during attempts; measured on pools without a GPU"
    )
    idle_gpus_usd: Usd = Field(
        from_microusd(0), description="GPUs on which no kernel ran during attempts, where they report it"
    )
    lost_usd: Usd = Field(description="failed and lost attempts of stages without checkpoints")

    @property
    def unused_usd(self) -> Usd:
        """Cores and GPUs that did nothing during attempts."""
        return self.idle_cores_usd + self.idle_gpus_usd


class GpuActuals(Record):
    """The use of GPUs by a group of attempts, as they reported it."""

    attempts: int = Field(description="attempts whose GPUs were read")
    seconds: float = Field(description="of those that report how busy they were")
    kernel_s: float = Field(description="seconds in which a kernel ran on them; the others were idle")
    received_gb: float = Field(description="moved to them over PCIe, as far as it is reported")
    peak_memory_share: float | None = Field(description="the highest share of their memory in use")
    joules: float = Field(description="as far as they report it")
    watts: float | None = Field(description="mean power during attempts that report it; null: none does")


class ActualsGroup(Record):
    """The expected and actual cost of a group of attempts.

    An estimate covers the work done: a training that stopped early is compared with the expected cost of as
    many samples.
    """

    group: dict[str, str] = Field(description="the properties that the group shares; empty: all attempts")
    attempts: int = Field(description="paid attempts")
    compared: int = Field(description="attempts that are done: only these can be compared with an estimate")
    est_usd: Usd = Field(description="expected cost of the compared attempts")
    actual_usd: Usd = Field(description="actual cost of the compared attempts")
    median_cost_ratio: float | None = Field(
        description="median of actual cost / estimate; above 1: estimates were too low"
    )
    mape: float | None = Field(description="mean of |actual - estimate| / actual, in dollars")
    share_over_p95: float | None = Field(
        description="share of the compared attempts that cost more than their P95; the target is 0.05"
    )
    reserved_usd: Usd = Field(description="reserved for all of them, extensions included")
    paid_usd: Usd = Field(
        description="by the ledger, adjusted to the pods' own times where a cluster reports them"
    )
    overrun_usd: Usd = Field(
        from_microusd(0), description="cost above the caps, which the ledger could not book; not in paid_usd"
    )
    compute_usd: Usd
    transfer_usd: Usd = Field(description="for transferring data")
    storage_usd: Usd = Field(description="for storing the data written")
    overhead_usd: Usd = Field(description="routing and settling")
    idle: IdleCost
    core_utilization: float | None = Field(
        description="mean share of its core-seconds in which an attempt computed"
    )
    core_utilization_variance: float | None = Field(description="variance of that share over attempts")
    gpu: GpuActuals | None = Field(
        None, exclude_if=lambda gpu: gpu is None, description="null: no attempt's GPUs were read"
    )


class Actuals(StoredRecord):
    """Estimate against actual, over the attempts that were settled in [since, until)."""

    since: AwareDatetime | None
    until: AwareDatetime | None
    group_by: tuple[GroupBy, ...]
    groups: tuple[ActualsGroup, ...]
    total: ActualsGroup
    notes: tuple[str, ...] = Field((), description="records that could not be read")


def compute_actuals(
    charges: Sequence[Charge],
    by: Sequence[GroupBy],
    since: datetime | None = None,
    until: datetime | None = None,
    notes: tuple[str, ...] = (),
) -> Actuals:
    """Group the charges by these properties, in this order."""
    groups: dict[tuple[str, ...], list[Charge]] = {}
    for charge in charges:
        groups.setdefault(tuple(group_value(charge, name) for name in by), []).append(charge)
    return Actuals(
        since=since,
        until=until,
        group_by=tuple(by),
        groups=tuple(summarise_group(dict(zip(by, key, strict=True)), groups[key]) for key in sorted(groups))
        if by
        else (),
        total=summarise_group({}, charges),
        notes=notes,
    )


def group_value(charge: Charge, name: GroupBy) -> str:
    """Return the value of a property of a charge; empty if it has none, or if it was not recorded."""
    choice = charge.decision.choice if charge.decision else None
    match name:
        case "stage":
            return declared_stage(charge.entry.stage)
        case "gpu":
            return (charge.pool.gpu or NO_GPU) if charge.pool else ""
        case "pool":
            return choice.pool if choice else ""
        case "market":
            return str(choice.market) if choice else ""
        case "campaign":
            return charge.campaign


def summarise_group(group: dict[str, str], charges: Iterable[Charge]) -> ActualsGroup:
    charges = tuple(charges)
    compared = [(charge, found[0]) for charge in charges if (found := charge.expected) is not None]
    ratios = [charge.paid_microusd / est for charge, est in compared if est]
    errors = [
        abs(charge.paid_microusd - est) / charge.paid_microusd
        for charge, est in compared
        if charge.paid_microusd
    ]
    over = [_exceeds_p95(charge) for charge, _ in compared]
    uses = [charge.core_utilization for charge in charges if charge.core_utilization is not None]
    parts = [charge.parts for charge in charges]
    return ActualsGroup(
        group=group,
        attempts=len(charges),
        compared=len(compared),
        est_usd=from_microusd(sum(est for _, est in compared)),
        actual_usd=from_microusd(sum(charge.paid_microusd for charge, _ in compared)),
        median_cost_ratio=_rounded(median(ratios)) if ratios else None,
        mape=_rounded(fmean(errors)) if errors else None,
        share_over_p95=_rounded(fmean(over)) if over else None,
        reserved_usd=from_microusd(sum(charge.reserved_microusd for charge in charges)),
        paid_usd=from_microusd(sum(charge.paid_microusd for charge in charges)),
        overrun_usd=from_microusd(sum(charge.overrun_microusd for charge in charges)),
        compute_usd=from_microusd(sum(part.compute_microusd for part in parts)),
        transfer_usd=from_microusd(sum(part.transfer_microusd for part in parts)),
        storage_usd=from_microusd(sum(part.storage_microusd for part in parts)),
        overhead_usd=from_microusd(sum(part.overhead_microusd for part in parts)),
        idle=_idle(parts),
        core_utilization=_rounded(fmean(uses)) if uses else None,
        core_utilization_variance=_rounded(pvariance(uses)) if uses else None,
        gpu=_gpu_actuals([each.receipt for each in charges if each.receipt]),
    )


def _gpu_actuals(receipts: Sequence[Receipt]) -> GpuActuals | None:
    found = [(each.seconds, each.gpu) for each in receipts if each.gpu is not None]
    if not found:
        return None
    busy = [(seconds, use.busy) for seconds, use in found if use.busy is not None]
    watts = [(seconds, use.watts) for seconds, use in found if use.watts is not None]
    watt_s = sum(seconds for seconds, _ in watts)
    memory = [use.peak_memory_bytes / use.memory_bytes for _, use in found if use.memory_bytes]
    return GpuActuals(
        attempts=len(found),
        seconds=_rounded(sum(seconds for seconds, _ in busy)),
        kernel_s=_rounded(sum(seconds * share for seconds, share in busy)),
        received_gb=_rounded(sum(use.received_bytes or 0 for _, use in found) / 1e9),
        peak_memory_share=_rounded(max(memory)) if memory else None,
        joules=_rounded(sum(use.joules or 0.0 for _, use in found)),
        watts=_rounded(sum(seconds * each for seconds, each in watts) / watt_s) if watt_s else None,
    )


def _idle(parts: Sequence[ChargeParts]) -> IdleCost:
    return IdleCost(
        startup_usd=from_microusd(sum(part.startup_microusd for part in parts)),
        idle_cores_usd=from_microusd(sum(part.idle_cores_microusd for part in parts)),
        idle_gpus_usd=from_microusd(sum(part.idle_gpus_microusd for part in parts)),
        lost_usd=from_microusd(sum(part.lost_microusd for part in parts)),
    )


def _exceeds_p95(charge: Charge) -> bool:
    choice = charge.decision.choice if charge.decision else None
    return choice is not None and from_microusd(charge.paid_microusd) > choice.p95_usd


def _rounded(value: float) -> float:
    """Return a share or ratio rounded to 1e-6."""
    return round(value, 6)
