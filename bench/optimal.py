"""Claim: on 2,000 random small chains and DAGs the choice costs as much as the best plan, and no feasible
question is refused.

python bench/optimal.py [--instances 2000] [--seed 0]

Each instance has 2 to 4 stages on 1 to 3 pools, spot and on-demand, with egress prices between regions, and 2
formats; a third of the instances have one format on 2 storage classes instead. Half of the instances are DAGs
of 3 to 5 stages: forks, joins, diamonds, or random. Half of each have a deadline for the longest path.
Budgets and deadlines are drawn between the minimum that any plan needs and what the cheapest plan needs, so
that many are tight and some are infeasible. Brute force compares every combination of offers, at the prices
that the decision recorded.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
from machine import describe

from shoestring.config.tariffs import Tariffs
from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Format, FormatSpeed, Market, MarketTerms, Need, Pool, Quote
from shoestring.routing.candidates import Ints
from shoestring.routing.decide import choose
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_table import OfferTable, full_offer_table
from shoestring.routing.question import Question

DAY = date(2026, 11, 1)
SPEEDS = tuple(
    FormatSpeed(
        format=name,
        write_ns_per_row=write_ns,
        write_bytes_per_s=10**8,
        scan_ns_per_row=scan_ns,
        scan_bytes_per_s=10**8,
        take_ns_per_row=40,
        take_bytes_per_s=10**9,
        size_ratio=ratio,
    )
    for name, write_ns, scan_ns, ratio in ((Format.PARQUET, 900, 300, 0.4), (Format.PACKED, 100, 30, 1.1))
)


DAGS: dict[str, tuple[tuple[int, ...], ...]] = {
    "fork": ((), (0,), (0,)),
    "join": ((), (), (0, 1)),
    "diamond": ((), (0,), (0,), (1, 2)),
    "two forks": ((), (0,), (0,), (1,), (1,)),
    "two diamonds": ((), (0,), (0,), (1, 2), (1, 2)),
    "three in parallel": ((), (0,), (0,), (0,), (1, 2, 3)),
}
"""By stage, the stages that it waits for."""


def draw_dependencies(rng: np.random.Generator) -> tuple[str, tuple[tuple[int, ...] | None, ...]]:
    """Return the name of a dependency graph, and by stage what it waits for; None: the stage before it."""
    if rng.random() < 0.5:
        return "chain", (None,) * int(rng.integers(2, 5))
    names = [*DAGS, "random DAG"]
    name = names[int(rng.integers(len(names)))]
    if name in DAGS:
        return name, DAGS[name]
    after = [
        rng.choice(number, size=int(rng.integers(0, min(number, 2) + 1)), replace=False)
        for number in range(int(rng.integers(3, 6)))
    ]
    return name, tuple(tuple(sorted(each.tolist())) for each in after)


def draw_needs(rng: np.random.Generator, after: tuple[tuple[int, ...] | None, ...]) -> tuple[Need, ...]:
    return tuple(
        Need(
            stage=f"stage-{number}",
            after=None if before is None else tuple(f"stage-{each}" for each in before),
            setup_s=float(rng.uniform(0, 20)),
            cpu_us_per_row=float(rng.choice([1.0, 100.0, 300.0])),
            parallel_fraction=float(rng.uniform(0, 1)),
            reads="scan" if number else "none",
            writes_bytes_per_row=int(rng.choice([0, 80, 4000])),
            checkpoint_s=float(rng.choice([0.0, 0.5])),
        )
        for number, before in enumerate(after)
    )


def draw_pools(rng: np.random.Generator, maximum: int) -> tuple[tuple[Pool, ...], tuple[Quote, ...]]:
    pools, quotes = list[Pool](), list[Quote]()
    for number in range(int(rng.integers(1, maximum + 1))):
        spot = (
            {Market.SPOT: MarketTerms(preemptions_per_hour=float(rng.uniform(0, 40)))}
            if rng.random() < 0.7
            else {}
        )
        pool = Pool(
            name=f"pool-{number}",
            cores=int(rng.integers(1, 9)),
            memory_gb=8,
            core_speed=float(rng.uniform(0.5, 3)),
            startup_s=float(rng.uniform(0, 60)),
            region=str(rng.choice(["local", "far"])),
            markets={Market.ON_DEMAND: MarketTerms()} | spot,
        )
        pools.append(pool)
        quotes += [
            Quote(
                pool=pool.name,
                market=market,
                usd_per_hour=from_microusd(int(rng.integers(10_000, 3_000_000))),
                as_of=DAY,
                source="drawn",
            )
            for market in pool.markets
        ]
    return tuple(pools), tuple(quotes)


def instance(rng: np.random.Generator) -> tuple[str, Question]:
    """Return stages of fixed work with ample money and time, and the name of their dependency graph."""
    name, after = draw_dependencies(rng)
    # Few enough pools to compare all plans.
    needs, (pools, quotes) = draw_needs(rng, after), draw_pools(rng, 3 if len(after) < 5 else 2)
    return name, Question(
        run_id="bench",
        stage="stage-0",
        seed=0,
        asked_at=datetime(2026, 11, 1, tzinfo=UTC),
        needs=needs,
        rows=200_000,
        row_bytes=0,
        budget_usd=Decimal(1_000_000),
        pools=pools,
        quotes=quotes,
        **draw_formats(rng),
    )


def draw_formats(rng: np.random.Generator) -> dict[str, object]:
    """Return formats and tariffs of a question: two formats, or one format on two storage classes."""
    tariffs: dict[str, object] = {"egress_usd_per_gb": {"local->far": "0.02", "far->local": "0.09"}}
    if rng.random() > 1 / 3:
        return {"tariffs": Tariffs.model_validate(tariffs), "speeds": SPEEDS}
    monthly, retrieval = rng.uniform(0.001, 0.02), rng.uniform(0, 0.1)
    cold = {
        "usd_per_gb_month": f"{monthly:.6f}",
        "retrieval_usd_per_gb": f"{retrieval:.6f}",
        "min_days": int(rng.choice([0, 30])),
    }
    tariffs |= {"storage_held_hours": float(rng.uniform(0, 8760)), "storage_classes": {"COLD": cold}}
    return {
        "tariffs": Tariffs.model_validate(tariffs),
        "speeds": SPEEDS[:1] if rng.random() < 0.5 else SPEEDS[1:],
    }


def datasets_read(question: Question) -> list[list[int]]:
    """Return, by stage, the stages whose data sets it reads. A stage that writes none passes on what it
    reads.
    """
    number, found = {need.stage: place for place, need in enumerate(question.needs)}, list[list[int]]()
    for stage, need in enumerate(question.needs):
        after = (
            [number[name] for name in need.after] if need.after is not None else [stage - 1] if stage else []
        )
        left = {
            source
            for each in after
            for source in ([each] if question.needs[each].writes_bytes_per_row else found[each])
        }
        found.append(sorted(left))
    return found


def every_plan(question: Question, rows: OfferTable, formats: int) -> tuple[Ints, Ints, Ints]:
    """Return expected micro-dollars, P95 micro-dollars and P95 milliseconds of every plan.

    The formats that an offer reads are a number with one digit a data set, the last data set being the lowest
    digit.
    """
    zero = np.zeros(1, dtype=np.int64)
    est, p95, stored, ends, reads = zero, zero, list[Ints](), list[Ints](), datasets_read(question)
    for stage, need in enumerate(question.needs):
        usable = np.flatnonzero((rows.stage == stage) & (rows.exclusion < 0))
        before, own = np.repeat(np.arange(len(est)), len(usable)), np.tile(usable, len(est))
        code = np.full(len(est), 0 if reads[stage] else -1)
        for source in reads[stage]:
            code = code * formats + stored[source]
        follows = rows.reads[own] == code[before]
        before, own = before[follows], own[follows]
        est, p95 = est[before] + rows.est_microusd[own], p95[before] + rows.p95_microusd[own]
        stored, ends = [each[before] for each in stored], [each[before] for each in ends]
        after = (
            [each for each, other in enumerate(question.needs[:stage]) if other.stage in need.after]
            if need.after is not None
            else []
        )
        starts = (
            np.max([ends[each] for each in after], axis=0)
            if after
            else ends[-1]
            if need.after is None and stage
            else np.zeros_like(est)
        )
        stored.append(rows.writes[own])
        ends.append(starts + rows.p95_ms[own])
    return est, p95, np.max(ends, axis=0)


def limited(question: Question, est: Ints, p95: Ints, ms: Ints, rng: np.random.Generator) -> Question:
    """Return the question with a budget and, in half of the cases, a deadline.

    Both are between 5% below the minimum that any plan needs and 30% above what the cheapest plan needs.
    """
    cheapest = np.flatnonzero(est == est.min())
    budget, deadline_ms = (
        float(rng.uniform(0.95 * each.min(), 1.3 * each[cheapest].min())) for each in (p95, ms)
    )
    deadline_s = deadline_ms / 1000 if rng.random() < 0.5 else None
    return question.model_copy(
        update={"budget_usd": from_microusd(int(budget)), "deadline_left_s": deadline_s}
    )


def compare(name: str, question: Question, rng: np.random.Generator) -> tuple[str, str, int]:
    """Return the name, how the choice compares with the best plan, and the number of plans."""
    candidates = enumerate_offers(question)
    est, p95, ms = every_plan(question, full_offer_table(candidates), len(candidates.formats))
    limited_question = limited(question, est, p95, ms, rng)
    fits = p95 <= microusd(limited_question.budget_usd)
    if limited_question.deadline_left_s is not None:
        fits &= ms <= int(limited_question.deadline_left_s * 1000)
    decision = choose(limited_question, candidates)
    if decision.choice is None or not fits.any():
        return name, "refused" if decision.choice is None and not fits.any() else "WRONG", len(est)
    total_usd = decision.choice.est_usd + sum((each.est_usd for each in decision.plan), Decimal(0))
    limit = "money" if limited_question.deadline_left_s is None else "both"
    equal = microusd(total_usd) == est[fits].min() and decision.optimality_gap_ppm == 0
    return name, ("free" if est[fits].min() == est.min() else limit) if equal else "WRONG", len(est)


RESULTS = {
    "free": "equal, no binding limit",
    "money": "equal, budget binds",
    "both": "equal, budget or time binds",
    "refused": "infeasible: refused",
    "WRONG": "WRONG",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, begun = np.random.default_rng(arguments.seed), time.perf_counter()
    found = [compare(*instance(rng), rng) for _ in range(arguments.instances)]
    counts = Counter((name, result) for name, result, _ in found)
    print(describe())
    print(f"{'':<26}" + "".join(f"{words:>28}" for words in RESULTS.values()))
    for name in dict.fromkeys(["chain", *DAGS, "random DAG"]):
        print(f"{name:<26}" + "".join(f"{counts[name, result]:>28}" for result in RESULTS))
    plans = sum(count for _, _, count in found)
    wrong = sum(result == "WRONG" for _, result, _ in found)
    print(
        f"{len(found)} instances, {plans:,} plans compared, {wrong} wrong, "
        f"{time.perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
