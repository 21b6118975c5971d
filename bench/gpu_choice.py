"""Claim: the speed of a model on an unmeasured GPU is predicted better than by the ratio of peak FLOP/s;
and ten runs of a model cost at most 1.05 times their cost on the best GPU, including the cost of
exploration.

python bench/gpu_choice.py [--models 5] [--seeds 1] [--of unseen llm-foundry gavel] [--half held-out]

The settings of pricing/learned/learning.py were tuned on every second model, in order of their names. The
figures are of the models in between, which were not used for tuning (`--half tuned`: the tuned ones; `all`:
both).

Recorded data: tokens/s of LLM training on A100-40, A100-80 and H100 (llm-foundry, bf16, 8 to 128 GPUs), at
Google's prices in us-central1 on dates when all three were available; steps/s of 26 job types on K80, P100
and V100 (gavel, one GPU), at list prices of a GPU with its host: Azure NC, NCv2 and NCv3, East US, 2020
(0.90, 2.07, 3.06); Google's K80, P100 and V100 with an n1-standard-4, us-central1, 2019, on-demand (0.64,
1.65, 2.67) and preemptible (0.175, 0.47, 0.78). A run takes its recorded time x a log-normal factor of 5%.
The needs (FLOPs, bytes) are rough.

(a) Prediction. The training data leaves out all measurements on a GPU type ("type unseen"), or those of
this model on it ("pair unseen"). `peak ratio` scales the model's speed on the other GPUs by peak FLOP/s.

(b) Cost. Ten runs of each of a number of models in random order: each model with an empty history ("cold"),
or with the history of the models before it ("shared"). The rules:

    shoestring     `decide()` with a migration check after ten minutes and at most two migrations; each
                   costs one minute to exit and a start of five minutes. It explores pools that may be
                   better, and leaves those that are not.
    no migration   `decide()` without migrations
    expected       minimum expected cost, without exploration
    Thompson       minimum cost at speeds drawn from their posterior distribution
    cheapest $/h   SkyPilot's rule: a job takes the same time on any GPU
    newest GPU     the newest GPU type
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from gpu_recorded import PriceList, Work, gavel_lists, gavel_works, llm_lists, llm_works, placed
from gpu_runs import RULES, prior_s, ratios, receipt
from machine import describe

from shoestring.core.receipt import Receipt
from shoestring.pricing.learned.learning import learn

PARTS = ("unseen", "llm-foundry", "gavel")

HALVES = {"held-out": slice(1, None, 2), "tuned": slice(0, None, 2), "all": slice(None)}


def unseen(works: Sequence[Work], prices: PriceList) -> None:
    """Print the median relative error of the time on each GPU type, predicted from three runs of each model
    on the others.
    """
    print(
        f"\n{'left out':<12} {'models':>6} {'type unseen':>12} {'pair unseen':>12} {'peak ratio':>11}   "
        "median relative error, %"
    )
    history = [
        (work, name, receipt(work, pool, work.rows / work.speed[name], number=3 * row + again))
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
            own_runs = [each for each in history if each[0] is work and each[1] != gpu]
            others = [each for each in history if each[0] is not work]
            for way, taught in (("type", [each for each in others if each[1] != gpu]), ("pair", others)):
                learned = learn([each[2] for each in [*thin(taught), *own_runs]], [work.need], [pool])
                found = next(each for each in learned if each.stage == "train")
                errors[way].append(abs(math.exp(found.log_mean) * prior_s(work, [pool])[0] / true_s - 1))
            logs = [
                math.log(work.rows / work.speed[name] * pools[name].gpu_tflops / pool.gpu_tflops)
                for name in pools
                if name != gpu
            ]
            errors["peak"].append(abs(math.exp(statistics.fmean(logs)) / true_s - 1))
        shown = "  ".join(f"{statistics.median(errors[way]) * 100:11.1f}" for way in ("type", "pair", "peak"))
        print(f"{gpu:<12} {len(errors['peak']):>6} {shown}", flush=True)


def thin(history: list[tuple[Work, str, Receipt]]) -> list[tuple[Work, str, Receipt]]:
    """Return every third receipt: one run of each other model and GPU is enough."""
    return history[::3]


def interval(values: Sequence[float]) -> str:
    random, array = np.random.default_rng(0), np.array(values)
    low, high = np.quantile(
        array[random.integers(len(array), size=(2000, len(array)))].mean(axis=1), [0.025, 0.975]
    )
    return f"{array.mean():6.3f} [{low:5.3f}, {high:5.3f}]"


def spent(name: str, works: Sequence[Work], lists: Sequence[PriceList], models: int, seeds: int) -> None:
    for shared_history in (False, True):
        found: dict[str, list[float]] = defaultdict(list)
        for prices in lists:
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(len(works))[:models]
                for rule, run in RULES.items():
                    found[rule] += ratios([works[row] for row in order], prices, run, seed, shared_history)
        for rule, values in found.items():
            history, worst = "shared" if shared_history else "cold", max(values)
            figures = f"{interval(values)} {worst:6.2f} {len(values):>6}"
            print(f"{name:<12} {history:<9} {rule:<13} {figures}", flush=True)


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
