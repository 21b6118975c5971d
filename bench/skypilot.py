"""Claim: at 500 candidates a stage, Shoestring finds the best plan at least 200 times faster than SkyPilot
0.14.1.

python bench/skypilot.py [--python PATH] [--sizes 25,50,100,200,500] [--repeats 3] [--out times.svg]

SkyPilot's dynamic programme over a chain, `Optimizer._optimize_by_dp`, is called directly on the costs that
the router priced. No data moves between stages, which is its fastest case. Three steps of Shoestring are
timed:

    plan      the same work, including the pricing of the offers
    choice    in addition a reason for each candidate, a placement and a record
    decision  in addition the enumeration of offers from pools, quotes and needs

All must find the same total. `--python` is an interpreter that has SkyPilot. Without it, SkyPilot is
installed into a temporary environment; where that fails, the bench is skipped with the reason.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
from machine import describe

from shoestring.core.money import microusd
from shoestring.core.types import Need, Pool, Quote
from shoestring.routing.candidates import NONE
from shoestring.routing.decide import choose, decide
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_table import stage_offer_table
from shoestring.routing.planner.chain_planner import find_plans
from shoestring.routing.planner.partial_plans import RunLimits
from shoestring.routing.question import Question

RELEASE = "skypilot==0.14.1"
STAGES = 5
PEER = """
import json, sys, time
import sky
from sky import clouds
from sky.optimizer import Optimizer, _DUMMY_SOURCE_NAME, _DUMMY_SINK_NAME

def ends(name):
    task, resources = sky.Task(name), sky.Resources(cloud=clouds.DummyCloud())
    task.set_resources({resources})
    return task, {resources: 0}

for line in sys.stdin:
    costs = json.loads(line)
    source, source_map = ends(_DUMMY_SOURCE_NAME)
    sink, sink_map = ends(_DUMMY_SINK_NAME)
    tasks = [sky.Task(f"stage-{number}") for number in range(len(costs))]
    maps = {source: source_map, sink: sink_map}
    for task, row in zip(tasks, costs):
        maps[task] = {sky.Resources(): cost for cost in row}
    begun = time.perf_counter()
    _, total = Optimizer._optimize_by_dp([source, *tasks, sink], maps, True)
    print(json.dumps([time.perf_counter() - begun, total]), flush=True)
