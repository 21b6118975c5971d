"""The needs of the stages that read and encode tables: by their columns, their values and the bytes of their
text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shoestring.core.types import Need
from shoestring.data.recipe import Recipe

VALUE_BYTES = 8
"""Bytes of a stored value, before it is known."""

INGEST_TEXT_COLUMN_S = 1.3e-3
INGEST_VALUE_US, INGEST_TEXT_US_PER_BYTE = 0.05, 0.0056
"""Seconds of a reference core for a column whose type is inferred from text, and microseconds for a value,
and for each byte of text. Measured by bench/stage_cost.py on CSV files: a column of numbers takes 0.7 ms and
one of words 2.6 ms, and the time of more rows follows the values and the bytes. A column of Parquet takes
next to nothing."""

ENCODE_COLUMN_S = 0.2e-3
ENCODE_VALUE_US, ENCODE_US_PER_COLUMN = 0.06, 1e-4
"""Seconds of a reference core to encode a column, and microseconds for a value: the second number for each
column of its row. Measured by bench/stage_cost.py: a value takes 0.05 us in rows of 10, 0.1 in rows of 600
and 0.3 in rows of 2,400. A wide row fills a part sooner, and every part has its cost for each column."""


@dataclass(frozen=True, slots=True)
class TableSizes:
    """What is known of the tables of a recipe. `columns`: of each table; empty: nothing is known.

    `values`: of all tables. `text_bytes`: of the tables in CSV and JSON lines, and `text_columns` theirs.
    """

    columns: Mapping[str, int] = field(default_factory=dict)
    values: int = 0
    text_columns: int = 0
    text_bytes: int = 0


NO_TABLES = TableSizes()


def sizes_of_raw(columns: Iterable[str]) -> TableSizes:
    """Return the sizes of the tables of a raw data set. `columns`: TABLE.COLUMN, as its manifest names
    them."""
    return TableSizes(Counter(name.partition(".")[0] for name in columns))


def with_tables(need: Need, recipe: Recipe, sizes: TableSizes, rows: int) -> Need:
    """Return the need of ingest or preprocess for tables of these sizes; that of another stage, and every
    need while no size is known, as it is.

    `rows`: of the main table.
    """
    if not sizes.columns or not rows:
        return need
    if need.stage == "ingest":
        text_us = INGEST_TEXT_US_PER_BYTE * sizes.text_bytes
        return _sized(
            need,
            setup_s=INGEST_TEXT_COLUMN_S * sizes.text_columns,
            us_per_row=(INGEST_VALUE_US * sizes.values + text_us) / rows,
            row_values=sizes.values / rows,
        )
    if need.stage == "preprocess":
        columns = sizes.columns.get(recipe.main, 0) + sum(len(join.columns) for join in recipe.joins)
        return _sized(
            need,
            setup_s=ENCODE_COLUMN_S * columns,
            us_per_row=(ENCODE_VALUE_US + ENCODE_US_PER_COLUMN * columns) * columns,
            row_values=_stored_columns(recipe, columns),
        )
    return need


def _stored_columns(recipe: Recipe, columns: int) -> int:
    """Return the fields of an encoded row: the target with the features that are named, or all columns."""
    named = {*recipe.categorical, *recipe.numeric, *recipe.dates, *recipe.texts}
    return len(named) + 1 if named else columns


def _sized(need: Need, *, setup_s: float, us_per_row: float, row_values: float) -> Need:
    """Return the need with more set-up, this work for a row, and the bytes of the values that it writes."""
    return need.model_copy(
        update={
            "setup_s": round(need.setup_s + setup_s, 3),
            "cpu_us_per_row": round(us_per_row, 3),
            "writes_bytes_per_row": max(1, round(VALUE_BYTES * row_values)),
        }
    )
