"""Claim: a new version of a folder of files costs `ingest` and `preprocess` what its new files cost.

python bench/increments.py [--quick] [--size-gb 1] [--files 100] [--results FILE]

The script writes a folder of seeded CSV files, no two alike, with a column of up to a million values. It
ingests and preprocesses all of them; then again after 1% of the files changed, were added and were removed,
each compared with the new or removed files alone, in a store of their own. Each step is a process of its own:
CPU time after the imports, peak memory, and the bytes that it wrote to the store. `unchanged` finds both
results in the cache: the fingerprint of the files, and the check of what the entries name. `first look` is
the same before it: it reads all stored bytes through, once a volume, which otherwise a later stage does.

Both stages together must take at most 1.5 times the CPU of the 1% alone + 2 s, and `unchanged` at most 1 s +
0.5 ms a file. A step whose line is in the results file is not repeated.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import STANDARD_CLASS, Format, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.storage.cache import find_outcome, save_outcome
from shoestring.data.storage.part_writer import REUSING
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess

ROW_BYTES = 77
LOOKS = ("first look", "unchanged")
CHANGES = ("changed", "added", "removed")
MAX_RATIO, MAX_EXTRA_S = 1.5, 2.0


def write_file(path: Path, seed: int, size_bytes: int) -> None:
    random, rows = np.random.default_rng(seed), size_bytes // ROW_BYTES
    numbers = random.normal(100, 30, (6, rows)).round(6)
    table = {f"number{index}": numbers[index] for index in range(6)}
    table["few"] = random.integers(0, 40, rows)
    table["many"] = random.integers(0, 1_000_000, rows).astype(str).astype(object)
    table["y"] = (numbers[0] + random.normal(0, 30, rows) > 100).astype(int)
    pa.csv.write_csv(pa.table({name: pa.array(column) for name, column in table.items()}), path)


class CountingStore(FolderStore):
    """A store that counts the bytes that are written to it."""

    written = 0

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        self.written += len(data) if isinstance(data, bytes) else data.stat().st_size
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def recipe_of(data: Path) -> Recipe:
    recipe = {
        "name": "increments",
        "source": {"rows": {"path": data}},
        "target": {"column": "y"},
        "numeric": [f"number{index}" for index in range(6)],
        "categorical": ["few", "many"],
    }
    return Recipe.model_validate(recipe)


def measure(step: str, data: Path, store_folder: Path) -> dict[str, float]:
    """Do one step, and return seconds of CPU, rows and bytes."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    store, recipe = CountingStore(store_folder), recipe_of(data)
    found: dict[str, float] = {}
    rows: dict[str, int] = {}
    start = time.process_time()
    if step in LOOKS:
        assert fingerprint(recipe, store)
        assert all(find_outcome(store, key) for key in ("ingest", "preprocess"))
        found["cache_s"] = time.process_time() - start
    else:
        with tempfile.TemporaryDirectory(dir=store_folder.parent) as scratch:
            raw, manifest = ingest(recipe, Format.PACKED, store, Path(scratch), rows.__setitem__)
            found["ingest_s"] = time.process_time() - start
            start = time.process_time()
            key, encoded = preprocess(recipe, raw, Format.PACKED, store, Path(scratch), rows.__setitem__)
            found["preprocess_s"] = time.process_time() - start
        save_outcome(store, "ingest", StageOutcome(key=raw, rows=manifest.rows), {})
        save_outcome(store, "preprocess", StageOutcome(key=key, rows=encoded.rows), {})
    found |= {"encoded_rows": rows.get("encoding", 0), "reused_rows": rows.get(REUSING, 0)}
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return found | {"written_mb": store.written / 1e6}


def both_s(found: dict[str, float]) -> float:
    return found["ingest_s"] + found["preprocess_s"]


class Bench:
    """The folders of one configuration, and its lines in the results file."""

    def __init__(self, folder: Path, results: Path, size_bytes: int, files: int) -> None:
        self.folder, self.data, self.files = folder, folder / "data", files
        self.file_bytes, self.few = size_bytes // files, max(1, files // 100)
        self._results, self._name = results, f"{size_bytes} bytes in {files} files"
        lines = results.read_text().splitlines() if results.is_file() else []
        self._known = {
            each["step"]: each for each in map(json.loads, lines) if each["configuration"] == self._name
        }

    def step(self, step: str, data: Path, store: str) -> dict[str, float]:
        name = f"{step} {store}"
        if name not in self._known:
            command = [sys.executable, __file__, "--measure", step, str(data), str(self.folder / store)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            line = {"configuration": self._name, "step": name, **json.loads(done.stdout)}
            with self._results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            self._known[name] = line
        found: dict[str, float] = self._known[name]
        print(
            f"{step:10} {store:14}",
            *(f"{key} {value:.2f}" for key, value in found.items() if key not in ("configuration", "step")),
        )
        return found

    def write(self, first: int, count: int, seed: int) -> list[str]:
        """Write files at even distances from the first, and return their names."""
        names = [f"{first + index * (self.files // count):06d}.csv" for index in range(count)]
        for index, name in enumerate(names):
            write_file(self.data / name, seed + index, self.file_bytes)
        return names

    def alone(self, step: str, names: list[str]) -> dict[str, float]:
        """Return the work on these files alone."""
        folder = self.folder / f"{step}-files"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).unlink(missing_ok=True)
            (folder / name).hardlink_to(self.data / name)
        return self.step("cold", folder, f"{step}-alone")

    def run(self) -> bool:
        self.data.mkdir(parents=True, exist_ok=True)
        self.write(0, self.files, 1)
        self.step("cold", self.data, "store")
        self.step("first look", self.data, "store")
        unchanged_s = self.step("unchanged", self.data, "store")["cache_s"]
        passes = unchanged_s <= 1 + 0.0005 * self.files
        for step in CHANGES:
            if step == "removed":
                names = [f"{index * (self.files // self.few) + 1:06d}.csv" for index in range(self.few)]
                alone = self.alone(step, names)
                for name in names:
                    (self.data / name).unlink()
            else:
                names = self.write(0 if step == "changed" else self.files * 2, self.few, 10**6 * len(step))
                alone = self.alone(step, names)
            found = self.step(step, self.data, "store")
            limit_s, found_s = MAX_RATIO * both_s(alone) + MAX_EXTRA_S, both_s(found)
            passes &= found_s <= limit_s
            print(f"{step}: {found_s:.2f} s, at most {limit_s:.2f} s")
        return passes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--size-gb", type=float, default=10)
    parser.add_argument("--files", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--results", type=Path)
    parser.add_argument("--measure", nargs=3)
    given = parser.parse_args()
    if given.measure:
        step, data, store = given.measure
        print(json.dumps(measure(step, Path(data), Path(store))))
        return
    size_gb, counts = (0.1, [50]) if given.quick else (given.size_gb, given.files)
    passes = True
    for files in counts:
        with tempfile.TemporaryDirectory() as folder:
            results = given.results or Path(folder) / "results.jsonl"
            print(f"\n{size_gb:g} GB in {files} files")
            passes &= Bench(Path(folder), results, int(size_gb * 1e9), files).run()
    sys.exit(not passes)


if __name__ == "__main__":
    main()
