"""Features of dates: the calendar's cycles as categories, with the moment itself as a number, and the days
between two dates of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations, islice, permutations

import pyarrow as pa
import pyarrow.compute as pc

from shoestring.data.sources.column_types import float_scalar

PARTS: dict[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]] = {
    "month": pc.month,
    "weekday": pc.day_of_week,
    "hour": pc.hour,
}
"""The cycles of a calendar, by the suffix of their column. Weekday 0 is Monday."""

MAX_PAIRS = 6
"""The pairs of dates between which days are counted: those of four dates."""

MICROSECONDS_A_DAY = 86_400_000_000


def is_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def part_names(column: str) -> list[str]:
    """Return the names of the columns that `with_date_parts` adds for a column."""
    return [f"{column}_{part}" for part in PARTS]


def with_date_parts(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the table with the parts of these columns of dates added, null where the date is."""
    for column in columns:
        moments = table[column].cast(pa.timestamp("us", getattr(table[column].type, "tz", None)))
        for name, part in zip(part_names(column), PARTS.values(), strict=True):
            table = table.append_column(name, part(moments))
    return table


def elapsed_name(first: str, second: str) -> str:
    """Return the name of the column of days from the second date to the first."""
    return f"{first} - {second} (days)"


def elapsed_names(dates: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return the names of the columns of days between the first pairs of dates. `taken`: the table's own."""
    names = [elapsed_name(*pair) for pair in islice(combinations(dates, 2), MAX_PAIRS)]
    return [name for name in names if name not in taken]


def with_elapsed(table: pa.Table, dates: Sequence[str], wanted: Collection[str]) -> pa.Table:
    """Return the table with the wanted columns of days between two dates added: float64, null where either
    is."""
    for first, second in permutations(dates, 2):
        name = elapsed_name(first, second)
        if name in wanted and name not in table.column_names:
            ends = [table[each].cast(pa.timestamp("us")).cast(pa.int64()) for each in (first, second)]
            days = pc.divide(pc.subtract(*ends).cast(pa.float64()), float_scalar(MICROSECONDS_A_DAY))
            table = table.append_column(name, days)
    return table
