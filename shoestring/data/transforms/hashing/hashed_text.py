"""Features of free text: its words and pairs of words, hashed into a fixed number of numbers.

Nothing is fitted: the numbers of a row depend on its text alone (Weinberger et al. 2009, "Feature Hashing for
Large Scale Multitask Learning", with signed hashes).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BUCKETS = 32
"""Numbers that a column of text becomes."""

MIN_DISTINCT_SHARE = 0.5
MIN_WORDS = 2.0
"""Text is free when at least this share of its values differs, and they have more words on average."""

MIN_SHARED_VALUES = 100
"""Other text of as many words is a category too. From this number of different values on, they have words
in common that a code cannot show: those of new and of rare values."""

LOOK_ROWS = 100_000
"""Rows that decide whether the words of a column are features."""

WORD = re.compile(r"\w+")

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def hashed_names(column: str) -> list[str]:
    """Return the names of the columns that `with_hashed_texts` adds for a column."""
    return [f"{column}_words_{bucket:02}" for bucket in range(BUCKETS)]


class TextLook:
    """Decides from the first rows of a column whether its words are features, alone or with a category."""

    def __init__(self) -> None:
        self._rows, self._spaces, self._values = 0, 0, set[str]()

    @property
    def is_over(self) -> bool:
        return self._rows >= LOOK_ROWS

    def add(self, column: pa.ChunkedArray) -> None:
        """Add rows; those after the first LOOK_ROWS count no more."""
        texts = column.drop_null()[: LOOK_ROWS - self._rows]
        self._rows += len(texts)
        self._spaces += pc.sum(pc.count_substring(texts, " "), min_count=0).as_py()
        self._values |= {*pc.unique(texts).to_pylist()}

    @property
    def is_free(self) -> bool:
        """True if the words alone are features."""
        return self._has_words and len(self._values) >= MIN_DISTINCT_SHARE * self._rows

    @property
    def is_shared(self) -> bool:
        """True if the words are features as well as the category."""
        return self._has_words and not self.is_free and len(self._values) >= MIN_SHARED_VALUES

    @property
    def _has_words(self) -> bool:
        return self._rows > 0 and 1 + self._spaces / self._rows > MIN_WORDS


def look_at(column: pa.ChunkedArray) -> TextLook:
    """Return how a column of text looks by its first rows."""
    look = TextLook()
    look.add(column)
    return look


def with_hashed_texts(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the table with the numbers of these columns of text added. A missing text has zeros."""
    for column in columns:
        # Text that repeats is hashed once.
        encoded = table[column].combine_chunks().dictionary_encode()
        texts = [*encoded.dictionary.to_pylist(), None]
        numbers = hashed_texts(texts)[np.from_dlpack(encoded.indices.fill_null(len(texts) - 1))]
        for name, bucket in zip(hashed_names(column), numbers.T, strict=True):
            table = table.append_column(name, _float_array(bucket))
    return table


def hashed_texts(texts: Iterable[str | None]) -> Numbers:
    """Return the sums of the signs of each text's words and pairs of words, by bucket, divided by their
    length: float64[texts, BUCKETS].
    """
    codes: list[int] = []
    ends = []
    for text in texts:
        words = WORD.findall(text.lower()) if text else []
        singles = [crc32(word.encode()) for word in words]
        codes += singles
        codes += [crc32(b" " + word.encode(), code) for code, word in zip(singles, words[1:], strict=False)]
        ends.append(len(codes))
    rows = np.repeat(np.arange(len(ends)), np.diff(np.array([0, *ends])))
    buckets, signs = _placed(np.array(codes, np.uint64))
    sums: Numbers = np.bincount(rows * BUCKETS + buckets, signs, len(ends) * BUCKETS).astype(np.float64)
    found = sums.reshape(len(ends), BUCKETS)
    lengths = np.sqrt((found**2).sum(1, keepdims=True))
    return found / np.where(lengths > 0, lengths, 1.0)


def _placed(codes: Hashes) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Numbers]:
    """Return the bucket and the sign of each code. CRC32 is linear, so its bits are mixed first."""
    mixed = codes * np.uint64(0x9E3779B97F4A7C15)
    buckets = ((mixed >> np.uint64(40)) % np.uint64(BUCKETS)).astype(np.int64)
    return buckets, np.where(mixed >> np.uint64(63), 1.0, -1.0)


def _float_array(values: Numbers) -> pa.Array:
    """Return the values for Arrow. `pa.array` would import pandas, which takes 0.3 s."""
    return pa.Array.from_buffers(
        pa.float64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )
