"""Simulate ten runs of a recorded model under a placement rule: their cost, and the receipts for later
runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
from gpu_recorded import STARTUP_S, PriceList, Work, placed

from shoestring.config.policy import MigrationPolicy, Policy
from shoestring.core.money import usd
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, Pool, Quote
from shoestring.pricing.learned.learning import learn
from shoestring.pricing.learned.runtime_factors import runtime_factors
from shoestring.pricing.throughput import PoolArrays, hardware_of, row_seconds
from shoestring.routing.decide import decide
from shoestring.routing.decision import Choice
from shoestring.routing.policy.migration import RunningStage, check_migration, exploration_sd
from shoestring.routing.question import Question
from shoestring.runtime.records.receipt_history import history_key
from shoestring.runtime.supervisor.migration_check import migration_target

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
RUNS = 10
NOISE = 0.05


def prior_s(work: Work, pools: Sequence[Pool]) -> np.ndarray:
    return row_seconds(work.need, PoolArrays.from_pools(pools)) * work.rows


def receipt(
    work: Work, pool: Pool, seconds: float, share: float = 1.0, attempt: int = 1, number: int = 0
) -> Receipt:
    """Return the receipt of a whole job that takes `seconds`, or of a share of it before a migration."""
    return Receipt.model_construct(
        run_id=f"run-{number}",
        stage="train",
        attempt=attempt,
        status="done" if share == 1.0 else "stopped",
        cause="" if share == 1.0 else "migrated",
        pool=pool.name,
        market=Market.ON_DEMAND,
        cache_hit=False,
        prior_s=float(prior_s(work, [pool])[0]) * share,
        seconds=seconds * share,
        work=work.need.work,
        hardware=hardware_of(work.need, pool),
        finished_at=NOON + timedelta(minutes=number),
    )


Choose = Callable[[Work, dict[str, Pool], PriceList, list[Receipt], np.random.Generator], str]
RunCost = tuple[float, list[Receipt]]
"""The dollars that a run cost, and the receipts of its attempts."""
Run = Callable[[Work, dict[str, Pool], PriceList, list[Receipt], np.random.Generator], RunCost]
POLICY = Policy(migration=MigrationPolicy(check_every_s=60, max_migrations=2))
EXIT_S = 60.0


def noise_factor(random: np.random.Generator) -> float:
    return math.exp(NOISE * random.standard_normal())


def question_of(
    work: Work,
    pools: dict[str, Pool],
    prices: PriceList,
    seen: list[Receipt],
    migrations: int | None = None,
    left: float = 1.0,
) -> Question:
    """Return the question where the rest of a training should run, with ample money.

    `left` is the share of the training that is left. With `migrations` None the work is fixed.
    """
    need = work.need if migrations is None else work.need.model_copy(update={"elastic": True, "passes": left})
    quotes = tuple(
        Quote(
            pool=name,
            market=Market.ON_DEMAND,
            usd_per_hour=usd(f"{prices.usd_per_hour[name] * pools[name].nodes:.6f}"),
            as_of=NOON.date(),
            source=prices.name,
        )
        for name in pools
    )
    return Question(
        run_id="bench",
        stage="train",
        seed=0,
        asked_at=NOON,
        needs=(need,),
        rows=work.rows,
        row_bytes=0,
        budget_usd=Decimal(10**6),
        pools=tuple(pools.values()),
        quotes=quotes,
        learned=learn(seen, [need], list(pools.values())),
        exploration_sd=0.0 if migrations is None else exploration_sd(POLICY, need, migrations),
    )


def shoestring(
    work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator
) -> str:
    choice = decide(question_of(work, pools, prices, seen)).choice
    assert choice is not None
    return choice.pool


def by_log(shift: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Choose:
    """Choose the minimum of price x time, where log(time) is its mean + its standard deviation x `shift`."""

    def choose(
        work: Work,
        pools: dict[str, Pool],
        prices: PriceList,
        seen: list[Receipt],
        random: np.random.Generator,
    ) -> str:
        names = list(pools)
        learned = learn(seen, [work.need], list(pools.values()))
        mean, _ = runtime_factors(work.need, list(pools.values()), learned)
        by_name = {each.pool: each for each in learned if each.pool} | {
            each.hardware: each for each in learned if not each.pool
        }
        found = [by_name.get(name) or by_name.get(hardware_of(work.need, pools[name]).name) for name in names]
        sd = np.array([each.log_sd if each else 0.5 for each in found])
        log = np.log(mean) - sd**2 / 2 + sd * shift(sd, random)
        price = np.array([prices.usd_per_hour[name] * pools[name].nodes for name in names])
        return names[int(np.argmin(price * prior_s(work, list(pools.values())) * np.exp(log)))]

    return choose


def cheapest(
    work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator
) -> str:
    return min(pools, key=lambda name: prices.usd_per_hour[name])


def newest(
    work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator
) -> str:
    return list(pools)[-1]


def usd_of(name: str, pools: dict[str, Pool], prices: PriceList, seconds: float) -> float:
    return prices.usd_per_hour[name] * pools[name].nodes * seconds / 3600


def whole(choose: Choose) -> Run:
    """Return a run that never migrates."""

    def run(
        work: Work,
        pools: dict[str, Pool],
        prices: PriceList,
        seen: list[Receipt],
        random: np.random.Generator,
    ) -> RunCost:
        name = choose(work, pools, prices, seen, random)
        true_s = work.rows / work.speed[name]
        return usd_of(name, pools, prices, STARTUP_S + true_s), [
            receipt(work, pools[name], true_s * noise_factor(random))
        ]

    return run


def with_migrations(
    work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator
) -> RunCost:
    """Run with migration checks, by the code that the supervisor and the routers of its attempts use."""
    paid, left, ran = 0.0, 1.0, list[Receipt]()
    while True:
        question = question_of(work, pools, prices, [*seen, *ran], len(ran), left)
        choice = decide(question).choice
        assert choice is not None
        name, true_s = choice.pool, work.rows / work.speed[choice.pool]
        measured_s, share = true_s * noise_factor(random), POLICY.migration.min_dwell_s / true_s
        so_far = receipt(work, pools[name], measured_s, share, len(ran) + 1)
        after = question_of(work, pools, prices, [*seen, *ran, so_far], len(ran) + 1, max(left - share, 1e-6))
        next_choice = decide(after).choice
        assert next_choice is not None
        if share >= left or not migrates(question, choice, after, next_choice, measured_s, len(ran)):
            return paid + usd_of(name, pools, prices, STARTUP_S + left * true_s), [
                *ran,
                receipt(work, pools[name], measured_s, attempt=len(ran) + 1),
            ]
        paid += usd_of(name, pools, prices, STARTUP_S + POLICY.migration.min_dwell_s + EXIT_S)
        left, ran = left - share, [*ran, so_far]


def migrates(
    before: Question, choice: Choice, after: Question, next_choice: Choice, measured_s: float, migrations: int
) -> bool:
    """Return the decision of the migration check for a training that has run for its minimum dwell time."""
    running = RunningStage(
        pool=choice.pool,
        market=choice.market,
        usd_per_hour=float(choice.usd_per_hour),
        s_per_sample=measured_s / before.rows,
        phase="stable",
        elapsed_s=POLICY.migration.min_dwell_s,
        migrations=migrations,
        left_usd=float(after.budget_usd),
        left_s=None,
        samples_left=next_choice.samples,
        exit_s=EXIT_S,
    )
    return check_migration(running, migration_target(after, next_choice), POLICY.migration).migrates


RULES: dict[str, Run] = {
    "shoestring": with_migrations,
    "no migration": whole(shoestring),
    "expected": whole(by_log(lambda sd, random: sd / 2)),
    "Thompson": whole(by_log(lambda sd, random: random.standard_normal(len(sd)))),
    "cheapest $/h": whole(cheapest),
    "newest GPU": whole(newest),
}


def ratios(
    works: Sequence[Work], prices: PriceList, run: Run, seed: int, shared_history: bool
) -> list[float]:
    """Return for each model the cost of its ten runs, divided by their cost on the best GPU."""
    random, number, kept, found = np.random.default_rng(seed), 0, {}, []
    for work in works:
        pools = placed(work, prices)
        best = min(usd_of(name, pools, prices, STARTUP_S + work.rows / work.speed[name]) for name in pools)
        kept = kept if shared_history else {}
        paid = 0.0
        for _ in range(RUNS):
            cost, ran = run(work, pools, prices, list(kept.values()), random)
            paid += cost
            number += 1
            for each in ran:
                done = each.model_copy(
                    update={"run_id": f"run-{number}", "finished_at": NOON + timedelta(minutes=number)}
                )
                kept[history_key(done)] = done
        found.append(paid / (RUNS * best))
    return found
