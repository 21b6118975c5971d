"""Splits that the data itself gives, in a column; of those that it lacks, rows are drawn from train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import SPLITS, WORDS, Split, split_of_word
from shoestring.data.transforms.target import is_known

MAX_SHOWN = 5

Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class GivenSplit:
    """The column that names the split of each row, and the splits that it names, in the order of SPLITS.

    `left_out`: the rows without a value, which are in no split.
    """

    column: str
    names: tuple[str, ...]
    left_out: int

    def bounds(self, split: Split) -> list[float]:
        """Return the shares below which rows of train stay there, and below which they go to val or before.

        Those of val and test are drawn from train in their proportion to it.
        """
        shares = {"train": split.train, "val": split.val, "test": split.test}
        drawn = [0.0 if name in self.names and name != "train" else shares[name] for name in SPLITS]
        return [drawn[0] / sum(drawn), (drawn[0] + drawn[1]) / sum(drawn)]

    def place(self, table: pa.Table, drawn: Indices) -> Indices:
        """Return the index in SPLITS of each row, int64[rows], -1 without one. `drawn`: those of the rows if
        the column names train for each."""
        encoded = table[self.column].cast(pa.string()).combine_chunks().dictionary_encode("encode")
        of_value = [_index(text) for text in encoded.dictionary.to_pylist()]
        given = np.array([*of_value, -1], np.int64)[np.from_dlpack(encoded.indices)]
        return np.where(given == 0, drawn, given)

    @property
    def reasons(self) -> dict[str, int]:
        """The rows that are left out, by reason."""
        return {f"{self.column} is missing, which names the split": self.left_out} if self.left_out else {}


def given_split(parts: Iterable[pa.Table], recipe: Recipe) -> GivenSplit:
    """Return which splits the column of a recipe names, for rows with a target. `parts`: of the main table,
    of which the column and, if it has it, the target are read.

    Raises DataError for a value that names no split, and for rows of which none is of train.
    """
    column = recipe.split_column
    found = count_splits(parts, column, recipe.target.column)
    if not found["train"]:
        named = ", ".join(f"{split} {rows:,}" for split, rows in found.items() if split) or "no split"
        raise DataError(f"no row is of train: {column} names {named}; name the rows to learn from train")
    return GivenSplit(column, tuple(name for name in SPLITS if found[name]), found[""])


def count_splits(parts: Iterable[pa.Table], column: str, target: str) -> Counter[str]:
    """Return how many rows with a target a column gives each split; those without a value under the empty
    name. Raises DataError for a value that names no split."""
    counts = Counter[str | None]()
    for part in parts:
        if target in part.column_names:
            part = part.filter(is_known(part[target]))
        # Counts of values would be structs, which pyarrow converts by way of pandas.
        encoded = part[column].cast(pa.string()).combine_chunks().dictionary_encode("encode")
        of_value = np.bincount(np.from_dlpack(encoded.indices), minlength=len(encoded.dictionary))
        counts.update(dict(zip(encoded.dictionary.to_pylist(), of_value.tolist(), strict=True)))
    found, wrong = Counter[str](), Counter[str]()
    for value, rows in counts.items():
        if value is None or not value.strip():
            found[""] += rows
        elif split := split_of_word(value):
            found[split] += rows
        else:
            wrong[value] += rows
    if wrong:
        shown = ", ".join(f"{value[:40]!r} ({rows:,} rows)" for value, rows in wrong.most_common(MAX_SHOWN))
        shown += ", ..." if len(wrong) > MAX_SHOWN else ""
        words = "; ".join(f"{split} ({', '.join(words[1:])})" for split, words in WORDS.items())
        raise DataError(
            f"`split.column`: {column} holds {shown}, which name no split: write {words}; or split by "
            "`by` or `time`"
        )
    return found


def _index(text: str | None) -> int:
    split = split_of_word(text or "")
    return -1 if split is None else SPLITS.index(split)
