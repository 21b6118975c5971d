"""Claim: the folder of a model predicts raw rows as the evaluation predicted encoded ones, to 1e-5, on the
tables of `bench/tables.txt`, without torch; its file of ONNX as the model, to 1e-4; a million rows in under
500 MB.

Each table is drawn into halves, and one half is the test split. A run without a `train` section trains a
blend of trees and a network. A process that cannot import torch then predicts the raw table, and its
predictions of the test rows are compared with those of the evaluation's predictor: the largest difference of
a probability, or of a number over the standard deviation of the target. The file of ONNX is compared with the
model on all rows, and on two for each threshold of a number in the forest.

The rows of the last table are repeated to a million, and predicted in another process, whose peak memory and
rows a second are printed, beside those of scikit-learn's boosting with pandas, which reads the file at once.

python bench/model_folder.py [--only NAME ...] [--rows 1000000] [--quick]

--quick: four tables, and 300,000 rows; two minutes. Packages that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from machine import describe
from predict_without_torch import PREDICT
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from tables import BUDGET, QUICK, SPLIT, named_tables
from threshold_rows import threshold_rows

import shoestring
from shoestring.core import store_layout
from shoestring.data.loading.open_split import open_split, require_encoding
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.split import assign_table
from shoestring.data.transforms.target import is_known
from shoestring.models.data_files import open_rows
from shoestring.models.model import model_at
from shoestring.models.onnx_file import write_onnx
from shoestring.training.families.predict import predict

MOST_DIFFERENCE, MOST_ONNX_DIFFERENCE, MOST_MB = 1e-5, 1e-4, 500
PEER = """
import pickle, resource, sys, time
import pandas

model, data, out = sys.argv[1:]
began_s = time.process_time()
model, kinds = pickle.load(open(model, "rb"))
frame = pandas.read_csv(data, keep_default_na=True)
for name, kind in kinds.items():
    frame[name] = frame[name].astype(kind)
