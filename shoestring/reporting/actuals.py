"""Estimate against actual: how far off the router was, by stage, GPU type, pool, market or campaign, and the dollars in which nothing was
computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import fmean, median, pvariance
from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record, StoredRecord
from shoestring.reporting.charges import Charge, ChargeParts

GroupBy = Literal["stage", "gpu", "pool", "market", "campaign"]
NO_GPU = "none"


class IdleCost(Record):
    """Paid, and nothing was computed."""

    startup_usd: Usd = Field(
        description="outside the attempts' own seconds: from when a node took a pod to its first line, and leaving"
    )
    cores_usd: Usd = Field(
        description="cores that did nothing meanwhile; of pools without a GPU, where it was measured"
    )
    lost_usd: Usd = Field(description="attempts that failed or were lost, of stages that keep no checkpoint")


class ActualsGroup(Record):
    """What a group of attempts was expected to cost, and cost.

    An estimate is of the work that was done: a training that stopped early is compared with what its router expected of as many samples.
    """

    group: dict[str, str] = Field(description="what the group has in common; empty: all attempts")
    attempts: int = Field(description="that were paid for")
    compared: int = Field(
        description="of those, the ones that were done: there alone an estimate can be compared"
    )
    est_usd: Usd = Field(description="expected of the compared")
    actual_usd: Usd = Field(description="paid for the compared")
    median_ratio: float | None = Field(
        description="actual over estimate, in dollars: above 1, the router was too hopeful"
    )
    mape: float | None = Field(description="mean of |actual - estimate| / actual, in dollars")
    over_p95: float | None = Field(
        description="share of the compared that cost more than their P95: 0.05 is what is aimed at"
    )
    reserved_usd: Usd = Field(description="set aside for all of them, extensions included")
    paid_usd: Usd = Field(
        description="by the ledger, adjusted to the pods' own times where a cluster tells them"
    )
    computing_usd: Usd
    moved_usd: Usd = Field(description="for bringing data in and out")
    stored_usd: Usd = Field(description="for holding what was written")
    overhead_usd: Usd = Field(description="deciding and settling")
    idle: IdleCost
    use: float | None = Field(description="mean share of its core-seconds in which an attempt computed")
    use_variance: float | None = Field(description="of that share, over attempts")


class Actuals(StoredRecord):
    """Estimate against actual, over the attempts that were settled in [since, until)."""

    since: AwareDatetime | None
    until: AwareDatetime | None
    by: tuple[GroupBy, ...]
    groups: tuple[ActualsGroup, ...]
    total: ActualsGroup
    notes: tuple[str, ...] = Field((), description="records that could not be read")


def actuals(
    charges: Sequence[Charge],
    by: Sequence[GroupBy],
    since: datetime | None = None,
    until: datetime | None = None,
    notes: tuple[str, ...] = (),
) -> Actuals:
    """Group the charges by these properties, in this order."""
    groups: dict[tuple[str, ...], list[Charge]] = {}
    for charge in charges:
        groups.setdefault(tuple(value_of(charge, name) for name in by), []).append(charge)
    return Actuals(
        since=since,
        until=until,
        by=tuple(by),
        groups=tuple(actual(dict(zip(by, key, strict=True)), groups[key]) for key in sorted(groups))
        if by
        else (),
        total=actual({}, charges),
        notes=notes,
    )


def value_of(charge: Charge, name: GroupBy) -> str:
    """What a charge has for a property. Empty where it has none, or where that was not written down."""
    choice = charge.decision.choice if charge.decision else None
    match name:
        case "stage":
            return charge.entry.stage
        case "gpu":
            return (charge.pool.gpu or NO_GPU) if charge.pool else ""
        case "pool":
            return choice.pool if choice else ""
        case "market":
            return str(choice.market) if choice else ""
        case "campaign":
            return charge.campaign


def actual(group: dict[str, str], charges: Iterable[Charge]) -> ActualsGroup:
    charges = tuple(charges)
    compared = [(charge, found[0]) for charge in charges if (found := charge.expected) is not None]
    ratios = [charge.paid_microusd / est for charge, est in compared if est]
    errors = [
        abs(charge.paid_microusd - est) / charge.paid_microusd
        for charge, est in compared
        if charge.paid_microusd
    ]
    over = [_over_p95(charge) for charge, _ in compared]
    uses = [charge.use for charge in charges if charge.use is not None]
    parts = [charge.parts for charge in charges]
    return ActualsGroup(
        group=group,
        attempts=len(charges),
        compared=len(compared),
        est_usd=from_microusd(sum(est for _, est in compared)),
        actual_usd=from_microusd(sum(charge.paid_microusd for charge, _ in compared)),
        median_ratio=_rounded(median(ratios)) if ratios else None,
        mape=_rounded(fmean(errors)) if errors else None,
        over_p95=_rounded(fmean(over)) if over else None,
        reserved_usd=from_microusd(sum(charge.reserved_microusd for charge in charges)),
        paid_usd=from_microusd(sum(charge.paid_microusd for charge in charges)),
        computing_usd=from_microusd(sum(part.computing for part in parts)),
        moved_usd=from_microusd(sum(part.moved for part in parts)),
        stored_usd=from_microusd(sum(part.stored for part in parts)),
        overhead_usd=from_microusd(sum(part.overhead for part in parts)),
        idle=_idle(parts),
        use=_rounded(fmean(uses)) if uses else None,
        use_variance=_rounded(pvariance(uses)) if uses else None,
    )


def _idle(parts: Sequence[ChargeParts]) -> IdleCost:
    return IdleCost(
        startup_usd=from_microusd(sum(part.startup for part in parts)),
        cores_usd=from_microusd(sum(part.cores for part in parts)),
        lost_usd=from_microusd(sum(part.lost for part in parts)),
    )


def _over_p95(charge: Charge) -> bool:
    choice = charge.decision.choice if charge.decision else None
    return choice is not None and from_microusd(charge.paid_microusd) > choice.p95_usd


def _rounded(value: float) -> float:
    """A share or a ratio, to a millionth: what follows says nothing."""
    return round(value, 6)
