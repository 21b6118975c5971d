"""Features of dates: the calendar's cycles as categories, beside the moment itself as a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

PARTS: dict[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]] = {
    "month": pc.month,
    "weekday": pc.day_of_week,
    "hour": pc.hour,
}
"""The cycles of a calendar, by the suffix of their column. Weekday 0 is Monday."""


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
