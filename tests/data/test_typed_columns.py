"""Columns of Parquet and Arrow files, as pandas, polars and Spark write them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import ingested, recipe_of, table_of

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.increments.schema_version import last_schema
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.sources.files import estimate_size
from shoestring.models.raw_columns import ColumnReader, RawColumn

ROWS = 40
MOMENT = dt.datetime.fromisoformat("2024-05-06T07:08:09.123456")
NS = int(pd.Timestamp(MOMENT).value) + 789


def of_pandas(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"y": [row % 2 for row in range(ROWS)]} | columns)


def read(path: Path, **changes: Any) -> pa.Table:
    _, manifest, store = ingested(recipe_of(path, **changes), path.parent)
    return table_of(store, manifest, "rows")


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("ns", MOMENT),
        ("us", MOMENT),
        ("ms", MOMENT.replace(microsecond=123000)),
        ("s", MOMENT.replace(microsecond=0)),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_moments_of_pandas_in_any_unit_are_read_in_microseconds(
    tmp_path: Path, unit: str, expected: dt.datetime, zone: str | None
) -> None:
    moments = pd.Series([NS] * ROWS).astype("datetime64[ns]").astype(f"datetime64[{unit}]")
    frame = of_pandas(at=moments.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else moments)
    for path in (tmp_path / "a.parquet", tmp_path / "a.feather"):
        frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_feather(path)
        column = read(path)["at"]
        assert column.type == pa.timestamp("us", zone)
        found = column[0].as_py()
        assert (found.astimezone(dt.UTC).replace(tzinfo=None) if zone else found) == expected


def test_the_types_of_pandas_become_numbers_text_and_dates(tmp_path: Path) -> None:
    frame = of_pandas(
        wait=pd.to_timedelta([1_500_000_000] * ROWS, unit="ns"),
        category=pd.Categorical(["a", "b"] * (ROWS // 2)),
        codes=pd.Categorical([3, 5] * (ROWS // 2)),
        time=[dt.time(9, 30)] * ROWS,
        money=[Decimal("12.50")] * ROWS,
        half=np.full(ROWS, 0.5, np.float16),
        large=np.full(ROWS, 2**64 - 1, np.uint64),
        word=pd.array(["p", None] * (ROWS // 2), dtype="string"),
        nothing=[None] * ROWS,
    )
    frame.drop(columns="half").to_parquet(tmp_path / "a.parquet")
    frame.to_feather(tmp_path / "a.feather")
    for name in ("a.parquet", "a.feather"):
        found = read(tmp_path / name)
        assert found["wait"][0].as_py() == 1.5
        assert found["category"].to_pylist()[:2] == ["a", "b"]
        assert found["codes"].to_pylist()[:2] == [3, 5]
        assert found["time"][0].as_py() == dt.time(9, 30)
        assert found["money"][0].as_py() == 12.5
        assert found["large"][0].as_py() == 2**64 - 1
        assert found["word"].to_pylist()[:2] == ["p", None]
        assert found["nothing"].null_count == ROWS
    assert found["half"][0].as_py() == 0.5


@pytest.mark.parametrize("newest", [False, True])
def test_the_types_of_polars_become_numbers_text_and_dates(tmp_path: Path, newest: bool) -> None:
    frame = pl.DataFrame(
        {
            "y": [row % 2 for row in range(ROWS)],
            "at": pl.Series([NS] * ROWS).cast(pl.Datetime("ns")),
            "wait": pl.Series([1500] * ROWS).cast(pl.Duration("ms")),
            "time": [dt.time(9, 30)] * ROWS,
            "category": pl.Series(["a", "b"] * (ROWS // 2)).cast(pl.Categorical),
            "level": pl.Series(["low", None] * (ROWS // 2)).cast(pl.Enum(["low", "high"])),
            "word": ["a text that is longer than a view holds"] * ROWS,
            "nothing": pl.Series([None] * ROWS),
            "list": [["a"]] * ROWS,
            "array": pl.Series([[1, 2]] * ROWS, dtype=pl.Array(pl.Int64, 2)),
            "struct": [{"a": 1}] * ROWS,
            "bytes": [b"\xff"] * ROWS,
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ipc(tmp_path / "a.arrow", compat_level=pl.CompatLevel.newest() if newest else None)
    for name in ("a.parquet", "a.arrow"):
        found = read(tmp_path / name)
        assert found.column_names == ["y", "at", "wait", "time", "category", "level", "word", "nothing"]
        assert found["at"][0].as_py() == MOMENT
        assert found["wait"][0].as_py() == 1.5
        assert found["time"][0].as_py() == dt.time(9, 30)
        assert found["category"].to_pylist()[:2] == ["a", "b"]
        assert found["level"].to_pylist()[:2] == ["low", None]
        assert found["word"][0].as_py() == "a text that is longer than a view holds"


def test_moments_of_spark_are_read_beyond_the_years_of_nanoseconds(tmp_path: Path) -> None:
    moments = [*map(dt.datetime.fromisoformat, ("9999-12-31", "0001-01-01")), MOMENT, None] * (ROWS // 4)
    table = pa.table({"at": pa.array(moments, pa.timestamp("us")), "y": [row % 2 for row in range(ROWS)]})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read(tmp_path / "a.parquet")["at"].to_pylist() == moments


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**61], pa.timestamp("ms")),
        pa.array([2**60], pa.timestamp("us")),
        pa.array([-(10**14)], pa.timestamp("ms", "UTC")),
        pa.array([10**7], pa.int32()).cast(pa.date32()),
    ],
)
def test_a_date_that_no_calendar_has_is_named_before_anything_is_paid(
    tmp_path: Path, column: pa.Array
) -> None:
    table = pa.table({"at": pa.concat_arrays([column] * ROWS), "y": [row % 2 for row in range(ROWS)]})
    pq.write_table(table, tmp_path / "a.parquet")
    for look in (page_of_run, lambda recipe: ingested(recipe, tmp_path)):
        with pytest.raises(DataError, match=r"a\.parquet: column 'at' .* 1 to 9999 \(.*[0-9]{3}"):
            look(recipe_of(tmp_path / "a.parquet"))


def with_unusable(path: Path) -> Path:
    """Write a table with columns of types that cannot be used, and a saved index."""
    frame = of_pandas(x=range(ROWS), tags=[["a"]] * ROWS, raw=[b"\xff"] * ROWS, info=[{"k": 1}] * ROWS)
    frame.sample(frac=1, random_state=0).to_parquet(path / "a.parquet")
    return path / "a.parquet"


def test_columns_of_other_types_and_an_unnamed_index_are_left_out_and_named(tmp_path: Path) -> None:
    path = with_unusable(tmp_path)
    assert read(path).column_names == ["y", "x"]
    page = inspect_data(recipe_of(path))
    left_out = {each.name: each for each in page.columns if each.use == "not used"}
    assert {*left_out} == {"tags", "raw", "info", "__index_level_0__"}
    assert left_out["tags"].type == "list<element: string>"
    notes = "\n".join(page.notes)
    assert "column tags: left out, since it is of type list<element: string>, neither a number" in notes
    assert "column info: left out, since it is of type struct<k: int64>" in notes
    assert "column raw: left out, since it is of type binary" in notes
    assert "column __index_level_0__: left out, since it is of type int64, the index" in notes


def test_a_named_index_is_a_column(tmp_path: Path) -> None:
    of_pandas(x=range(ROWS)).rename_axis("customer").to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").column_names == ["y", "x"]
    index = pd.Index([f"c{row}" for row in range(ROWS)], name="customer")
    of_pandas(x=range(ROWS)).set_index(index).to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").column_names == ["y", "x", "customer"]


@pytest.mark.parametrize(
    ("changes", "usage"),
    [
        ({"target": {"column": "tags"}}, "the target"),
        ({"split": {"by": ["tags"]}}, "split.by"),
        ({"categorical": ["tags"]}, "the features"),
        ({"kinds": {"tags": "text"}}, "kinds"),
    ],
)
def test_a_column_of_another_type_that_the_recipe_names_is_refused(
    tmp_path: Path, changes: dict[str, Any], usage: str
) -> None:
    recipe = recipe_of(with_unusable(tmp_path), **changes)
    looks: list[Callable[[], object]] = [lambda: estimate_size(recipe), lambda: inspect_data(recipe)]
    for look in [*looks, lambda: ingested(recipe, tmp_path)]:
        with pytest.raises(
            RecipeError, match=rf"{usage}: the column tags is of type list<.*write its values"
        ):
            look()


def test_a_leak_may_be_a_column_that_is_left_out(tmp_path: Path) -> None:
    recipe = recipe_of(with_unusable(tmp_path), leaks=["tags"])
    estimate_size(recipe)
    assert not inspect_data(recipe).refusal
    _, manifest, _ = ingested(recipe, tmp_path)
    assert "rows.tags" not in manifest.columns


def test_a_join_may_name_no_column_of_another_type(tmp_path: Path) -> None:
    rows = {"rows": {"path": tmp_path / "rows.parquet"}, "more": {"path": with_unusable(tmp_path)}}
    pq.write_table(pa.table({"x": range(ROWS), "z": range(ROWS)}), tmp_path / "rows.parquet")
    join = {"table": "more", "by": ["x"], "columns": ["y", "tags"]}
    with pytest.raises(RecipeError, match="the join with more: the column tags is of type list"):
        estimate_size(recipe_of(tmp_path, source=rows, main="rows", joins=[join]))
    recipe = recipe_of(tmp_path, source=rows, main="rows", joins=[join | {"columns": ["y"]}])
    assert ingested(recipe, tmp_path)[1].rows == ROWS


def part(path: Path, **columns: pa.Array) -> None:
    pq.write_table(pa.table({"y": [row % 2 for row in range(ROWS)]} | columns), path)


def test_a_column_without_a_value_in_one_file_has_the_type_of_the_others(tmp_path: Path) -> None:
    data, nulls = tmp_path / "data", pa.nulls(ROWS)
    data.mkdir()
    part(data / "a.parquet", x=nulls, tags=nulls)
    recipe = recipe_of(data)
    _, _, store = ingested(recipe, tmp_path)
    assert last_schema(store, "mine").tables["rows"]["x"] == ""
    part(data / "b.parquet", x=pa.array(range(ROWS)), tags=pa.array([["a"]] * ROWS))
    _, manifest, store = ingested(recipe, tmp_path)
    found = table_of(store, manifest, "rows")
    assert found.schema.names == ["y", "x"]
    assert found["x"].type == pa.int64()
    part(data / "c.parquet", x=nulls, tags=nulls)
    _, later, _ = ingested(recipe, tmp_path)
    _, cold, _ = ingested(recipe, tmp_path / "cold")
    assert later == cold
    assert table_of(store, later, "rows")["x"].null_count == 2 * ROWS


def test_a_column_that_is_text_in_one_file_and_a_list_in_another_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    part(data / "a.parquet", tags=pa.array([["a"]] * ROWS))
    ingested(recipe_of(data), tmp_path)
    part(data / "b.parquet", tags=pa.array(["a"] * ROWS))
    for folder in (tmp_path, tmp_path / "cold"):
        with pytest.raises(DataError, match=r"b\.parquet: column 'tags' is of type string.*of type list<"):
            ingested(recipe_of(data), folder)


def test_repeated_names_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1] * 9)] * 2, names=["y", "y"])
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match=r"a\.arrow: every column needs a unique name.*'y'"):
        estimate_size(recipe_of(tmp_path / "a.arrow"))


def test_a_model_reads_durations_and_nanoseconds_as_it_has_learned_them() -> None:
    waits = pa.array([1500, None], pa.duration("ms"))
    assert ColumnReader(RawColumn(name="wait", type="double")).read(waits).to_pylist() == [1.5, None]
    moments = pa.array([NS], pa.timestamp("ns"))
    found = ColumnReader(RawColumn(name="at", type="timestamp[us]")).read(moments)
    assert found.to_pylist() == [MOMENT]
    with pytest.raises(DataError, match="column at holds a date outside the years 1 to 9999"):
        ColumnReader(RawColumn(name="at", type="timestamp[us]")).read(pa.array([2**60], pa.timestamp("us")))
