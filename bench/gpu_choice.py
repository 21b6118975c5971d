"""Claim: a GPU that a model was not seen on is foretold better than by its peak, and ten runs of a model, what it takes to find out
included, cost at most 1.05 x what they would on the best GPU.

python bench/gpu_choice.py [--models 5] [--seeds 1] [--of unseen llm-foundry gavel] [--half held-out]

Settings of pricing/learning.py may be tuned on every other model, in the order of their names; figures are of the models between them,
which no setting has seen (`--half tuned`: of the others; `all`: of both).

Recorded: tokens/s of LLM training on A100-40, A100-80 and H100 (llm-foundry, bf16, 8 to 128 GPUs), at Google's prices in us-central1 on
dates when all three could be had; steps/s of 26 job types on K80, P100 and V100 (gavel, one GPU), at list prices a GPU with its host: Azure
NC, NCv2 and NCv3, East US, 2020 (0.90, 2.07, 3.06); Google's K80, P100 and V100 beside an n1-standard-4, us-central1, 2019, on-demand
(0.64, 1.65, 2.67) and preemptible (0.175, 0.47, 0.78). A run takes its recorded time x a log-normal of 5%. Needs (FLOPs, bytes) are rough.

(a) leaves out all that was measured on a GPU type ("type unseen"), or this model's on it ("pair unseen"); `peak ratio` scales the model's
speed on the others by peak FLOP/s. (b) ten runs of each of a number of models in random order: alone, from nothing ("cold"), or each after
the others ("lived in"). `ours` is `decide()`, which tries what may well be better; `expected`
takes the least expected cost and finds out nothing for its own sake; Thompson draws the speeds from what is known of them. SkyPilot's
rule, that a job takes as long on any GPU, is the cheapest $/hour.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
from gpu_recorded import PriceList, Work, gavel_lists, gavel_works, llm_lists, llm_works, placed
from machine import describe

from shoestring.model import Market, Pool, Quote
from shoestring.money import usd
from shoestring.pod.lessons import lesson_key
from shoestring.pricing.learning import learn, spreads
from shoestring.pricing.throughput import Machines, hardware_of, row_seconds
from shoestring.receipt import Receipt
from shoestring.routing.decide import decide
from shoestring.routing.decision import Question

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
RUNS = 10
NOISE = 0.05
PARTS = ("unseen", "llm-foundry", "gavel")


def prior_s(work: Work, pools: Sequence[Pool]) -> np.ndarray:
    return row_seconds(work.need, Machines.of(pools)) * work.rows


def receipt(number: int, work: Work, pool: Pool, seconds: float) -> Receipt:
    return Receipt.model_construct(
        run_id=f"run-{number}",
        stage="train",
        attempt=1,
        status="done",
        pool=pool.name,
        market=Market.ON_DEMAND,
        cache_hit=False,
        prior_s=float(prior_s(work, [pool])[0]),
        seconds=seconds,
        work=work.need.work,
        hardware=hardware_of(work.need, pool),
        finished_at=NOON + timedelta(minutes=number),
    )


# (a) what is foretold of a GPU that was not seen


HALVES = {"held-out": slice(1, None, 2), "tuned": slice(0, None, 2), "all": slice(None)}


def unseen(works: Sequence[Work], prices: PriceList) -> None:
    """Median relative error of the time on each type, from three runs of each model on each other."""
    print(f"\n{'left out':<12} {'models':>6} {'type unseen':>12} {'pair unseen':>12} {'peak ratio':>11}   median relative error, %")
    history = [
        (work, name, receipt(3 * row + again, work, pool, work.rows / work.speed[name]))
        for row, work in enumerate(works)
        for name, pool in placed(work, prices).items()
        for again in range(3)
    ]
    for gpu in prices.pools:
        errors: dict[str, list[float]] = defaultdict(list)
        for work in works:
            if gpu not in work.speed:
                continue
            pools = placed(work, prices)
            true_s, pool = work.rows / work.speed[gpu], pools[gpu]
            mine = [each for each in history if each[0] is work and each[1] != gpu]
            others = [each for each in history if each[0] is not work]
            for way, taught in (("type", [each for each in others if each[1] != gpu]), ("pair", others)):
                learned = learn([each[2] for each in [*thin(taught), *mine]], [work.need], [pool])
                found = next(each for each in learned if each.stage == "train")
                errors[way].append(abs(math.exp(found.log_mean) * prior_s(work, [pool])[0] / true_s - 1))
            logs = [math.log(work.rows / work.speed[name] * pools[name].gpu_tflops / pool.gpu_tflops) for name in pools if name != gpu]
            errors["peak"].append(abs(math.exp(statistics.fmean(logs)) / true_s - 1))
        shown = "  ".join(f"{statistics.median(errors[way]) * 100:11.1f}" for way in ("type", "pair", "peak"))
        print(f"{gpu:<12} {len(errors['peak']):>6} {shown}", flush=True)


def thin(history: list[tuple[Work, str, Receipt]]) -> list[tuple[Work, str, Receipt]]:
    """One run of three is enough of the others."""
    return history[::3]


# (b) ten runs


Choose = Callable[[Work, dict[str, Pool], PriceList, list[Receipt], np.random.Generator], str]


def ours(work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator) -> str:
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
    asked = Question(
        run_id="bench",
        stage="train",
        seed=0,
        asked_at=NOON,
        needs=(work.need,),
        rows=work.rows,
        row_bytes=0,
        budget_usd=Decimal(10**6),
        pools=tuple(pools.values()),
        quotes=quotes,
        learned=learn(seen, [work.need], list(pools.values())),
    )
    choice = decide(asked).choice
    assert choice is not None
    return choice.pool


def by_log(shift: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Choose:
    """The least price x time, where the log of the time is its mean + its standard deviation x `shift`."""

    def choose(work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator) -> str:
        names = list(pools)
        learned = learn(seen, [work.need], list(pools.values()))
        mean, _ = spreads(work.need, list(pools.values()), learned)
        by_name = {each.pool: each for each in learned if each.pool} | {each.hardware: each for each in learned if not each.pool}
        found = [by_name.get(name) or by_name.get(hardware_of(work.need, pools[name]).name) for name in names]
        sd = np.array([each.log_sd if each else 0.5 for each in found])
        log = np.log(mean) - sd**2 / 2 + sd * shift(sd, random)
        price = np.array([prices.usd_per_hour[name] * pools[name].nodes for name in names])
        return names[int(np.argmin(price * prior_s(work, list(pools.values())) * np.exp(log)))]

    return choose


def cheapest(work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator) -> str:
    return min(pools, key=lambda name: prices.usd_per_hour[name])


def newest(work: Work, pools: dict[str, Pool], prices: PriceList, seen: list[Receipt], random: np.random.Generator) -> str:
    return list(pools)[-1]


WAYS: dict[str, Choose] = {
    "ours": ours,
    "expected": by_log(lambda sd, random: sd / 2),
    "Thompson": by_log(lambda sd, random: random.standard_normal(len(sd))),
    "cheapest $/h": cheapest,
    "newest GPU": newest,
}


def ratios(works: Sequence[Work], prices: PriceList, choose: Choose, seed: int, lived_in: bool) -> list[float]:
    """Of each model: what its ten runs cost over what they would have on the best GPU."""
    random, number, kept, found = np.random.default_rng(seed), 0, {}, []
    for work in works:
        pools = placed(work, prices)
        usd_per_run = {name: prices.usd_per_hour[name] * pools[name].nodes * work.rows / work.speed[name] for name in pools}
        kept = kept if lived_in else {}
        paid = 0.0
        for _ in range(RUNS):
            name = choose(work, pools, prices, list(kept.values()), random)
            times = math.exp(NOISE * random.standard_normal())
            paid += usd_per_run[name]
            number += 1
            done = receipt(number, work, pools[name], work.rows / work.speed[name] * times)
            kept[lesson_key(done)] = done
        found.append(paid / (RUNS * min(usd_per_run.values())))
    return found


def interval(values: Sequence[float]) -> str:
    random, array = np.random.default_rng(0), np.array(values)
    low, high = np.quantile(array[random.integers(len(array), size=(2000, len(array)))].mean(axis=1), [0.025, 0.975])
    return f"{array.mean():6.3f} [{low:5.3f}, {high:5.3f}]"


def spent(name: str, works: Sequence[Work], lists: Sequence[PriceList], models: int, seeds: int) -> None:
    for lived_in in (False, True):
        found: dict[str, list[float]] = defaultdict(list)
        for prices in lists:
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(len(works))[:models]
                for way, choose in WAYS.items():
                    found[way] += ratios([works[row] for row in order], prices, choose, seed, lived_in)
        for way, values in found.items():
            print(
                f"{name:<12} {'lived in' if lived_in else 'cold':<9} {way:<13} {interval(values)} {max(values):6.2f} {len(values):>6}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--of", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--half", default="held-out", choices=HALVES)
    options = parser.parse_args()
    recorded = {
        "llm-foundry": (llm_works()[HALVES[options.half]], llm_lists()),
        "gavel": (gavel_works()[HALVES[options.half]], gavel_lists()),
    }
    print(f"{describe()}; models: {options.half}")
    if "unseen" in options.of:
        for works, lists in recorded.values():
            unseen(works, lists[0])
    print(f"\n{'':<12} {'history':<9} {'rule':<13} {'paid / best':<22} {'worst':>6} {'models':>6}")
    for name, (works, lists) in recorded.items():
        if name in options.of:
            spent(name, works, lists, options.models, options.seeds)


if __name__ == "__main__":
    main()