frame = frame[[*kinds]]
found = model.predict_proba(frame) if hasattr(model, "predict_proba") else model.predict(frame)
pandas.DataFrame(found).rename(columns=str).to_parquet(out)
print(len(frame), time.process_time() - began_s)
"""


# The kernel's ru_maxrss would be at least that of the process that started this one.
PEAK = """
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak.split()[1])
"""


def call(code: str, *arguments: Path) -> tuple[int, float, float]:
    """Return the rows, the CPU-seconds and the peak memory in MB of a process."""
    command = [sys.executable, "-c", code + PEAK, *map(str, arguments)]
    rows, cpu_s, peak_kb = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(rows), float(cpu_s), float(peak_kb) / 1024


def trained(target: str, frame: Any, folder: Path) -> Any:
    """Return a run on a table, whose files are in `folder`."""
    folder.mkdir(parents=True)
    frame.to_csv(folder / "rows.csv", index=False)
    keys = {"name": "mine", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": target}}
    recipe = Recipe.model_validate(keys | {"split": SPLIT, "budget_usd": BUDGET})
    return shoestring.run(recipe, seed=0, store=folder / "store", out=folder / "out", wait=True)


def difference(run: Any, target: str, folder: Path) -> float:
    """Return the largest difference of the two predictions of the test rows."""
    call(PREDICT, folder / "out", folder / "rows.csv", folder / "out.parquet")
    found = pq.read_table(folder / "out.parquet")
    store = run.store
    key = run.evaluation.inputs["data"]
    manifest = load_manifest(store, key)
    encoding, raw = require_encoding(manifest), load_manifest(store, manifest.parents[0])
    expected = predict(store, store_layout.model(run.run_id), open_split(store, manifest, "test"))
    rows = pa.concat_tables(open_part(store, raw, part) for part in raw.splits["rows"])
    if rows.num_rows != found.num_rows:
        raise SystemExit(f"{folder.name}: ingest left rows out, which cannot be compared")
    splits = np.asarray(assign_table(rows, run.story.record.recipe, rows.column_names)[1].split_indices)
    is_test = (splits == 2) & np.asarray(is_known(rows[target]).combine_chunks())
    if not encoding.classes:
        sd = encoding.train_prior[1] or 1.0
        return float(np.abs(found["prediction"].to_numpy()[is_test] - expected).max()) / sd
    columns = [found[f"probability_{name}"].to_numpy()[is_test] for name in encoding.classes]
    ours = np.stack(columns, axis=1)
    texts = rows[target].cast(pa.string()).to_pandas()[is_test]
    known = texts.isin([*encoding.classes]).to_numpy()
    return float(np.abs(ours[known] - expected).max())


def onnx_difference(folder: Path) -> tuple[float, int]:
    """Return the largest difference of the file of ONNX and the model, and the number of thresholds."""
    model = model_at(folder / "out")
    write_onnx(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    rows, near, worst = open_rows(folder / "rows.csv"), threshold_rows(model), 0.0
    reader = model.reader(rows.columns, folder.name, {})
    for samples in (*map(reader.encode, rows.batches), near):
        inputs = {each.name: samples[each.name] for each in session.get_inputs()}
        found, expected = session.run(None, inputs)[-1], model.predict_samples(samples)
        worst = max(worst, float(np.abs(found - expected).max(initial=0)))
    scale = 1.0 if model.encoding.classes else model.encoding.train_prior[1] or 1.0
    return worst / scale, len(near) // 2


def fit_peer(target: str, frame: Any, path: Path) -> None:
    """Write a fitted boosting of scikit-learn, and the types of its columns."""
    import pickle

    inputs = frame.drop(columns=target)
    for name in inputs:
        if not pd.api.types.is_numeric_dtype(inputs[name]):
            kept = inputs[name].value_counts().index[:254]
            inputs[name] = inputs[name].where(inputs[name].isin(kept)).astype("category")
    y = frame[target]
    is_number = pd.api.types.is_float_dtype(y) or y.nunique() > 20
    kind = HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier
    known = y.notna()
    model = kind(categorical_features="from_dtype").fit(inputs[known], y[known])
    path.write_bytes(pickle.dumps((model, inputs.dtypes.to_dict())))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.only, options.rows = options.only or [*QUICK], min(options.rows, 300_000)
    print(describe())
    worst = worst_onnx = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        tables = named_tables(options.only)
        for name, target, frame in tables:
            folder = Path(scratch) / name.replace(": ", "-")
            began_s = time.monotonic()
            run = trained(target, frame, folder)
            if run.evaluation is None:
                raise SystemExit(f"{name}: {run.summary.reason}")
            found = difference(run, target, folder)
            by_onnx, thresholds = onnx_difference(folder)
            worst, worst_onnx = max(worst, found), max(worst_onnx, by_onnx)
            print(
                f"{name}: {found:.2e}, by ONNX {by_onnx:.2e}, {thresholds} thresholds "
                f"({time.monotonic() - began_s:.0f} s)",
                flush=True,
            )
        name, target, frame = tables[-1]
        many = pd.concat([frame] * -(-options.rows // len(frame)))[: options.rows]
        many.to_csv(folder / "many.csv", index=False)
        fit_peer(target, frame, folder / "peer")
        ours = call(PREDICT, folder / "out", folder / "many.csv", folder / "many.parquet")
        peer = call(PEER, folder / "peer", folder / "many.csv", folder / "peer.parquet")
    print(
        f"{name}, {ours[0]:,} rows: {ours[2]:.0f} MB at most, {ours[0] / ours[1]:,.0f} rows a CPU-second; "
        f"scikit-learn's boosting {peer[2]:.0f} MB, {peer[0] / peer[1]:,.0f} rows a CPU-second"
    )
    is_met = worst <= MOST_DIFFERENCE and worst_onnx <= MOST_ONNX_DIFFERENCE and ours[2] < MOST_MB
    print(json.dumps({"worst": worst, "worst_onnx": worst_onnx, "peak_mb": ours[2], "met": is_met}))
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
