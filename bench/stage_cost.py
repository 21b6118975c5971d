"""Claim: the formula of a table's ingest and preprocess gives their seconds within a factor of 2, for tables
of 4 to 2,400 columns and 200 to 20,000 rows, of at most 12,000,000 values.

Each table is a seeded CSV file, of numbers and a share of words, with a recipe that names no features. A
process of its own measures the CPU time of each stage on one thread. To these are added the seconds of the
stage's imports, as its NEED states them. The formula is that of the routers: of ingest with what the files
show, of preprocess with what the manifest shows. `before`: the formula of a stage by its rows alone.

python bench/stage_cost.py [--format packed] [--quick]

--quick: tables of at most 250,000 values; a minute. All: three minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from machine import describe

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import Format, Need
from shoestring.data.needs.table_needs import sizes_of_raw
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess
from shoestring.stages.ingest import NEED as INGEST
from shoestring.stages.preprocess import NEED as PREPROCESS
from shoestring.training.families.recipe_needs import RecipeNeeds

MOST_RATIO, QUICK_VALUES = 2.0, 250_000
ROWS, COLUMNS, WORD_SHARES = (200, 2_000, 20_000), (4, 100, 600, 2_400), (0.0, 0.3, 1.0)
MOST_VALUES = 12_000_000
WARM = (200, 4, 0.3)


@dataclass(frozen=True)
class Stage:
    """The seconds of a stage: by rows alone, by the formula, and of a run."""

    before_s: float
    formula_s: float
    taken_s: float

    @property
    def ratio(self) -> float:
        return self.formula_s / self.taken_s

    def __str__(self) -> str:
        return f"{self.before_s:6.2f} {self.formula_s:8.2f} {self.taken_s:9.2f} {self.ratio:6.2f}"


def write_table(path: Path, rows: int, columns: int, word_share: float) -> None:
    rng, words = np.random.default_rng(0), round((columns - 1) * word_share)
    made: dict[str, pa.Array] = {}
    for at in range(columns - 1):
        values = rng.normal(size=rows).round(5) if at >= words else rng.integers(0, 50, rows)
        made[f"c{at}"] = pa.array(values if at >= words else [f"value {each}" for each in values])
    made["y"] = pa.array(np.where(rng.normal(size=rows) > 0, "yes", "no"))
    pa.csv.write_csv(pa.table(made), path)


def seconds(need: Need, rows: int) -> float:
    return need.setup_s + need.cpu_us_per_row * 1e-6 * rows


def measure(shape: tuple[int, int, float], format: Format, folder: Path) -> dict[str, Stage]:
    """Run both stages on a table of this shape, and return their seconds."""
    write_table(folder / "rows.csv", *shape)
    fields = {"name": "t", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": "y"}}
    recipe, store, rows = Recipe.model_validate(fields), FolderStore(folder / "store"), shape[0]
    size = estimate_size(recipe)
    needs = RecipeNeeds(recipe, size.rows_estimate, size.row_bytes, tables=size.tables)
    ingest_need = needs.of_stage(INGEST)
    began_s = time.process_time()
    raw, manifest = ingest(recipe, format, store, folder, lambda *_: None)
    ingest_s = time.process_time() - began_s
    tables = sizes_of_raw(manifest.columns)
    preprocess_need = RecipeNeeds(recipe, rows, manifest.row_bytes, tables=tables).of_stage(PREPROCESS)
    began_s = time.process_time()
    preprocess(recipe, raw, format, store, folder, lambda *_: None)
    preprocess_s = time.process_time() - began_s
    return {
        each.stage: Stage(seconds(each, rows), seconds(need, rows), each.setup_s + taken_s)
        for each, need, taken_s in (
            (INGEST, ingest_need, ingest_s),
            (PREPROCESS, preprocess_need, preprocess_s),
        )
    }


def measure_alone(rows: int, columns: int, word_share: float, format: str) -> dict[str, Stage]:
    """Measure in a process of its own, after a small table."""
    words = [sys.executable, __file__, "--measure", str(rows), str(columns), str(word_share)]
    done = subprocess.run([*words, "--format", format], check=True, capture_output=True, text=True)
    return {name: Stage(**each) for name, each in json.loads(done.stdout).items()}


def print_measured(shape: list[str], format: Format) -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for each in (WARM, (int(shape[0]), int(shape[1]), float(shape[2]))):
        with tempfile.TemporaryDirectory() as folder:
            found = measure(each, format, Path(folder))
    print(json.dumps({name: vars(stage) for name, stage in found.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--format", choices=[*Format], default=Format.PACKED)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return print_measured(args.measure, Format(args.format))
    print(describe(), flush=True)
    print("   rows columns words  stage       before  formula  measured  ratio")
    most, worst = QUICK_VALUES if args.quick else MOST_VALUES, 1.0
    shapes = [(r, c, w) for r in ROWS for c in COLUMNS for w in WORD_SHARES if r * c <= most]
    for rows, columns, share in shapes:
        for name, stage in measure_alone(rows, columns, share, args.format).items():
            print(f"{rows:7,} {columns:7,} {share:5.0%}  {name:10} {stage}", flush=True)
            worst = max(worst, stage.ratio, 1 / stage.ratio)
    print(f"at most a factor of {worst:.2f}, {MOST_RATIO:g} asked")
    raise SystemExit(worst > MOST_RATIO)


if __name__ == "__main__":
    main()
