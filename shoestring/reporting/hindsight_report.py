"""Hindsight over runs: from the actual costs, how much each choice cost compared with the best one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from statistics import median

from pydantic import Field

from shoestring.core.money import Usd, from_microusd, microusd
from shoestring.core.record import StoredRecord
from shoestring.core.types import Market
from shoestring.reporting.charges import OVERHEAD, Charge
from shoestring.routing.analysis.hindsight import Hindsight, hindsight, total_regrets
from shoestring.routing.analysis.hindsight_pricing import KnownFacts, StageActuals, Target
from shoestring.routing.candidates import MS_PER_HOUR


class HindsightReport(StoredRecord):
    """Hindsight over the choices of one run, or of many."""

    choice_count: int = Field(description="choices that could be evaluated")
    paid_usd: Usd
    regret_usd: Usd = Field(
        description="sum over all choices, each compared with the best plan from its own situation"
    )
    regret_s: float
    regret_by_stage: dict[str, Usd]
    regret_by_cause: dict[str, Usd] = Field(description="regret by the assumption that caused most of it")
    choices: tuple[Hindsight, ...]
    notes: tuple[str, ...] = ()


def build_hindsight_report(
    charges: Sequence[Charge],
    prices: Mapping[Target, int],
    run_id: str | None = None,
    stage: str | None = None,
    notes: tuple[str, ...] = (),
) -> HindsightReport:
    """Evaluate all choices behind these charges, or those of one run or stage.

    `prices`: micro-dollars an hour, instead of the prices at the time. All charges serve to learn the speed
    of pools.
    """
    speeds, runs = (
        speed_ratios(charges),
        _by_run(charge for charge in charges if run_id in (None, charge.run_id)),
    )
    found = [
        found_hindsight
        for run_charges in runs.values()
        for number, charge in enumerate(run_charges)
        if stage in (None, charge.entry.stage) and charge.decision is not None
        for found_hindsight in [
            hindsight(charge.decision, KnownFacts(_stage_actuals(run_charges, number), speeds, prices))
        ]
        if found_hindsight is not None
    ]
    regret_by_stage, regret_by_cause = total_regrets(found)
    return HindsightReport(
        choice_count=len(found),
        # The sum of an attempt includes later attempts, so the first attempt covers its stage.
        paid_usd=sum(
            (from_microusd(charge.paid_microusd) for charge in charges if _covered(charge, found)), Decimal(0)
        ),
        regret_usd=sum((each.regret_usd for each in found), Decimal(0)),
        regret_s=round(sum(each.regret_s for each in found), 3),
        regret_by_stage={name: regret_by_stage[name] for name in sorted(regret_by_stage)},
        regret_by_cause={name: regret_by_cause[name] for name in sorted(regret_by_cause)},
        choices=tuple(found),
        notes=notes,
    )


def price_table(quotes: Iterable[tuple[str, Market, Decimal]]) -> dict[Target, int]:
    return {(pool, market): microusd(usd_per_hour) for pool, market, usd_per_hour in quotes}


def speed_ratios(charges: Iterable[Charge]) -> dict[tuple[str, str], float]:
    """Return the median ratio of true to prior seconds by (stage, pool), over attempts that are done."""
    found_hindsight: dict[tuple[str, str], list[float]] = {}
    for charge in charges:
        receipt = charge.receipt
        if receipt and receipt.status == "done" and receipt.prior_s > 0 and not receipt.cache_hit:
            found_hindsight.setdefault((receipt.stage, receipt.pool), []).append(
                receipt.seconds / receipt.prior_s
            )
    return {key: median(ratios) for key, ratios in found_hindsight.items()}


def _by_run(charges: Iterable[Charge]) -> dict[str, list[Charge]]:
    runs: dict[str, list[Charge]] = {}
    for charge in charges:
        if charge.decision is not None and charge.receipt is not None and charge.entry.stage != OVERHEAD:
            runs.setdefault(charge.run_id, []).append(charge)
    for run_charges in runs.values():
        run_charges.sort(
            key=lambda charge: charge.decision.question.asked_at if charge.decision else charge.entry.at
        )
    return runs


def _stage_actuals(run_charges: Sequence[Charge], number: int) -> dict[str, StageActuals]:
    """Return the actuals of this stage from that choice on, and of each later stage, for stages that were
    done.
    """
    later: dict[str, list[Charge]] = {}
    for charge in run_charges[number:]:
        later.setdefault(charge.entry.stage, []).append(charge)
    return {stage: took for stage, attempts in later.items() if (took := _sum_attempts(attempts)) is not None}


def _sum_attempts(attempts: Sequence[Charge]) -> StageActuals | None:
    """Return the sum up to the first attempt that was done, or None."""
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
    attempts_until_done = attempts[: last + 1]
    return StageActuals(
        target=(receipt.pool, receipt.market),
        paid_microusd=sum(charge.paid_microusd for charge in attempts_until_done),
        fees_microusd=sum(charge.parts.fees_microusd for charge in attempts_until_done),
        working_ms=round(receipt.seconds * 1000),
        startup_ms=_startup_ms(attempts[last]),
        lost_ms=sum(
            round(charge.receipt.seconds * 1000) for charge in attempts_until_done[:-1] if charge.receipt
        ),
        samples=receipt.outcome.samples if receipt.outcome else 0,
        writes=receipt.format,
        storage_class=receipt.storage_class,
    )


def _startup_ms(charge: Charge) -> int:
    price = charge.usd_per_hour
    return charge.parts.startup_microusd * MS_PER_HOUR // microusd(price) if price else 0


def _covered(charge: Charge, found: Sequence[Hindsight]) -> bool:
    return any(
        (each.run_id, each.stage) == (charge.run_id, charge.entry.stage)
        and charge.entry.attempt >= each.attempt
        for each in found
    )
