"""Claim: on flights, over 10 folds of days, a training takes at most 1.75 times the CPU-seconds of
scikit-learn's gradient boosting with early stopping, and its mean log loss is lower.

A fold is one seed of the recipe, which draws whole days for train, validation and test. Both sides learn from
the days of train and validation, and predict those of test. Shoestring's is the train stage, with the family
that `auto` prefers and the money that a run of the recipe grants it. Its peer gets the raw features of the
same rows. Its early stopping gets the rows of the same validation days (`--validation days`), or draws as
many from all days at random, as it does by default (`--validation rows`). Random rows share their weather
with rows of train, so that it stops later.

Each side is a process of its own with one thread, and they take turns to be first. Its CPU-seconds are user
and system time of the process and its children, as the kernel reports them at its end. They include the
start of Python and all imports, reading, training, validations, and the weights written to a file. Shoestring
reads the data set that preprocess encoded, and its peer a Parquet file of joined rows whose categories it
encodes: reading CSV, joining and splitting count for neither. The CPU-seconds of preprocess, which encodes
once for all trainings on a data set, are printed as well.

The interval of the difference is a bootstrap over days: all test rows of a day, in all folds, are drawn
together. The claim holds if the interval is below 0.

python bench/flights_days.py [--folds 10] [--validation days|rows] [--quick]

--quick: one fold; two minutes.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # stage_work

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from flights_sides import fold_recipe, rows_file
from machine import describe
from sklearn_boosting import log_losses, row_log_losses, with_categories
from stage_work import stage_work

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.processes import THREAD_VARIABLES
from shoestring.data.loading.open_split import open_split
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.transforms.joined_table import JoinedTable
from shoestring.data.transforms.target import is_known
from shoestring.evaluation.split_rows import read_targets
from shoestring.stages import ingest, preprocess
from shoestring.training.families.predict import predict

MOST_RATIO = 1.75
RESAMPLES = 10_000

Floats = np.ndarray[Any, np.dtype[np.float64]]
Days = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class FoldRows:
    """The rows of a fold. `test`: the raw features of the test rows, and their `y` and `day`."""

    data_key: str
    preprocess_s: float
    test: pa.Table


@dataclass(frozen=True)
class MeasuredFold:
    """CPU-seconds of both sides, and the log loss of each test row: float64[rows]."""

    ours_s: float
    theirs_s: float
    preprocess_s: float
    ours: Floats
    theirs: Floats
    days: Days


def fold_rows(folder: Path, raw_key: str, fold: int) -> FoldRows:
    """Encode a fold, and write the file of its peer."""
    recipe, store = fold_recipe(fold), FolderStore(folder / "store")
    began_s = time.process_time()
    data = preprocess.run(stage_work(folder, recipe, "preprocess", seed=fold, data=raw_key))
    preprocess_s = time.process_time() - began_s
    target, above = recipe.target.column, recipe.target.above
    joined = JoinedTable(recipe, load_manifest(store, raw_key), store)
    batches, splits = list[pa.Table](), list[Days]()
    for part in range(len(joined.parts)):
        for batch, assigned in joined.batches(part):
            known = np.asarray(is_known(batch[target]))
            kept = batch.filter(pa.array(known))
            features = pa.table(
                {name: kept[name].cast(pa.string()) for name in recipe.categorical}
                | {name: kept[name] for name in recipe.numeric}
            )
            y = pa.array((kept[target].to_numpy() > above).astype(int))
            day = pa.array(kept["month"].to_numpy() * 100 + kept["day"].to_numpy())
            batches.append(features.append_column("y", y).append_column("day", day))
            splits.append(assigned.split_indices[known])
    rows, split = pa.concat_tables(batches), np.concatenate(splits)
    is_test, is_validation = split == SPLITS.index("test"), pa.array(split == SPLITS.index("val"))
    learned = rows.drop_columns("day").append_column("is_validation", is_validation)
    pq.write_table(learned.filter(pa.array(~is_test)), rows_file(folder, fold))
    return FoldRows(data.key, preprocess_s, rows.filter(pa.array(is_test)))


def trained(side: str, folder: Path, fold: int, last: str) -> tuple[float, str]:
    """Train one side in a process of its own; return its CPU-seconds and where its weights are."""
    script = Path(__file__).with_name("flights_sides.py")
    command = [sys.executable, str(script), side, str(folder), str(fold), last]
    env = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    with process.stdout:
        printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"fold {fold}: the process of {side} failed with code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, printed.strip().splitlines()[-1]


def measured_fold(folder: Path, raw_key: str, fold: int, validation: str) -> MeasuredFold:
    """Train both sides on a fold, and predict its test rows."""
    rows, store = fold_rows(folder, raw_key, fold), FolderStore(folder / "store")
    last = {"shoestring": rows.data_key, "boosting": validation}
    order = ["shoestring", "boosting"] if fold % 2 == 0 else ["boosting", "shoestring"]
    found = {side: trained(side, folder, fold, last[side]) for side in order}
    (ours_s, model_key), (theirs_s, path) = found["shoestring"], found["boosting"]
    test = open_split(store, load_manifest(store, rows.data_key), "test")
    y = rows.test["y"].to_numpy()
    assert np.array_equal(y, read_targets(test)), "the sides have other test rows"
    inputs = with_categories(rows.test.drop_columns(["y", "day"]).to_pandas())
    return MeasuredFold(
        ours_s,
        theirs_s,
        rows.preprocess_s,
        log_losses(predict(store, model_key, test)[np.arange(len(y)), y]),
        row_log_losses(pickle.loads(Path(path).read_bytes()), inputs, y),
        rows.test["day"].to_numpy(),
    )


def day_interval(difference: Floats, days: Days) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the mean difference of the rows, over days."""
    _, day_of_row = np.unique(days, return_inverse=True)
    sums, counts = np.bincount(day_of_row, difference), np.bincount(day_of_row)
    drawn = np.random.default_rng(0).integers(0, len(counts), (RESAMPLES, len(counts)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
    return float(low), float(high)


def is_met(folds: list[MeasuredFold]) -> bool:
    """Print the figures of all folds; return whether the claim holds."""
    ratios = [each.ours_s / each.theirs_s for each in folds]
    encoded = [(each.ours_s + each.preprocess_s) / each.theirs_s for each in folds]
    ours, theirs, days = (
        np.concatenate([getattr(each, name) for each in folds]) for name in ("ours", "theirs", "days")
    )
    low, high = day_interval(ours - theirs, days)
    print(
        f"CPU-seconds: {np.mean(ratios):.2f} times scikit-learn's ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"at most {MOST_RATIO:g} asked; {np.mean(encoded):.2f} times with preprocess"
    )
    print(
        f"mean log loss: {ours.mean():.4f}, scikit-learn's {theirs.mean():.4f}, difference "
        f"{(ours - theirs).mean():+.5f} [{low:+.5f}, {high:+.5f}] over {len(np.unique(days))} days"
    )
    return bool(np.mean(ratios) <= MOST_RATIO and high < 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--validation", choices=["days", "rows"], default="days")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(describe(), flush=True)
    folds = list[MeasuredFold]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = ingest.run(stage_work(folder, fold_recipe(0), "ingest"))
        for fold in range(1 if args.quick else args.folds):
            folds.append(found := measured_fold(folder, raw.key, fold, args.validation))
            print(
                f"fold {fold}, {len(found.ours):,} test rows of {len(np.unique(found.days))} days: "
                f"{found.ours_s:.1f} CPU-seconds, scikit-learn's {found.theirs_s:.1f}, ratio "
                f"{found.ours_s / found.theirs_s:.2f}; log loss {found.ours.mean():.4f}, scikit-learn's "
                f"{found.theirs.mean():.4f}; preprocess {found.preprocess_s:.1f} CPU-seconds",
                flush=True,
            )
    holds = is_met(folds)
    print("holds" if holds else "does not hold")
    raise SystemExit(not holds)


if __name__ == "__main__":
    main()
