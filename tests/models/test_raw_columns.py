"""Columns of other data are read in the types that a model has learned from."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from shoestring.core.errors import DataError
from shoestring.data.sources.column_types import BOOLEAN, INTEGER, TIMESTAMP, TIMESTAMP_UTC
from shoestring.data.values import NUMBER, TEXT
from shoestring.models.raw_columns import ColumnReader, RawColumn

NAIVE = datetime(2026, 11, 27)  # noqa: DTZ001
TYPES = [
    (pa.int64(), INTEGER),
    (pa.uint8(), INTEGER),
    (pa.float32(), NUMBER),
    (pa.float64(), NUMBER),
    (pa.bool_(), BOOLEAN),
    (pa.string(), TEXT),
    (pa.date32(), TIMESTAMP),
    (pa.date64(), TIMESTAMP),
    (pa.timestamp("us"), TIMESTAMP),
    (pa.timestamp("ns"), TIMESTAMP),
    (pa.timestamp("us", "UTC"), TIMESTAMP_UTC),
    (pa.timestamp("ms", "Europe/Berlin"), TIMESTAMP_UTC),
    (pa.time64("us"), TIMESTAMP),
    (pa.time32("s"), TIMESTAMP),
]


def column(type_: pa.DataType, written: str = "") -> RawColumn:
    return RawColumn(name="x", type=str(type_), written=written)


@pytest.mark.parametrize(("type_", "kind"), TYPES, ids=lambda each: str(each))
def test_a_type_is_read_as_it_is_written(type_: pa.DataType, kind: Any) -> None:
    assert column(type_).arrow_type == type_
    assert column(type_).kind == kind


@pytest.mark.parametrize(
    ("wanted", "values", "expected"),
    [
        (column(pa.int64()), pa.array(["1", "", "NA", " 3"]), [1, None, None, 3]),
        (column(pa.float64(), "a decimal comma"), pa.array(["1,5", "1.234,5"]), [1.5, 1234.5]),
        (column(pa.float64()), pa.array([1, None], pa.int8()), [1.0, None]),
        (column(pa.int64()), pa.array([1.0, float("nan")]), [1, None]),
        (column(pa.int64()), pa.array([1.5, 2.0]), [1.5, 2.0]),
        (column(pa.uint8()), pa.array([1, 300]), [1.0, 300.0]),
        (column(pa.string()), pa.array([7.0, float("nan"), 8.0]), ["7", None, "8"]),
        (column(pa.string()), pa.array([7, None]), ["7", None]),
        (column(pa.string()), pa.array(["a", None]).dictionary_encode(), ["a", None]),
        (column(pa.string()), pa.array(["a"], pa.large_string()), ["a"]),
        (column(pa.int64()), pa.nulls(2), [None, None]),
        (column(pa.bool_()), pa.array(["true", "false"]), [True, False]),
        (column(pa.date32()), pa.array(["2026-11-27"]), [date(2026, 11, 27)]),
        (column(pa.timestamp("us")), pa.array([date(2026, 11, 27)]), [NAIVE]),
        (
            column(pa.timestamp("us", "UTC")),
            pa.array(["2026-11-27T12:00:00+01:00"]),
            [datetime(2026, 11, 27, 11, tzinfo=UTC)],
        ),
    ],
    ids=str,
)
def test_other_values_become_those_that_the_model_knows(
    wanted: RawColumn, values: pa.Array, expected: list[Any]
) -> None:
    reader = ColumnReader(wanted)
    assert reader.read(values).to_pylist() == expected
    reader.check()
    assert not reader.note


@pytest.mark.parametrize(
    ("wanted", "values"),
    [
        (column(pa.int64()), pa.array([NAIVE])),
        (column(pa.timestamp("us")), pa.array([1, 2])),
        (column(pa.float64()), pa.array([[1.0]])),
        (column(pa.timestamp("us")), pa.array([time(1)])),
    ],
    ids=str,
)
def test_another_type_is_refused(wanted: RawColumn, values: pa.Array) -> None:
    with pytest.raises(DataError, match=r"column x is of type .*, and the model has learned from a"):
        ColumnReader(wanted).read(values)


def test_a_few_values_that_do_not_fit_are_missing_and_said() -> None:
    reader = ColumnReader(column(pa.int64()))
    assert reader.read(pa.array(["1", "many", *["2"] * 98])).null_count == 1
    reader.check()
    assert reader.note == "column x: 1 of 100 values are not a whole number, such as 'many': read as missing"
    reader.read(pa.array(["few", "lots"]))
    with pytest.raises(DataError, match=r"3 of 102 values are not a whole number, .* 'many'; at most 2%"):
        reader.check()
