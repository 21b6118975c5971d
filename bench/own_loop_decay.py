"""Claim: of all the decays tried, none has a mean over the scripts of bench/scripts that is more than 0.5%
better than that of Shoestring.

Each script runs over the same number of steps: as it is, and with a rate that rises for 5% of the steps,
stays, and falls to zero: "0.2" linearly over the last 20%, "0.2q" as a square, "-" as Shoestring's. A row is
a script; a number is the last validation loss relative to that of the script as it is, over the seeds.

python bench/own_loop_decay.py [--seeds 5] [--only cnn characters verses words]
    [--forms 0.1 0.2 0.4 0.8 0.2q -] [--jobs 1] [--quick] [--fashion FOLDER]

--quick: cnn, one seed, 0.8 and Shoestring's; two minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from machine import describe
from own_loop import FASHION, SCRIPT_NAMES, interval, scripts_in
from own_loop_runs import TrainingScript, one_thread, read_log

STEPS = {"cnn": 2000, "characters": 1200, "verses": 1200, "words": 1500}
OWN, AS_IT_IS, MOST_WORSE = "-", "as it is", 0.005
FORMS = ["0.1", "0.2", "0.4", "0.8", "0.2q", OWN]
RUNNER = Path(__file__).with_name("own_loop_steps.py")


def loss_of(script: TrainingScript, form: str, seed: int, folder: Path) -> float:
    """Run a script, and return its last validation loss."""
    log, steps = folder / f"{script.name} {form} {seed}.txt", STEPS[script.name]
    words = script.arguments(form != AS_IT_IS, steps, seed, log)
    if form != AS_IT_IS:
        words = [sys.executable, str(RUNNER), form, str(steps), *words[1:]]
    (own_folder := log.with_suffix("")).mkdir()
    done = subprocess.run(
        words, cwd=own_folder, env=one_thread(), capture_output=True, text=True, check=False
    )
    found = read_log(log)
    if done.returncode or len(found.rates) != steps:
        raise SystemExit(f"{script.name}, {form}: {len(found.rates)} of {steps} steps\n{done.stderr[-2000:]}")
    return found.loss


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=SCRIPT_NAMES, default=SCRIPT_NAMES)
    parser.add_argument("--forms", nargs="+", default=FORMS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fashion", type=Path, default=FASHION)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    only, seeds, forms = (["cnn"], 1, ["0.8", OWN]) if args.quick else (args.only, args.seeds, args.forms)
    print(describe(), flush=True)
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(args.jobs) as pool:
        for script in scripts_in(folder := Path(name), only, args.fashion.absolute()):
            runs = {
                (form, seed): pool.submit(loss_of, script, form, seed, folder)
                for form in [AS_IT_IS, *forms]
                for seed in range(seeds)
            }
            losses = {key: run.result() for key, run in runs.items()}
            found[script.name] = {
                form: [losses[form, seed] / losses[AS_IT_IS, seed] - 1 for seed in range(seeds)]
                for form in forms
            }
            print_row(script.name, found[script.name])
    means = {form: mean(mean(each[form]) for each in found.values()) for form in forms}
    print(f"{'mean':11}" + "".join(f"{form:>6} {value:+7.2%}{'':17}" for form, value in means.items()))
    best = min(means, key=lambda form: means[form])
    is_met = means.get(OWN, 0.0) - means[best] <= MOST_WORSE
    print(f"the best is {best}: the claim {'holds' if is_met else 'does not hold'}")
    print(json.dumps({"losses": found, "means": means, "best": best, "met": is_met}))


def print_row(name: str, by_form: dict[str, list[float]]) -> None:
    cells = list[str]()
    for form, values in by_form.items():
        limits = interval(values)
        shown = "" if limits is None else f"[{limits[0]:+.2%}, {limits[1]:+.2%}]"
        cells.append(f"{form:>6} {mean(values):+7.2%} {shown:16}")
    print(f"{name:11}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
