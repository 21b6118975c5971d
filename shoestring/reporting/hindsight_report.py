"""Hindsight over runs: from what was paid, what each choice cost beside the best that could have been had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from statistics import median

from pydantic import Field

from shoestring.core.money import Usd, from_microusd, microusd
from shoestring.core.record import StoredRecord
from shoestring.core.types import Market
from shoestring.reporting.charges import OVERHEAD, Charge
from shoestring.routing.analysis.hindsight import (
    Hindsight,
    KnownFacts,
    StageActuals,
    Target,
    hindsight,
    total_regrets,
)
from shoestring.routing.candidates import MS_PER_HOUR


class HindsightReport(StoredRecord):
    """Hindsight over the choices of one run, or of many."""

    choices: int = Field(description="that could be looked back on")
    paid_usd: Usd
    regret_usd: Usd = Field(
        description="sum of all choices; each is held to the best way on from where it stood"
    )
    regret_s: float
    by_stage: dict[str, Usd]
    by_blame: dict[str, Usd] = Field(description="regret by the assumption that was to blame for most of it")
    each: tuple[Hindsight, ...]
    notes: tuple[str, ...] = ()


def build_hindsight_report(
    charges: Sequence[Charge],
    prices: Mapping[Target, int],
    run_id: str | None = None,
    stage: str | None = None,
    notes: tuple[str, ...] = (),
) -> HindsightReport:
    """All choices behind these charges, or those of one run or stage. `prices`: micro-dollars an hour, instead of then's. The receipts of
    all of the charges tell how fast a pool is."""
    rates, runs = speed_ratios(charges), _by_run(charge for charge in charges if run_id in (None, charge.run_id))
    found = [
        seen
        for of_run in runs.values()
        for number, charge in enumerate(of_run)
        if stage in (None, charge.entry.stage) and charge.decision is not None
        for seen in [hindsight(charge.decision, KnownFacts(_took(of_run, number), rates, prices))]
        if seen is not None
    ]
    by_stage, by_blame = total_regrets(found)
    return HindsightReport(
        choices=len(found),
        # An attempt's sum holds those after it: the first of a stage tells all of it.
        paid_usd=sum(
            (from_microusd(charge.paid_microusd) for charge in charges if _looked(charge, found)), Decimal(0)
        ),
        regret_usd=sum((each.regret_usd for each in found), Decimal(0)),
        regret_s=round(sum(each.regret_s for each in found), 3),
        by_stage={name: by_stage[name] for name in sorted(by_stage)},
        by_blame={name: by_blame[name] for name in sorted(by_blame)},
        each=tuple(found),
        notes=notes,
    )


def price_table(quotes: Iterable[tuple[str, Market, Decimal]]) -> dict[Target, int]:
    return {(pool, market): microusd(usd_per_hour) for pool, market, usd_per_hour in quotes}


def speed_ratios(charges: Iterable[Charge]) -> dict[tuple[str, str], float]:
    """Stage and pool -> the median of true over prior seconds, of attempts that were done."""
    seen: dict[tuple[str, str], list[float]] = {}
    for charge in charges:
        receipt = charge.receipt
        if receipt and receipt.status == "done" and receipt.prior_s > 0 and not receipt.cache_hit:
            seen.setdefault((receipt.stage, receipt.pool), []).append(receipt.seconds / receipt.prior_s)
    return {key: median(ratios) for key, ratios in seen.items()}


def _by_run(charges: Iterable[Charge]) -> dict[str, list[Charge]]:
    runs: dict[str, list[Charge]] = {}
    for charge in charges:
        if charge.decision is not None and charge.receipt is not None and charge.entry.stage != OVERHEAD:
            runs.setdefault(charge.run_id, []).append(charge)
    for of_run in runs.values():
        of_run.sort(
            key=lambda charge: charge.decision.question.asked_at if charge.decision else charge.entry.at
        )
    return runs


def _took(of_run: Sequence[Charge], number: int) -> dict[str, StageActuals]:
    """What this stage took from that choice on, and each stage after it; stages that were never done are left out."""
    later: dict[str, list[Charge]] = {}
    for charge in of_run[number:]:
        later.setdefault(charge.entry.stage, []).append(charge)
    return {stage: took for stage, attempts in later.items() if (took := _sum(attempts)) is not None}


def _sum(attempts: Sequence[Charge]) -> StageActuals | None:
    """Up to the first attempt that was done."""
    last = next(
        (
            number
            for number, charge in enumerate(attempts)
            if charge.receipt and charge.receipt.status == "done"
        ),
        None,
    )
    if last is None or (receipt := attempts[last].receipt) is None:
        return None
    upto = attempts[: last + 1]
    return StageActuals(
        target=(receipt.pool, receipt.market),
        paid_microusd=sum(charge.paid_microusd for charge in upto),
        fees_microusd=sum(charge.parts.fees for charge in upto),
        working_ms=round(receipt.seconds * 1000),
        startup_ms=_startup_ms(attempts[last]),
        lost_ms=sum(round(charge.receipt.seconds * 1000) for charge in upto[:-1] if charge.receipt),
        samples=receipt.outcome.samples if receipt.outcome else 0,
        writes=receipt.format,
        storage_class=receipt.storage_class,
    )


def _startup_ms(charge: Charge) -> int:
    price = charge.usd_per_hour
    return charge.parts.startup * MS_PER_HOUR // microusd(price) if price else 0


def _looked(charge: Charge, found: Sequence[Hindsight]) -> bool:
    return any(
        (each.run_id, each.stage) == (charge.run_id, charge.entry.stage)
        and charge.entry.attempt >= each.attempt
        for each in found
    )