"""


def question(size: int) -> Question:
    """Return a chain of five stages on `size` kinds of machine, each with its own price."""
    rng, pools, quotes = np.random.default_rng(size), [], []
    for number in range(size):
        pools.append(
            Pool(
                name=f"m{number:04d}",
                cores=int(rng.integers(1, 65)),
                memory_gb=64,
                core_speed=float(rng.uniform(0.5, 3)),
            )
        )
        price = Decimal(int(rng.integers(20_000, 5_000_000))).scaleb(-6)
        quotes.append(
            Quote(
                pool=f"m{number:04d}",
                market="on-demand",
                usd_per_hour=price,
                as_of=date(2026, 11, 1),
                source="drawn",
            )
        )
    return Question(
        run_id="bench",
        stage="stage-0",
        seed=0,
        asked_at=datetime(2026, 11, 1, tzinfo=UTC),
        needs=tuple(
            Need(stage=f"stage-{number}", cpu_us_per_row=10.0 * (1 + number), parallel_fraction=0.2 * number)
            for number in range(STAGES)
        ),
        rows=10_000_000,
        row_bytes=0,
        budget_usd=Decimal(100_000),
        pools=tuple(pools),
        quotes=tuple(quotes),
    )


def time_shoestring(question: Question, repeats: int) -> tuple[list[float], int]:
    """Return the median seconds of plan, choice and decision, and the total in micro-dollars."""
    candidates = enumerate_offers(question)
    took: dict[str, list[float]] = {"plan": [], "choice": [], "decision": []}
    for _ in range(max(repeats, 9)):
        for name, ask in (
            ("plan", lambda: find_plans(question, candidates, RunLimits.of(question))),
            ("choice", lambda: choose(question, candidates)),
        ):
            begun = time.perf_counter()
            ask()
            took[name].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        decision = decide(question)
        took["decision"].append(time.perf_counter() - begun)
    assert decision.choice is not None
    total_usd = decision.choice.est_usd + sum((each.est_usd for each in decision.plan), Decimal(0))
    return [statistics.median(seconds) for seconds in took.values()], microusd(total_usd)


def costs(question: Question) -> list[list[int]]:
    """Return the expected prices of the offers, by stage."""
    candidates = enumerate_offers(question)
    stages = (stage_offer_table(candidates, stage) for stage in range(STAGES))
    return [rows.est_microusd[rows.exclusion == NONE].tolist() for rows in stages]


def peer_python(given: Path | None, folder: Path) -> Path | str:
    """Return an interpreter that has SkyPilot, or the reason why there is none."""
    if given is not None:
        return given
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin/pip"), "install", "--quiet", RELEASE],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{RELEASE} cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    return folder / "bin/python"


def time_skypilot(python: Path, problems: list[list[list[int]]], repeats: int) -> list[tuple[float, int]]:
    """Return the median seconds of SkyPilot's dynamic programme, and its total, by problem."""
    lines = "\n".join(json.dumps(problem) for problem in problems for _ in range(repeats))
    done = subprocess.run([str(python), "-c", PEER], input=lines, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    groups = [found[begin : begin + repeats] for begin in range(0, len(found), repeats)]
    return [(statistics.median(seconds for seconds, _ in group), round(group[0][1])) for group in groups]


def plot(sizes: list[int], lines: dict[str, list[float]]) -> str:
    """Return times against size on logarithmic axes, as SVG."""
    left, right, low, high = np.log10(sizes[0]), np.log10(sizes[-1]), -4.0, 2.0

    def point(size: int, seconds: float) -> str:
        across, down = (np.log10(size) - left) / (right - left), (np.log10(seconds) - low) / (high - low)
        return f"{60 + 500 * across:.1f},{340 - 300 * down:.1f}"

    drawn = []
    for (name, seconds), colour in zip(lines.items(), ("#c0392b", "#2c6fbb"), strict=True):
        points = [point(size, each) for size, each in zip(sizes, seconds, strict=True)]
        x, y = points[-1].split(",")
        drawn.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(points)}"/>'
        )
        drawn.append(f'<text x="{x}" y="{y}" dy="-8" text-anchor="end" fill="{colour}">{name}</text>')
    grid = [f'<text x="8" y="{340 - 50 * step}">{10.0 ** (step - 4):g} s</text>' for step in range(7)]
    grid += [
        f'<text x="{point(size, 1e-4).split(",")[0]}" y="365" text-anchor="middle">{size}</text>'
        for size in sizes
    ]
    size = 'width="640" height="380" font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(grid + drawn)}</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", type=Path, default=None)
    parser.add_argument("--sizes", default="25,50,100,200,500")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        python = peer_python(arguments.python, Path(folder))
        if isinstance(python, str):
            print(f"skipped: {python}")
            return
        questions = [question(size) for size in sizes]
        shoestring_times = [time_shoestring(each, arguments.repeats) for each in questions]
        peer = time_skypilot(python, [costs(each) for each in questions], arguments.repeats)
    print(describe())
    heads = "".join(f"{name + ' ms':>12} {'times':>6}" for name in ("plan", "choice", "decision"))
    print(f"{'candidates a stage':>18} {'SkyPilot ms':>11}{heads}  total")
    for size, (seconds, own), (their_s, their) in zip(sizes, shoestring_times, peer, strict=True):
        same = "the same" if own == their else f"{own} and {their} micro-dollars: NOT THE SAME"
        ratios = "".join(f"{each * 1e3:>12.2f} {their_s / each:>6.0f}" for each in seconds)
        print(f"{size:>18} {their_s * 1e3:>11.1f}{ratios}  {same}")
    if arguments.out is not None:
        arguments.out.write_text(
            plot(
                sizes,
                {
                    f"SkyPilot {RELEASE[10:]}": [s for s, _ in peer],
                    "shoestring": [seconds[-1] for seconds, _ in shoestring_times],
                },
            )
        )
        print(f"plot: {arguments.out}")


if __name__ == "__main__":
    main()
