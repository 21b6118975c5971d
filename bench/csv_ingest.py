"""Claim: on one thread, CSV ingest runs at 70% or more of a bare typed pyarrow read, digest and write.

python bench/csv_ingest.py [--quick] [--peak]

The script writes a seeded table of numbers, text, dates and nulls. Each repeat reads it once with each
contender, in a process of its own, and measures the CPU time after the imports:

bare        pyarrow with given types: parts of 64 MB, each digested; no inference, no quarantine, no store
shoestring  `ingest`: it also infers the types, digests the source, and puts the parts into a store
duckdb      the types inferred and the rejects stored; one file, digested
polars      the types inferred; one file, digested

The values that bare and shoestring wrote are read back after the measurement, and have to be equal.

Then it shows what shoestring and duckdb make of a column whose decimals first show beyond the sample.

Peers that cannot be imported are left out; PYTHONPATH can name a folder with them. `--peak` reads 1 GB
with Shoestring alone, and prints its peak memory, which must stay below 1 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import Format
from shoestring.data.formats.readers import read_table, write_table
from shoestring.data.recipe import Recipe
from shoestring.data.storage.part_writer import TARGET_PART_BYTES, open_part
from shoestring.data.transforms.ingest import ingest

MIN_SHARE = 0.7
MAX_PEAK_BYTES = 1e9
BLOCK_BYTES = 8 << 20
WORDS = np.array(["alpha", "bravo charlie", "delta", 'echo "x"', "foxtrot, golf", "hotel", "india"])
TYPES = {
    "id": pa.int64(),
    "count": pa.int64(),
    "price": pa.float64(),
    "ratio": pa.float64(),
    "latitude": pa.float64(),
    "flag": pa.bool_(),
    "day": pa.timestamp("us"),
    "at": pa.timestamp("us"),
    "city": pa.string(),
    "code": pa.string(),
    "note": pa.string(),
}


def write_csv(path: Path, size_bytes: int) -> None:
    """Write a seeded table of about `size_bytes` bytes. No two blocks of rows are equal."""
    random = np.random.default_rng(7)
    with path.open("wb") as file:
        first, rows = 0, 100_000
        while file.tell() < size_bytes:
            table = rows_from(random, first, rows)
            options = pyarrow.csv.WriteOptions(include_header=first == 0, quoting_style="needed")
            pyarrow.csv.write_csv(table, file, options)
            first += rows


def rows_from(random: np.random.Generator, first: int, rows: int) -> pa.Table:
    def with_nulls(values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=random.random(rows) < 0.05)

    days = np.datetime64("2013-01-01", "s") + random.integers(0, 3650, rows) * np.timedelta64(86400, "s")
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "count": with_nulls(random.integers(-1000, 1000, rows)),
            "price": with_nulls(np.round(random.normal(100, 30, rows), 2)),
            "ratio": random.normal(size=rows),
            "latitude": np.round(random.normal(size=rows) * 50, 5),
            "flag": random.random(rows) < 0.5,
            "day": pa.array(days).cast(pa.date32()),
            "at": days + random.integers(0, 86400, rows).astype("timedelta64[s]"),
            "city": with_nulls(WORDS[random.integers(0, len(WORDS), rows)]),
            "code": [f"c{number:06}" for number in random.integers(0, 200_000, rows)],
            "note": [
                f"{WORDS[one]} {WORDS[two]} {one * two}" for one, two in random.integers(0, 7, (rows, 2))
            ],
        }
    )


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bare(path: Path, folder: Path, format: Format) -> Iterator[pa.Table]:
    reader = pyarrow.csv.open_csv(
        path,
        pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(column_types=TYPES, strings_can_be_null=True),
    )
    pending: list[pa.Table] = []
    parts: list[Path] = []

    def flush() -> None:
        write_table(pa.concat_tables(pending), format, folder / "part")
        parts.append((folder / "part").rename(folder / digest_of(folder / "part")))
        pending.clear()

    for batch in reader:
        pending.append(pa.Table.from_batches([batch]))
        if sum(table.nbytes for table in pending) >= TARGET_PART_BYTES:
            flush()
    if pending:
        flush()
    return (read_table(part, format) for part in parts)


def shoestring(path: Path, folder: Path, format: Format) -> Iterator[pa.Table]:
    (folder / "scratch").mkdir()
    recipe = Recipe.model_validate(
        {"name": "table", "source": {"rows": {"path": path}}, "target": {"column": "count"}}
    )
    store = FolderStore(folder / "store")
    _, manifest = ingest(recipe, format, store, folder / "scratch", lambda table, rows: None)
    found = {name.partition(".")[2]: kind for name, kind in manifest.columns.items()}
    assert found == {name: str(kind) for name, kind in TYPES.items()}
    return (open_part(store, manifest, part) for part in manifest.splits["rows"])


def values_digest(tables: Iterator[pa.Table]) -> str:
    """Return a digest of the rows as text, wherever parts begin. A null differs from an empty text in it."""
    found = hashlib.sha256()
    for table in tables:
        text = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, text, pyarrow.csv.WriteOptions(include_header=False))
        found.update(text.getvalue())
    return found.hexdigest()


def duckdb(path: Path, folder: Path, format: Format) -> Iterator[pa.Table]:
    import duckdb

    connection = duckdb.connect()
    connection.execute("set threads = 1")
    source = f"select * from read_csv('{path}', store_rejects = true)"
    target = folder / "part"
    if format is Format.PARQUET:
        connection.execute(f"copy ({source}) to '{target}' (format parquet, compression zstd)")
    else:
        reader = connection.sql(source).to_arrow_reader(1 << 16)
        with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
    digest_of(target)
    return iter(())


def polars(path: Path, folder: Path, format: Format) -> Iterator[pa.Table]:
    import polars

    rows, target = polars.scan_csv(path, try_parse_dates=True), folder / "part"
    if format is Format.PARQUET:
        rows.sink_parquet(target, compression="zstd")
    else:
        rows.sink_ipc(target, compression="uncompressed")
    digest_of(target)
    return iter(())


CONTENDERS: dict[str, Callable[[Path, Path, Format], Iterator[pa.Table]]] = {
    "bare": bare,
    "shoestring": shoestring,
    "duckdb": duckdb,
    "polars": polars,
}


def run_once(name: str, path: Path, format: Format) -> None:
    """Run one contender in this process, and print its CPU seconds, peak memory and a digest of what it
    wrote."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if name in ("duckdb", "polars"):
        __import__(name)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        began_s = time.process_time()
        tables = CONTENDERS[name](path, Path(folder), format)
        cpu_s = time.process_time() - began_s
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        values = values_digest(tables)
    print(json.dumps({"cpu_s": cpu_s, "peak_bytes": peak_bytes, "values": values}))


