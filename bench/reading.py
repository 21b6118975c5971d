"""Claims, for shuffled reading of a table of 88-byte rows in one process, by CPU time:

- raw records, with the order worked out, come at 60% or more of the rate of a bare gather with known indices;
- samples that a model can read come at 80% or more of the rate of a hand-written gather with the same
  arithmetic, from 1, 16 and 128 parts, and faster than from PyTorch's DataLoader.

python bench/reading.py [--rows 12000000] [--quick]

12 million rows are 1.06 GB. All contenders read the same rows from a warm page cache, 1,024 at a time (raw
records 32,768, as the loader does), and take turns. Making the one local file of several parts is timed too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from machine import describe
from torch.utils.data import DataLoader, Dataset

from shoestring.core.datasets import Encoding, Feature
from shoestring.core.types import Format
from shoestring.data.formats.packed import map_packed
from shoestring.data.formats.readers import open_rows, write_table
from shoestring.data.loading.loader import PREFETCH_ROWS, Loader
from shoestring.data.loading.samples import Collator, SampleReader
from shoestring.data.loading.shuffle import SampleCursor, sample_indices

Array = np.ndarray[Any, np.dtype[Any]]
NUMBERS, CODES, CARDINALITY, BATCH_ROWS = 6, 8, 1000, 1024
MEAN, SD = 3.0, 2.0
QUICK_ROWS, PASS_ROWS = 1_200_000, 1_000_000
RAW_SHARE, READY_SHARE = 0.6, 0.8
ENCODING = Encoding(
    features=(
        *(
            Feature(name=f"c{each}", kind="categorical", cardinality=CARDINALITY, column=f"c{each}")
            for each in range(CODES)
        ),
        *(
            Feature(name=f"n{each}", kind="numeric", column=f"n{each}", mean=MEAN, sd=SD)
            for each in range(NUMBERS)
        ),
    ),
    task="binary",
    classes=("0", "1"),
)
MODEL_CODES = {f"c{each}": np.arange(CARDINALITY, dtype=np.int32)[::-1].copy() for each in range(CODES)}


def write_parts(folder: Path, rows: int, parts: int) -> list[Path]:
    """Write a table in parts of equal size."""
    paths = []
    for part in range(parts):
        rng, count = np.random.default_rng(part), rows // parts
        columns: dict[str, Array] = {f"n{each}": rng.normal(MEAN, SD, count) for each in range(NUMBERS)}
        columns |= {f"c{each}": rng.integers(0, CARDINALITY, count, np.int32) for each in range(CODES)}
        columns |= {"y": rng.integers(0, 2, count, np.int32), "_group": rng.integers(0, 99, count, np.int32)}
        paths.append(folder / f"{part}.packed")
        write_table(pa.table(columns), Format.PACKED, paths[-1])
    return paths


class ByHand:
    """A gather with the arithmetic of samples, written for this table alone."""

    def __init__(self, records: Array) -> None:
        self._bytes = records.view(np.dtype((np.void, records.dtype.itemsize)))
        self._codes = np.concatenate([MODEL_CODES[f"c{each}"] for each in range(CODES)])
        self._offsets = np.arange(CODES) * CARDINALITY

    def take(self, positions: Array) -> tuple[Array, Array, Array]:
        raw = self._bytes.take(positions).view(np.uint8).reshape(len(positions), -1)
        numbers = np.ascontiguousarray(raw[:, : 8 * NUMBERS]).view(np.float64)
        codes = np.ascontiguousarray(raw[:, 8 * NUMBERS : 8 * NUMBERS + 4 * CODES]).view(np.int32)
        scaled = (numbers - MEAN) / SD
        scaled[np.isnan(scaled)] = 0
        target = np.ascontiguousarray(raw[:, -8:-4]).view(np.int32)[:, 0]
        return self._codes.take(codes + self._offsets), scaled.astype(np.float32), target


class ByHandDataset(Dataset[Any]):
    """The hand-written gather behind PyTorch's DataLoader, a batch at a time."""

    def __init__(self, hand: ByHand, rows: int) -> None:
        self._hand, self._rows = hand, rows

    def __len__(self) -> int:
        return self._rows

    def __getitems__(self, positions: list[int]) -> tuple[Array, Array, Array]:
        return self._hand.take(np.array(positions))


