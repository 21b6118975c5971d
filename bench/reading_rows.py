"""The rows that bench/reading.py reads: how they are stored, and a gather written by hand for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import (
    GROUP_COLUMN,
    IMAGE_COLUMN,
    TARGET_COLUMN,
    TOKENS_COLUMN,
    Encoding,
    Feature,
    StoredField,
    Use,
)

Array = np.ndarray[Any, np.dtype[Any]]
Take = Callable[[Array], tuple[Array, ...]]
"""Returns the arrays of the rows at positions int64[B]."""

NUMBERS, CODES, CARDINALITY = 6, 8, 1000
MEAN, SD = 3.0, 2.0
SIDE, TOKENS = 28, 512
MODEL_CODES = {f"c{each}": np.arange(CARDINALITY, dtype=np.int32)[::-1].copy() for each in range(CODES)}


@dataclass(frozen=True)
class RowKind:
    """One kind of rows. `table`: random rows. `by_hand`: a gather of records of this kind alone."""

    name: str
    row_bytes: int
    uses: tuple[Use, ...]
    encoding: Encoding
    table: Callable[[np.random.Generator, int], pa.Table]
    by_hand: Callable[[Array], Take]
    model_codes: Mapping[str, Array] = field(default_factory=dict)


def table_rows(random: np.random.Generator, count: int) -> pa.Table:
    columns: dict[str, Array] = {f"n{each}": random.normal(MEAN, SD, count) for each in range(NUMBERS)}
    columns |= {f"c{each}": random.integers(0, CARDINALITY, count, np.int32) for each in range(CODES)}
    return pa.table(columns | ends(random, count))


def ends(random: np.random.Generator, count: int) -> dict[str, Array]:
    """Return the target and the group of rows."""
    return {
        TARGET_COLUMN: random.integers(0, 2, count, np.int32),
        GROUP_COLUMN: random.integers(0, 99, count, np.int32),
    }


def byte_rows(column: str, width: int) -> Callable[[np.random.Generator, int], pa.Table]:
    """Return the maker of rows whose column holds `width` random bytes."""

    def table(random: np.random.Generator, count: int) -> pa.Table:
        data = pa.py_buffer(random.bytes(count * width))
        return pa.table(
            {column: pa.Array.from_buffers(pa.binary(width), count, [None, data]), **ends(random, count)}
        )

    return table


def raw_rows(records: Array) -> Callable[[Array], Array]:
    """Return the gather of whole records: uint8[B, bytes]."""
    whole = records.view(np.dtype((np.void, records.dtype.itemsize)))
    return lambda positions: whole.take(positions).view(np.uint8).reshape(len(positions), -1)


def table_by_hand(records: Array) -> Take:
    gather, tables = raw_rows(records), np.concatenate([*MODEL_CODES.values()])
    offsets = np.arange(CODES) * CARDINALITY

    def take(positions: Array) -> tuple[Array, ...]:
        raw = gather(positions)
        numbers = np.ascontiguousarray(raw[:, : 8 * NUMBERS]).view(np.float64)
        codes = np.ascontiguousarray(raw[:, 8 * NUMBERS : 8 * NUMBERS + 4 * CODES]).view(np.int32)
        scaled = (numbers - MEAN) / SD
        scaled[np.isnan(scaled)] = 0
        target = np.ascontiguousarray(raw[:, -8:-4]).view(np.int32)[:, 0]
        return tables.take(codes + offsets), scaled.astype(np.float32), target

    return take


def bytes_by_hand(dtype: str, shape: tuple[int, ...]) -> Callable[[Array], Take]:
    """Return the gather of rows that begin with values of one field, and end with target and group."""
    width = int(np.prod(shape)) * np.dtype(dtype).itemsize

    def by_hand(records: Array) -> Take:
        gather = raw_rows(records)

        def take(positions: Array) -> tuple[Array, ...]:
            raw = gather(positions)
            values = raw[:, :width].view(dtype).reshape(len(raw), *shape)
            return values, np.ascontiguousarray(raw[:, width : width + 4]).view(np.int32)[:, 0]

        return take

    return by_hand


def features() -> tuple[Feature, ...]:
    codes = [f"c{each}" for each in range(CODES)]
    numbers = [f"n{each}" for each in range(NUMBERS)]
    return (
        *(Feature(name=each, kind="categorical", cardinality=CARDINALITY, column=each) for each in codes),
        *(Feature(name=each, kind="numeric", column=each, mean=MEAN, sd=SD) for each in numbers),
    )


IMAGE = StoredField(name=IMAGE_COLUMN, dtype="uint8", shape=(1, SIDE, SIDE), use="image")
TEXT = StoredField(name=TOKENS_COLUMN, dtype="uint16", shape=(TOKENS,), use="tokens")

KINDS = (
    RowKind(
        "rows of a table, 88 bytes",
        88,
        ("code", "number", "target"),
        Encoding(features=features(), task="binary", classes=("0", "1")),
        table_rows,
        table_by_hand,
        MODEL_CODES,
    ),
    RowKind(
        "images, 784 pixels",
        SIDE * SIDE + 8,
        ("image", "target"),
        Encoding(features=(), fields=(IMAGE,), task="binary", classes=("0", "1")),
        byte_rows(IMAGE_COLUMN, SIDE * SIDE),
        bytes_by_hand("u1", IMAGE.shape),
    ),
    RowKind(
        "tokens, 512 of 16 bits",
        2 * TOKENS + 8,
        ("tokens", "target"),
        Encoding(features=(), fields=(TEXT,), task="next_token"),
        byte_rows(TOKENS_COLUMN, 2 * TOKENS),
        bytes_by_hand("<u2", TEXT.shape),
    ),
)