def measured(name: str, path: Path, format: Format) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, __file__, "--once", name, str(path), format],
        env=os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return found


def compare(path: Path, repeats: int) -> bool:
    """Print a table for each format. Returns whether the claim holds."""
    names = [name for name in CONTENDERS if name in ("bare", "shoestring") or find_spec(name)]
    size_mb, holds = path.stat().st_size / 1e6, True
    for format in (Format.ARROW, Format.PARQUET):
        cpu_s: dict[str, list[float]] = {name: [] for name in names}
        peaks = dict.fromkeys(names, 0.0)
        values: dict[str, object] = {}
        for _ in range(repeats):
            for name in names:
                found = measured(name, path, format)
                cpu_s[name].append(float(str(found["cpu_s"])))
                peaks[name] = max(peaks[name], float(str(found["peak_bytes"])))
                values[name] = found["values"]
        assert values["bare"] == values["shoestring"], "the outputs differ"
        print(f"{format}: {size_mb:.0f} MB, {repeats} repeats, the least CPU time of each")
        shares = [one / other for one, other in zip(cpu_s["bare"], cpu_s["shoestring"], strict=True)]
        for name in names:
            least_s = min(cpu_s[name])
            print(
                f"  {name:10} {least_s:7.2f} s {size_mb / least_s:6.0f} MB/s "
                f"{min(cpu_s['bare']) / least_s:6.0%} of bare, peak {peaks[name] / 1e6:.0f} MB"
            )
        share = statistics.median(shares)
        print(f"  shoestring, the median of {repeats} pairs: {share:.0%} of bare")
        holds &= share >= MIN_SHARE
    return holds


def show_late_decimals(folder: Path) -> bool:
    """Print how a column is read that holds whole numbers, and 2.5 from row 4,000,001 on. Returns whether
    Shoestring reads 2.5."""
    path = folder / "late.csv"
    path.write_text("count,note\n" + "7,seven\n" * 4_000_000 + "2.5,late\n" * 200_000)
    recipe = Recipe.model_validate(
        {"name": "late", "source": {"rows": {"path": path}}, "target": {"column": "count"}}
    )
    store = FolderStore(folder / "store")
    _, manifest = ingest(recipe, Format.ARROW, store, folder, lambda table, rows: None)
    last = open_part(store, manifest, manifest.splits["rows"][-1])["count"][-1].as_py()
    print(f"late decimals: shoestring reads {last} as {manifest.columns['rows.count']}")
    if find_spec("duckdb"):
        import duckdb

        query = (
            f"select count, typeof(count) from read_csv('{path}', store_rejects = true) where note = 'late'"
        )
        value, kind = duckdb.connect().execute(query).fetchone()
        print(f"late decimals: duckdb reads {value} as {kind}")
    return bool(last == 2.5)


def main() -> int:
    """Return the exit code: 1 if the claim does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="60 MB and 3 repeats instead of 300 MB and 7")
    parser.add_argument("--peak", action="store_true", help="the peak memory of Shoestring on 1 GB")
    parser.add_argument("--once", nargs=3, metavar=("NAME", "FILE", "FORMAT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        name, file, format = options.once
        run_once(name, Path(file), Format(format))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        if options.peak:
            write_csv(path, 1_000_000_000)
            found = measured("shoestring", path, Format.ARROW)
            print(f"1 GB: {found['cpu_s']:.1f} s, peak {float(str(found['peak_bytes'])) / 1e6:.0f} MB")
            return int(float(str(found["peak_bytes"])) >= MAX_PEAK_BYTES)
        write_csv(path, 60_000_000 if options.quick else 300_000_000)
        holds = compare(path, 3 if options.quick else 7)
        return int(not (show_late_decimals(Path(folder)) and holds))


if __name__ == "__main__":
    sys.exit(main())
