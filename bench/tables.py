"""Claim: on twenty real tables, a run without a `train` section predicts better than scikit-learn's gradient
boosting with early stopping, for $0.002 each: the geometric mean of the ratios of their losses is below 1.

The tables are those of `bench/tables.txt`, named before the first run. Each is drawn into halves ten times,
and one half is the test split. A run is a whole one, whose route step chooses the family. The peer is fitted
on the raw columns of the same rows, train and validation together, with its own early stopping. The loss is
the log loss, or the root of the squared error. A table's ratio is the geometric mean over its draws. Its
interval is that of Nadeau and Bengio, which knows that the draws share rows (2003, "Inference for the
generalization error", section 5); p-values of a ratio above 1.02 are corrected by Holm's method.

Settings and constants of the families are chosen on other tables, those of `bench/tuning_tables.txt`: each
line has a package, a file, the target and the columns to leave out.

python bench/tables.py [--draws 10] [--only NAME ...] [--family FAMILY] [--tuning] [--quick]

--quick: four tables, one draw; two minutes. Packages that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from machine import describe
from planted_data import RealTable, installed_tables
from scipy import stats
from sklearn.datasets import load_diabetes
from sklearn_boosting import fit, row_log_losses, with_categories

import shoestring
from shoestring.core.errors import ShoestringError
from shoestring.data.loading.open_split import require_encoding
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.split import assign_table
from shoestring.data.transforms.target import is_known

NAMED, TUNING = (Path(__file__).with_name(name) for name in ("tables.txt", "tuning_tables.txt"))
BUDGET, SPLIT = "0.002", {"train": 0.4, "val": 0.1, "test": 0.5}
QUICK = ("sklearn: wine_data", "sklearn: diabetes", "causaldata: Mroz", "statsmodels: anes96")
MOST_RATIO, LEVEL = 1.02, 0.05

Frame = Any


def named_tables(only: list[str]) -> list[tuple[str, str, Frame]]:
    """Return name, target and rows of the named tables that are installed."""
    found: dict[str, RealTable] = {table.name: table for table in installed_tables()}
    tables = list[tuple[str, str, Frame]]()
    for name in only or NAMED.read_text().split("\n"):
        if name == "sklearn: diabetes":
            tables.append((name, "target", load_diabetes(as_frame=True, scaled=False).frame))
        elif name in found:
            tables.append((name, found[name].target, found[name].read_clean()))
        elif name:
            print(f"{name}: left out, it is not installed")
    return tables


def tuning_tables() -> list[tuple[str, str, Frame]]:
    """Return name, target and rows of the tables that settings are chosen on, if they are installed."""
    tables = list[tuple[str, str, Frame]]()
    for line in TUNING.read_text().splitlines():
        package, file, target, *left_out = line.replace(":", "").split()
        if importlib.util.find_spec(package) is None:
            print(f"{line}: left out, it is not installed")
            continue
        table = RealTable(package, file, target, tuple(left_out))
        tables.append((table.name, target, table.read_clean().dropna(subset=[target])))
    return tables


def losses(target: str, frame: Frame, folder: Path, draw: int, family: str) -> tuple[float, float]:
    """Return our loss and the peer's on the test half of a draw."""
    folder.mkdir(parents=True)
    frame.to_csv(folder / "rows.csv", index=False)
    keys = {"name": "mine", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": target}}
    train = {"train": {"family": family}} if family else {}
    recipe = Recipe.model_validate(keys | {"split": SPLIT, "seed": draw, "budget_usd": BUDGET} | train)
    run = shoestring.run(recipe, seed=draw, store=folder / "store", out=folder / "out", wait=True)
    results = run.evaluation
    assert results is not None, run
    ours = results.model.scores[results.metric].value
    return ours, peer_loss(run.store, recipe, results.inputs["data"], target, draw)


def peer_loss(store: Any, recipe: Recipe, dataset_key: str, target: str, draw: int) -> float:
    """Return the loss of scikit-learn's boosting on the raw columns of the same rows."""
    manifest = load_manifest(store, dataset_key)
    encoding, raw = require_encoding(manifest), load_manifest(store, manifest.parents[0])
    rows = pa.concat_tables(open_part(store, raw, part) for part in raw.splits["rows"])
    splits = np.asarray(assign_table(rows, recipe, rows.column_names)[1].split_indices)
    known = np.asarray(is_known(rows[target]).combine_chunks())
    text = rows[target].cast(pa.string()).to_pandas() if encoding.classes else rows[target].to_pandas()
    inputs = with_categories(rows.drop([target]).to_pandas())
    if encoding.classes:
        codes = text.map({name: code for code, name in enumerate(encoding.classes)})
        known &= codes.notna().to_numpy()
        y = codes.fillna(-1).to_numpy().astype(int)
    else:
        y = text.to_numpy().astype(float)
    is_test = known & (splits == 2)
    fitted = known & ~is_test
    model = fit(inputs[fitted], y[fitted], is_classifier=bool(encoding.classes), seed=draw)
    if not encoding.classes:
        return float(np.sqrt(np.mean((model.predict(inputs[is_test]) - y[is_test]) ** 2)))
    return float(row_log_losses(model, inputs[is_test], y[is_test]).mean())


def ratio_line(name: str, logs: list[float]) -> tuple[float, float]:
    """Print a table's ratio with its interval; return its logarithm, and the p-value of more than 1.02."""
    mean, count = float(np.mean(logs)), len(logs)
    if count < 2:
        print(f"{name}: {math.exp(mean):.4f}", flush=True)
        return mean, 1.0
    error = math.sqrt((1 / count + SPLIT["test"] / (1 - SPLIT["test"])) * float(np.var(logs, ddof=1)))
    half = float(stats.t.ppf(0.975, count - 1)) * error
    print(
        f"{name}: {math.exp(mean):.4f} [{math.exp(mean - half):.4f}, {math.exp(mean + half):.4f}]", flush=True
    )
    p = float(stats.t.sf((mean - math.log(MOST_RATIO)) / error, count - 1)) if error else float(mean > 0)
    return mean, p


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=10)
    options.add_argument("--only", nargs="*", default=[])
    options.add_argument("--family", default="", help="a family instead of the one that is chosen")
    options.add_argument("--tuning", action="store_true", help="the tables that settings are chosen on")
    options.add_argument("--quick", action="store_true")
    given = options.parse_args()
    only, draws = (list(QUICK), 1) if given.quick else (given.only, given.draws)
    print(describe())
    found = dict[str, tuple[float, float]]()
    with tempfile.TemporaryDirectory() as name:
        for number, (table, target, frame) in enumerate(
            tuning_tables() if given.tuning else named_tables(only)
        ):
            logs = list[float]()
            for draw in range(draws):
                try:
                    folder = Path(name, f"{number}-{draw}")
                    ours, theirs = losses(target, frame, folder, draw, given.family)
                except (ShoestringError, ValueError) as error:
                    print(f"{table}: draw {draw} left out, {str(error).splitlines()[0]}")
                    continue
                logs.append(math.log(ours / theirs))
            if logs:
                found[table] = ratio_line(table, logs)
    means = np.array([mean for mean, _ in found.values()])
    half = float(stats.t.ppf(0.975, len(means) - 1) * stats.sem(means))
    low, high = math.exp(means.mean() - half), math.exp(means.mean() + half)
    print(f"geometric mean of {len(means)} tables: {math.exp(means.mean()):.4f} [{low:.4f}, {high:.4f}]")
    ordered = sorted(found, key=lambda table: found[table][1])
    worse = list[str]()
    for rank, table in enumerate(ordered):
        if found[table][1] * (len(ordered) - rank) > LEVEL:
            break
        worse.append(table)
    print(f"above {MOST_RATIO} after Holm's correction: {', '.join(worse) or 'none'}")


if __name__ == "__main__":
    main()
