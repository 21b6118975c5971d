from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.formats.readers import open_rows, read_table, write_table

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(),
    pa.binary(): st.binary(max_size=20),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "UTC"): st.datetimes(timezones=st.just(UTC)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
}


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[pa.DataType, ...] = tuple(VALUES), nulls: bool = True) -> pa.Table:
    rows = draw(st.integers(0, 20))
    columns = {}
    for name in draw(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=6, unique=True)):
        kind = draw(st.sampled_from(kinds))
        value = VALUES[kind] | st.none() if nulls else VALUES[kind]
        columns[name] = pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), kind)
    return pa.table(columns)


@examples(150)
@given(table=tables(), format=st.sampled_from(Format))
def test_a_table_survives_a_round_trip_in_every_format(table: pa.Table, format: Format) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        write_table(table, format, path)
        back = read_table(path, format)
        assert back.schema.equals(table.schema)
        assert back.equals(table)
        again = Path(folder) / "again"
        write_table(table, format, again)
        assert again.read_bytes() == path.read_bytes()


@examples(60)
@given(parts=st.data(), format=st.sampled_from(Format), batch_rows=st.integers(1, 7))
def test_encoded_rows_are_equal_in_every_format(
    parts: st.DataObject, format: Format, batch_rows: int
) -> None:
    rng = np.random.default_rng(parts.draw(st.integers(0, 1000)))
    sizes = parts.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    whole = pa.table(
        {
            "code": pa.array(rng.integers(0, 99, sum(sizes)), pa.int32()),
            "size": pa.array(rng.random(sum(sizes)), pa.float32()),
            "pixels": pa.array([rng.bytes(8) for _ in range(sum(sizes))], pa.binary(8)),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        paths, start = [], 0
        for number, size in enumerate(sizes):
            paths.append(Path(folder) / str(number))
            write_table(whole.slice(start, size), format, paths[-1])
            start += size
        rows = open_rows(paths, format)
        assert len(rows) == sum(sizes)
        assert rows.dtype.itemsize == 16
        positions = rng.integers(0, sum(sizes), 9) if sum(sizes) else np.zeros(0, np.int64)
        taken = rows.take(positions)
        pixels = whole["pixels"].to_pylist()
        assert [row.tobytes() for row in taken["pixels"]] == [pixels[index] for index in positions]
        for name in ("code", "size"):
            column = whole[name].to_numpy()
            assert np.array_equal(taken[name], column[positions])
            assert np.array_equal(
                np.concatenate([batch[name] for batch in rows.scan(batch_rows)] or [column]), column
            )
        assert all(len(batch) <= batch_rows for batch in rows.scan(batch_rows))


@pytest.mark.parametrize("format", Format)
def test_several_parts_become_one_file_for_shuffled_reads(tmp_path: Path, format: Format) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    paths = [tmp_path / f"part-{number}" for number in range(3)]
    for number, path in enumerate(paths):
        values = pa.array(range(100 * number, 100 * number + 100), pa.int32())
        write_table(pa.table({"a": values, "b": values.cast(pa.float64())}), format, path)
    apart, joined = open_rows(paths, format), open_rows(paths, format, scratch)
    positions = np.random.default_rng(0).permutation(300)
    assert np.array_equal(joined.take(positions), apart.take(positions))
    assert [len(batch) for batch in joined.scan(1000)] == [300]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("count", [1, 2])
def test_a_position_outside_the_rows_is_refused(tmp_path: Path, format: Format, count: int) -> None:
    write_table(pa.table({"a": pa.array([1, 2, 3], pa.int32())}), format, tmp_path / "part")
    rows = open_rows([tmp_path / "part"] * count, format)
    for position in (-1, 3 * count):
        with pytest.raises(IndexError):
            rows.take(np.array([0, position]))


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.99])
def test_a_truncated_file_raises_a_data_error(tmp_path: Path, format: Format, keep: float) -> None:
    path = tmp_path / "table"
    write_table(pa.table({"a": list(range(1000)), "b": [str(n) for n in range(1000)]}), format, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DataError, match="table"):
        read_table(path, format)


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("odd", [pa.array(["text"]), pa.array([None], pa.int32())])
def test_rows_that_are_not_encoded_are_refused(tmp_path: Path, format: Format, odd: pa.Array) -> None:
    write_table(pa.table({"fine": pa.array([1], pa.int32()), "odd": odd}), format, tmp_path / "part")
    with pytest.raises(DataError, match="odd"):
        open_rows([tmp_path / "part"], format)


@pytest.mark.parametrize("format", Format)
def test_nan_is_not_null(tmp_path: Path, format: Format) -> None:
    write_table(pa.table({"x": pa.array([float("nan"), None, 1.0])}), format, tmp_path / "part")
    back = read_table(tmp_path / "part", format)["x"]
    assert back.null_count == 1
    assert np.isnan(back[0].as_py())


def test_packing_a_type_without_fixed_width_names_the_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'tags' is of type list"):
        write_table(pa.table({"tags": [["a", "b"]]}), Format.PACKED, tmp_path / "t")


def test_dates_and_times_are_kept_to_the_microsecond(tmp_path: Path) -> None:
    moment = datetime(2013, 1, 1, 10, 0, 0, 123456, UTC)
    table = pa.table(
        {"moment": [moment, None], "day": [date(2013, 1, 1), None], "hour": [time(10, 0, 0, 1), None]}
    )
    for format in Format:
        write_table(table, format, tmp_path / format)
        assert read_table(tmp_path / format, format).to_pylist() == table.to_pylist()


def test_a_column_of_parquet_has_a_dictionary_only_where_its_values_repeat(tmp_path: Path) -> None:
    count = 20_000
    names = [f"name {number}" for number in range(count)]
    table = pa.table({"id": names, "a.b": names[: count // 4] * 4, "city": ["Oslo", "Lima"] * (count // 2)})
    write_table(table, Format.PARQUET, path := tmp_path / "part.parquet")
    assert read_table(path, Format.PARQUET).equals(table)
    chunks = pq.read_metadata(path).row_group(0)
    have = [chunks.column(index).has_dictionary_page for index in range(chunks.num_columns)]
    assert have == [False, False, True]
