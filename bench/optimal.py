"""Claim: on 2,000 random small chains and graphs of stages the choice costs what the best of all plans costs, and nothing is refused that
would have fitted.

python bench/optimal.py [--instances 2000] [--seed 0]

Each instance is 2 to 4 stages on 1 to 3 pools, spot and on-demand, in regions that charge for bytes, in 2 formats, or in a third of them in
one format on 2 storage classes. Half of the instances are not chains but graphs of 3 to 5 stages: forks, joins, diamonds, or drawn at
random. Half of each have a deadline, for the longest way through the stages; budgets and deadlines lie between what the work needs at
least and what the cheapest plan does, so that many are tight, and some cannot be done. Brute force is every combination of offers whose
formats and classes follow on one another, on the prices that the decision recorded.
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


SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "fork": ((), (0,), (0,)),
    "join": ((), (), (0, 1)),
    "diamond": ((), (0,), (0,), (1, 2)),
    "two forks": ((), (0,), (0,), (1,), (1,)),
    "two diamonds": ((), (0,), (0,), (1, 2), (1, 2)),
    "three beside each other": ((), (0,), (0,), (0,), (1, 2, 3)),
}
"""By stage, the stages that it comes after."""


def drawn(rng: np.random.Generator) -> tuple[str, tuple[tuple[int, ...] | None, ...]]:
    """What an instance is, and what each of its stages comes after; None: the one before it."""
    if rng.random() < 0.5:
        return "chain", (None,) * int(rng.integers(2, 5))
    names = [*SHAPES, "random graph"]
    name = names[int(rng.integers(len(names)))]
    if name in SHAPES:
        return name, SHAPES[name]
    after = [
        rng.choice(number, size=int(rng.integers(0, min(number, 2) + 1)), replace=False)
        for number in range(int(rng.integers(3, 6)))
    ]
    return name, tuple(tuple(sorted(each.tolist())) for each in after)


def needs_of(rng: np.random.Generator, after: tuple[tuple[int, ...] | None, ...]) -> tuple[Need, ...]:
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


def places(rng: np.random.Generator, most: int) -> tuple[tuple[Pool, ...], tuple[Quote, ...]]:
    pools, quotes = list[Pool](), list[Quote]()
    for number in range(int(rng.integers(1, most + 1))):
        spot = (
            {Market.SPOT: MarketTerms(preemptions_per_hour=float(rng.uniform(0, 40)))} if rng.random() < 0.7 else {}
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
    """Stages of fixed work, with ample money and time, and what they are."""
    name, after = drawn(rng)
    # Few enough plans to try them all.
    needs, (pools, quotes) = needs_of(rng, after), places(rng, 3 if len(after) < 5 else 2)
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
        **lies(rng),
    )


def lies(rng: np.random.Generator) -> dict[str, object]:
    """The ways for data sets to lie, of a Question: formats on one storage class, or one format on two, kept for up to a year."""
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


def read_by(question: Question) -> list[list[int]]:
    """By stage, the stages whose data sets it reads: those that it comes after, or what those read that write none."""
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
    """Expected micro-dollars, and micro-dollars and milliseconds at P95, of every plan whose formats follow on one another.

    An offer that reads several data sets is numbered by their formats, the last one's counting through first.
    """
    zero = np.zeros(1, dtype=np.int64)
    est, p95, lies, ends, reads = zero, zero, list[Ints](), list[Ints](), read_by(question)
    for stage, need in enumerate(question.needs):
        mine = np.flatnonzero((rows.stage == stage) & (rows.exclusion < 0))
        before, own = np.repeat(np.arange(len(est)), len(mine)), np.tile(mine, len(est))
        code = np.full(len(est), 0 if reads[stage] else -1)
        for source in reads[stage]:
            code = code * formats + lies[source]
        follows = rows.reads[own] == code[before]
        before, own = before[follows], own[follows]
        est, p95 = est[before] + rows.est_microusd[own], p95[before] + rows.p95_microusd[own]
        lies, ends = [each[before] for each in lies], [each[before] for each in ends]
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
        lies.append(rows.writes[own])
        ends.append(starts + rows.p95_ms[own])
    return est, p95, np.max(ends, axis=0)


def limited(question: Question, est: Ints, p95: Ints, ms: Ints, rng: np.random.Generator) -> Question:
    """With a budget, and in half of the cases a deadline, from a twentieth below the least that any plan needs to a third above what
    the cheapest one does."""
    cheapest = np.flatnonzero(est == est.min())
    budget, deadline_ms = (
        float(rng.uniform(0.95 * each.min(), 1.3 * each[cheapest].min())) for each in (p95, ms)
    )
    deadline_s = deadline_ms / 1000 if rng.random() < 0.5 else None
    return question.model_copy(
        update={"budget_usd": from_microusd(int(budget)), "deadline_left_s": deadline_s}
    )


def verdict(name: str, question: Question, rng: np.random.Generator) -> tuple[str, str, int]:
    """What it is, how the choice compares with the best of all plans, and how many plans there are."""
    made = enumerate_offers(question)
    est, p95, ms = every_plan(question, full_offer_table(made), len(made.formats))
    asked = limited(question, est, p95, ms, rng)
    fits = p95 <= microusd(asked.budget_usd)
    if asked.deadline_left_s is not None:
        fits &= ms <= int(asked.deadline_left_s * 1000)
    decision = choose(asked, made)
    if decision.choice is None or not fits.any():
        return name, "refused" if decision.choice is None and not fits.any() else "WRONG", len(est)
    total_usd = decision.choice.est_usd + sum((each.est_usd for each in decision.plan), Decimal(0))
    limit = "money" if asked.deadline_left_s is None else "both"
    equal = microusd(total_usd) == est[fits].min() and decision.optimality_gap_ppm == 0
    return name, ("free" if est[fits].min() == est.min() else limit) if equal else "WRONG", len(est)


VERDICTS = {
    "free": "equal, no limit bound",
    "money": "equal, money bound",
    "both": "equal, money or time bound",
    "refused": "cannot be done: refused",
    "WRONG": "WRONG",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, begun = np.random.default_rng(arguments.seed), time.perf_counter()
    found = [verdict(*instance(rng), rng) for _ in range(arguments.instances)]
    counts = Counter((name, said) for name, said, _ in found)
    print(describe())
    print(f"{'':<26}" + "".join(f"{words:>28}" for words in VERDICTS.values()))
    for name in dict.fromkeys(["chain", *SHAPES, "random graph"]):
        print(f"{name:<26}" + "".join(f"{counts[name, said]:>28}" for said in VERDICTS))
    plans = sum(count for _, _, count in found)
    wrong = sum(said == "WRONG" for _, said, _ in found)
    print(
        f"{len(found)} instances, {plans:,} plans tried, {wrong} wrong, {time.perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
