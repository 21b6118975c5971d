"""Claim: boosting on the stored fields is as good as on those of skrub's TableVectorizer: the geometric mean
of the ratios of their test losses is at most 1.01.

The family `boosted` with its defaults, and scikit-learn's HistGradientBoosting with its own, are fitted on
the same train rows of each table of bench/planted_data.py, stop by the same validation rows, and predict the
same test rows. The loss is the log loss, or the squared error over the variance of the test target; the ratio
is of means. A table counts as worse where the 95% bootstrap interval of the difference, over test rows, is
above 0. Tables with fewer than 20 test rows are left out.

The peer runs in an environment of its own, with skrub and pyarrow; without --peer, the bench is skipped.

python bench/field_quality.py --peer ENVIRONMENT/bin/python [--only NAME]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from machine import describe
from planted_data import RealTable, installed_tables

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import ShoestringError
from shoestring.core.types import Format
from shoestring.data.loading.open_split import open_split, require_encoding
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess
from shoestring.data.transforms.split import assign_table
from shoestring.data.transforms.target import is_known
from shoestring.evaluation.baselines import predict_trees, train_trees
from shoestring.evaluation.split_rows import read_targets

Floats = np.ndarray[Any, np.dtype[np.float64]]
MIN_TEST_ROWS = 20
DRAWS = 2000
MAX_RATIO = 1.01
PEER = Path(__file__).with_name("field_quality_peer.py")


def quiet(what: str, rows: int) -> None:
    """Accept a progress report and ignore it."""


class Comparison(NamedTuple):
    """Losses of a table's test rows: ours over the peer's, and ours less the peer's with its interval."""

    rows: int
    ratio: float
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        return "worse" if self.low > 0 else "better" if self.high < 0 else "tied"


def compare(table: RealTable, folder: Path, peer: str) -> Comparison:
    """Return the losses on the rows of test. Raises ValueError for too few of them."""
    folder.mkdir()
    path, target = folder / "rows.csv", {"column": table.target}
    table.read_clean().to_csv(path, index=False)
    recipe = Recipe.model_validate({"name": "mine", "source": {"rows": {"path": path}}, "target": target})
    store = FolderStore(folder / "store")
    raw_key, raw = ingest(recipe, Format.ARROW, store, folder, quiet)
    _, manifest = preprocess(recipe, raw_key, Format.ARROW, store, folder, quiet)
    encoding = require_encoding(manifest)
    read = {split: open_split(store, manifest, split) for split in SPLITS}
    if len(y := read_targets(read["test"])) < MIN_TEST_ROWS:
        raise ValueError(f"{len(y)} test rows")
    trees = train_trees(encoding, read["train"], read["val"], 0, 1, lambda _: None)
    ours = predict_trees(encoding, trees, read["test"])
    rows = pa.concat_tables(open_part(store, raw, part) for part in raw.splits["rows"])
    splits = assign_table(rows, recipe, rows.column_names)[1].split_indices
    known = np.asarray(is_known(rows[table.target]).combine_chunks())
    text = rows[table.target].cast(pa.string()) if encoding.task != "regression" else rows[table.target]
    rows = rows.drop([table.target]).append_column("_y", text).append_column("_split", pa.array(splits))
    pq.write_table(rows.filter(pa.array(known)), folder / "peer.parquet")
    subprocess.run(
        [peer, str(PEER), str(folder), ",".join(encoding.classes)], check=True, capture_output=True
    )
    theirs = np.load(folder / "peer.npy")
    mine, peers = losses(ours, y, encoding.task), losses(theirs, y, encoding.task)
    drawn = np.random.default_rng(0).integers(0, len(y), (DRAWS, len(y)))
    low, high = np.quantile((mine - peers)[drawn].mean(1), [0.025, 0.975])
    return Comparison(len(y), mine.mean() / peers.mean(), (mine - peers).mean(), low, high)


def losses(predicted: Any, y: Any, task: str) -> Floats:
    """Return the loss of each row: float64[rows]."""
    found: Floats
    if task == "regression":
        found = (predicted - y) ** 2 / y.var()
        return found
    found = -np.log(np.clip(predicted[np.arange(len(y)), y.astype(int)], 1e-7, 1))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--peer", help="Python of an environment with skrub")
    options.add_argument("--only", default="", help="the tables whose names contain this")
    given = options.parse_args()
    if given.peer is None:
        print("skipped: name the Python of an environment with skrub by --peer")
        return
    print(describe())
    found: list[Comparison] = []
    tables = [table for table in installed_tables() if given.only in table.name]
    with tempfile.TemporaryDirectory() as name:
        for number, table in enumerate(tables):
            try:
                found.append(each := compare(table, Path(name, str(number)), given.peer))
            except (ShoestringError, ValueError) as error:
                print(f"{table.name}, target {table.target}: left out, {str(error).splitlines()[0]}")
                continue
            except subprocess.CalledProcessError as error:
                print(f"{table.name}: the peer failed: {error.stderr.decode().splitlines()[-1]}")
                continue
            print(
                f"{table.name}, {each.rows:,} test rows: ratio {each.ratio:.3f}, difference "
                f"{each.difference:+.4f} [{each.low:+.4f}, {each.high:+.4f}] {each.verdict}",
                flush=True,
            )
    ratio = float(np.exp(np.mean(np.log([each.ratio for each in found]))))
    worse = sum(each.verdict == "worse" for each in found)
    print(f"ratio of losses, geometric mean of {len(found)} tables: {ratio:.3f}; worse on {worse}")
    raise SystemExit(ratio > MAX_RATIO)


if __name__ == "__main__":
    main()