def contenders(paths: list[Path], folder: Path, rows: int) -> dict[str, Callable[[int], object]]:
    """Return functions that read `PASS_ROWS` rows, by name; each is given the number of its pass."""
    one = open_rows(paths, Format.PACKED, folder)
    reader = SampleReader(one, Collator(ENCODING, one.dtype, MODEL_CODES))
    whole = next(one.scan(rows))
    hand, order = ByHand(whole), np.random.default_rng(0).permutation(rows)
    read = min(rows, PASS_ROWS)

    def known(take: Callable[[Array], object], batch_rows: int = BATCH_ROWS) -> Callable[[int], object]:
        def read_all(_: int) -> None:
            for at in range(0, read, batch_rows):
                take(order[at : at + batch_rows])

        return read_all

    def raw(number: int) -> None:
        for at in range(0, read, PREFETCH_ROWS):
            one.take(sample_indices(rows, 0, number, at, min(PREFETCH_ROWS, rows - at)))

    def ready(number: int) -> None:
        with Loader(reader, SampleCursor(seed=0, epoch=number)) as loader:
            met = 0
            while met < read:
                met += len(loader.next_batch(BATCH_ROWS).samples)

    def torch_loader(_: int) -> None:
        loader = DataLoader(
            ByHandDataset(hand, rows), BATCH_ROWS, shuffle=True, collate_fn=lambda batch: batch
        )
        for number, _batch in enumerate(loader):
            if number * BATCH_ROWS >= read:
                return

    return {
        "bare gather, known indices": known(whole.take, PREFETCH_ROWS),
        "raw records": raw,
        "hand-written gather": known(hand.take),
        "samples": ready,
        "PyTorch's DataLoader": torch_loader,
    }


def measure(paths: list[Path], folder: Path, rows: int, repeats: int) -> dict[str, float]:
    """Return the median rows per CPU-second of each contender; they take turns."""
    started_s = time.process_time()
    found = contenders(paths, folder, rows)
    opened_s = time.process_time() - started_s
    rates: dict[str, list[float]] = {name: [] for name in found}
    for number in range(repeats + 1):
        for name, read in found.items():
            started_s = time.process_time()
            read(number)
            rate = min(rows, PASS_ROWS) / (time.process_time() - started_s)
            # The first pass warms the page cache.
            rates[name] += [rate] if number else []
    print(f"{len(paths)} parts, opened in {opened_s:.2f} CPU-s:")
    medians = {name: median(found_rates) for name, found_rates in rates.items()}
    for name, rate in medians.items():
        print(f"  {name:28} {rate / 1e6:6.2f} million rows per CPU-second")
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--rows", type=int, default=12_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    rows = QUICK_ROWS if args.quick else args.rows
    print(describe())
    torch.set_num_threads(1)
    holds = True
    for parts in (1, 16, 128):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            paths = write_parts(folder, rows, parts)
            records = sum(len(map_packed(path)[0]) for path in paths)
            found = measure(paths, folder, records, args.repeats)
        raw = found["raw records"] / found["bare gather, known indices"]
        ready = found["samples"] / found["hand-written gather"]
        peer = found["samples"] / found["PyTorch's DataLoader"]
        print(f"  raw {raw:.0%} of bare, samples {ready:.0%} of hand-written, {peer:.2f} x DataLoader")
        holds &= raw >= RAW_SHARE and ready >= READY_SHARE and peer > 1
    print("holds" if holds else "does not hold")


if __name__ == "__main__":
    main()
