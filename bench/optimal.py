"""Claim: on 2,000 random small chains the choice costs what the best of all plans costs, and nothing is refused that would have fitted.

python bench/optimal.py [--instances 2000] [--seed 0]

Each instance is 2 to 4 stages on 1 to 3 pools, spot and on-demand, in regions that charge for bytes, in 2 formats. Half of them have a
deadline; budgets and deadlines lie around what the work needs, so that about as many are tight as not, and some cannot be done. Brute
force is every sequence of offers whose formats follow on one another, on the prices that the decision recorded.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
from machine import describe

from shoestring.model import Format, FormatSpeed, Market, Need, Pool, Quote, Terms
from shoestring.money import from_microusd, microusd
from shoestring.routing.candidates import Ints
from shoestring.routing.decide import choose
from shoestring.routing.decision import Question
from shoestring.routing.offers import candidates
from shoestring.routing.priced import Rows, all_rows
from shoestring.tariffs import Tariffs

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


def needs_of(rng: np.random.Generator) -> tuple[Need, ...]:
    return tuple(
        Need(
            stage=f"stage-{number}",
            setup_s=float(rng.uniform(0, 20)),
            op_per_row=float(rng.choice([1e3, 1e5, 3e5])),
            parallel_fraction=float(rng.uniform(0, 1)),
            reads="scan" if number else "none",
            writes_bytes_per_row=int(rng.choice([0, 80, 4000])),
            checkpoint_s=float(rng.choice([0.0, 0.5])),
        )
        for number in range(int(rng.integers(2, 5)))
    )


def places(rng: np.random.Generator) -> tuple[tuple[Pool, ...], tuple[Quote, ...]]:
    pools, quotes = list[Pool](), list[Quote]()
    for number in range(int(rng.integers(1, 4))):
        spot = {Market.SPOT: Terms(preemptions_per_hour=float(rng.uniform(0, 40)))} if rng.random() < 0.7 else {}
        pool = Pool(
            name=f"pool-{number}",
            cores=int(rng.integers(1, 9)),
            memory_gb=8,
            core_gops=float(rng.uniform(0.5, 3)),
            startup_s=float(rng.uniform(0, 60)),
            region=str(rng.choice(["local", "far"])),
            markets={Market.ON_DEMAND: Terms()} | spot,
        )
        pools.append(pool)
        quotes += [
            Quote(
                pool=pool.name, market=market, usd_per_hour=from_microusd(int(rng.integers(10_000, 3_000_000))), as_of=DAY, source="drawn"
            )
            for market in pool.markets
        ]
    return tuple(pools), tuple(quotes)


def instance(rng: np.random.Generator) -> Question:
    """A chain of stages of fixed work, with ample money and time."""
    needs, (pools, quotes) = needs_of(rng), places(rng)
    return Question(
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
        tariffs=Tariffs.model_validate({"egress_usd_per_gb": {"local->far": "0.02", "far->local": "0.09"}}),
        speeds=SPEEDS,
    )


def every_plan(question: Question, rows: Rows) -> tuple[Ints, Ints, Ints]:
    """Expected micro-dollars, and micro-dollars and milliseconds at P95, of every plan whose formats follow on one another."""
    zero = np.zeros(1, dtype=np.int64)
    est, p95, ms, lies = zero, zero, zero, zero - 1
    for stage, need in enumerate(question.needs):
        mine = np.flatnonzero((rows.stage == stage) & (rows.objection < 0))
        before, own = np.repeat(np.arange(len(est)), len(mine)), np.tile(mine, len(est))
        follows = rows.reads[own] == lies[before]
        before, own = before[follows], own[follows]
        est, p95, ms = est[before] + rows.est_microusd[own], p95[before] + rows.p95_microusd[own], ms[before] + rows.p95_ms[own]
        lies = rows.writes[own] if need.writes_bytes_per_row else lies[before]
    return est, p95, ms


def limited(question: Question, p95: Ints, ms: Ints, rng: np.random.Generator) -> Question:
    """With a budget, and in half of the cases a deadline, from a tenth below the least that any plan needs to twice that."""
    budget = from_microusd(int(p95.min() * rng.uniform(0.9, 2.0)))
    deadline_s = float(ms.min() * rng.uniform(0.9, 2.0)) / 1000 if rng.random() < 0.5 else None
    return question.model_copy(update={"budget_usd": budget, "deadline_left_s": deadline_s})


def verdict(question: Question, rng: np.random.Generator) -> tuple[str, int]:
    """How the choice compares with the best of all plans, and how many plans there are."""
    made = candidates(question)
    est, p95, ms = every_plan(question, all_rows(made))
    asked = limited(question, p95, ms, rng)
    fits = p95 <= microusd(asked.budget_usd)
    if asked.deadline_left_s is not None:
        fits &= ms <= int(asked.deadline_left_s * 1000)
    decision = choose(asked, made)
    limit = "money" if asked.deadline_left_s is None else "money and time"
    if decision.choice is None or not fits.any():
        return f"{limit}: cannot be done, {'refused' if decision.choice is None and not fits.any() else 'WRONG'}", len(est)
    total_usd = decision.choice.est_usd + sum((each.est_usd for each in decision.plan), Decimal(0))
    bound = "bound" if est[fits].min() > est.min() else "did not bind"
    return f"{limit}: {bound}, {'equal' if microusd(total_usd) == est[fits].min() else 'WRONG'}", len(est)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, begun = np.random.default_rng(arguments.seed), time.perf_counter()
    found = [verdict(instance(rng), rng) for _ in range(arguments.instances)]
    print(describe())
    for name, count in sorted(Counter(name for name, _ in found).items()):
        print(f"{name:<44} {count:>6}")
    plans = sum(count for _, count in found)
    wrong = sum("WRONG" in name for name, _ in found)
    print(f"{len(found)} instances, {plans:,} plans tried, {wrong} wrong, {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
