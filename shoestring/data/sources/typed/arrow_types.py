"""Which types of Arrow are read, as which type, and the values as that type."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shoestring.data.sources.column_types import float_scalar
from shoestring.data.values import NUMBER, TEXT

DAYS = (-719_162, 2_932_896)
"""The first day of year 1 and the last of year 9999, from 1970 on. Python has no others."""
DAY_US = 86_400 * 10**6

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""The units of a duration, in a second."""


class LeftOut(NamedTuple):
    """A column that is not read: its type, why, and how its values could be used. `holds_bytes`: they may be
    images."""

    type: str
    reason: str
    advice: str
    holds_bytes: bool = False

    @property
    def sentence(self) -> str:
        return f"of type {self.type}, {self.reason}: {self.advice}"


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type as which a column is read; None: it cannot be used. A column without a value keeps
    the type null."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return TEXT
    if types.is_decimal(kind) or types.is_duration(kind):
        return NUMBER
    if types.is_float16(kind):
        return pa.float32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_date(kind):
        return pa.date32()
    if types.is_time(kind):
        return pa.time64("us")
    is_plain = types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind)
    return kind if is_plain or types.is_floating(kind) else None


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether the values of a type may be files: bytes, or the struct of `bytes` and `path` that the
    Hugging Face Hub has."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return holds_bytes(kind.storage_type)
    if types.is_dictionary(kind):
        return holds_bytes(kind.value_type)
    if types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and bool(types.is_null(own := kind.field(place).type) or holds_bytes(own))
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def why_left_out(name: str, kind: pa.DataType) -> LeftOut:
    """Return why a column of a type without a plain type is left out."""
    types = pa.types
    if types.is_dictionary(kind):
        return why_left_out(name, kind.value_type)._replace(type=str(kind))
    if holds_bytes(kind):
        advice = (
            f"if it holds images, add `image: {{column: {name}, size: [HEIGHT, WIDTH]}}` to the source of "
            "the table; if it holds text, write it as text (UTF-8)"
        )
        return LeftOut(str(kind), "bytes", advice, holds_bytes=True)
    if types.is_struct(kind):
        advice = "write its fields as columns of their own"
    elif types.is_nested(kind):
        advice = "write its values, or their count, as columns of their own"
    elif "binary" in str(kind):
        advice = "if it holds text, write it as text (UTF-8)"
    else:
        advice = "write it as a number, text or a date"
    return LeftOut(str(kind), "neither a number, text, a truth value, a date nor a time", advice)


def plain_values(column: pa.Array) -> pa.Array:
    """Return a column as its plain type: a duration in seconds; times without what is below a microsecond.

    Raises pa.ArrowInvalid for a date outside the years 1 to 9999.
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_values(column.storage)
    if pa.types.is_dictionary(kind):
        return plain_values(column.dictionary).take(column.indices)
    wanted = plain_type(kind)
    if wanted is None:
        return column
    if pa.types.is_duration(kind):
        ticks = column.cast(pa.int64()).cast(NUMBER, safe=False)
        return pc.divide(ticks, float_scalar(TICKS[kind.unit]))
    if wanted != kind:
        column = pc.cast(column, options=pc.CastOptions(target_type=wanted, allow_time_truncate=True))
    if pa.types.is_timestamp(wanted):
        _require_dates(column, DAYS[0] * DAY_US, (DAYS[1] + 1) * DAY_US - 1)
    elif pa.types.is_date(wanted):
        _require_dates(column.cast(pa.int32()), *DAYS)
    return column


def _require_dates(column: pa.Array, first: int, last: int) -> None:
    """Raise pa.ArrowInvalid for a value that is not between these two."""
    for value in pc.min_max(column.cast(pa.int64())).values():
        if value.is_valid and not first <= value.as_py() <= last:
            unit = "days" if last == DAYS[1] else "microseconds"
            raise pa.ArrowInvalid(f"{value.as_py():,} {unit} from 1970")
