"""The partitions of an encoded data set: for each raw part its encoded parts, and summaries of its rows that
merge with those of the others.

One Arrow file, a row for each raw part in their order, with the columns `raw` (its name: its digest, and of
rows that repeat rows before it, that of their positions), `train`, `val`,
`test` (how many of the manifest's parts are its own), `left_out`, `numbers`: for each column of numbers the
rows, count, mean, squared deviations, minimum and maximum in train; and `weights`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.types import Format
from shoestring.data.formats.readers import read_table, write_table

Numbers = np.ndarray[Any, np.dtype[np.float64]]
STATISTICS = 6
"""Numbers that summarise a column."""


@dataclass(frozen=True, slots=True)
class EncodedPartition:
    """A raw part after encoding. `parts`: its encoded parts by split. `left_out`: its rows without a target,
    then those without a weight, and of weight 0. `numbers`: float64[columns, 6]. `weights`: of the rows of
    train, by the target's code, of a regression in one sum; without a column of weights empty.

    The rows of each code are not stored: the encoded parts have them.
    """

    raw: str
    parts: Mapping[str, tuple[DatasetPart, ...]]
    left_out: tuple[int, ...]
    numbers: Numbers
    weights: Numbers

    @property
    def rows(self) -> int:
        """Its rows, with those that are left out."""
        return sum(self.left_out) + sum(part.rows for parts in self.parts.values() for part in parts)


def write_partitions(partitions: Sequence[EncodedPartition], path: Path) -> None:
    """Write the partitions of a data set. Equal partitions give equal bytes."""
    columns = {
        "raw": pa.array([each.raw for each in partitions], pa.string()),
        "left_out": pa.array([[*each.left_out] for each in partitions], pa.list_(pa.int64())),
        "numbers": pa.array([each.numbers.ravel().tolist() for each in partitions], pa.list_(pa.float64())),
        "weights": pa.array([each.weights.tolist() for each in partitions], pa.list_(pa.float64())),
    }
    for split in partitions[0].parts:
        columns[split] = pa.array([len(each.parts[split]) for each in partitions], pa.int64())
    write_table(pa.table(columns), Format.ARROW, path)


def read_partitions(path: Path, manifest: Manifest) -> list[EncodedPartition]:
    """Return the partitions of a data set. Raises DataError for a damaged file."""
    table = read_table(path, Format.ARROW).combine_chunks()
    splits = [split for split in manifest.splits if split in table.column_names]
    ends = {split: np.cumsum(np.asarray(table[split])).tolist() for split in splits}
    starts = {split: [0, *ends[split]] for split in splits}
    flat = table["numbers"].combine_chunks().flatten()
    numbers = np.asarray(flat).reshape(table.num_rows, -1, STATISTICS) if table.num_rows else np.zeros(0)
    return [
        EncodedPartition(
            raw=raw,
            parts={split: manifest.splits[split][starts[split][row] : ends[split][row]] for split in splits},
            left_out=tuple(left_out),
            numbers=numbers[row],
            weights=np.array(weights),
        )
        for row, (raw, left_out, weights) in enumerate(
            zip(*(table[name].to_pylist() for name in ("raw", "left_out", "weights")), strict=True)
        )
    ]
