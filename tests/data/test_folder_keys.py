"""Folders KEY=VALUE, as Hive, Spark and polars write them: the keys are columns of the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from data_files import ingested, recipe_of, table_of
from source_folder import WRITERS, csv_of, parquet_of

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.source import ImageSettings, Source, TextSettings
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.files import estimate_size, list_data_files
from shoestring.models.data_files import open_rows, read_whole

ROWS = 20


def rows(seed: int, **columns: object) -> pa.Table:
    return pa.table(
        {"x": [seed + row / 4 for row in range(ROWS)], "y": [row % 2 for row in range(ROWS)]}
        | {name: [value] * ROWS for name, value in columns.items()}
    )


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def read(folder: Path, store: Path, **changes: object) -> pa.Table:
    _, manifest, found = ingested(recipe_of(folder, **changes), store)
    return table_of(found, manifest, "rows")


def keys_of(name: str) -> dict[str, str | None]:
    return DataFile(Path(name), name).keys


def test_the_keys_of_a_file_are_those_of_its_folders_without_escapes() -> None:
    assert keys_of("a=1/b=x%2Fy%20z/part=2.csv") == {"a": "1", "b": "x/y z"}
    assert keys_of("plain/=3/a=__HIVE_DEFAULT_PARTITION__/b=/c=d=e/0.csv") == {
        "a": None,
        "b": None,
        "c": "d=e",
    }


@pytest.mark.parametrize("suffix", WRITERS)
def test_keys_are_columns_of_every_kind_of_file_with_types_from_all_values(
    tmp_path: Path, suffix: str
) -> None:
    files = {}
    for index, (region, year) in enumerate([("north", 2023), ("a%2Fb", 2024), ("07", 2024)]):
        name = f"year={year}/day=2024-01-0{index + 1}/region={region}/0.{suffix}"
        files[name] = WRITERS[suffix](rows(index))
    missing = f"year=2023/day=__HIVE_DEFAULT_PARTITION__/region=north/0.{suffix}"
    folder = write(tmp_path / "data", files | {missing: WRITERS[suffix](rows(9))})
    found = read(folder, tmp_path)
    assert {*found.column_names} == {"x", "y", "year", "day", "region"}
    assert {*found["year"].to_pylist()} == {2023, 2024}
    assert {*found["region"].to_pylist()} == {"north", "a/b", "07"}
    assert {*found["day"].to_pylist()} == {
        None,
        *map(datetime.fromisoformat, ("2024-01-01", "2024-01-02", "2024-01-03")),
    }
    of_key = {(row["x"], row["region"]) for row in found.to_pylist()}
    assert {(0.0, "north"), (1.0, "a/b"), (2.0, "07"), (9.0, "north")} <= of_key
    assert estimate_size(recipe_of(folder, categorical=["region"])).rows_estimate == 4 * ROWS
    page = inspect_data(recipe_of(folder, target={"column": "region"}))
    assert "multiclass, 3 classes" in page.prediction
    columns = {each.name: each.type for each in page.columns}
    assert columns["year"] == "whole number"
    assert columns["day"] == "date and time"


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_folder_that_is_added_gives_what_a_reading_of_all_gives(tmp_path: Path, suffix: str) -> None:
    files = {f"year={year}/0.{suffix}": WRITERS[suffix](rows(year)) for year in (2020, 2021)}
    folder = write(tmp_path / "data", files)
    read(folder, tmp_path)
    write(folder, {f"year=2022/0.{suffix}": WRITERS[suffix](rows(2022))})
    _, found, store = ingested(recipe_of(folder), tmp_path)
    _, expected, _ = ingested(recipe_of(folder), tmp_path / "cold")
    assert found == expected
    assert {*table_of(store, found, "rows")["year"].to_pylist()} == {2020, 2021, 2022}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_folder_whose_name_has_another_kind_is_refused_with_or_without_the_store(
    tmp_path: Path, suffix: str
) -> None:
    files = {f"year={year}/0.{suffix}": WRITERS[suffix](rows(year)) for year in (2020, 2021)}
    folder = write(tmp_path / "data", files)
    read(folder, tmp_path)
    write(folder, {f"year=all/0.{suffix}": WRITERS[suffix](rows(1))})
    with pytest.raises(DataError, match="year"):
        read(folder, tmp_path)
    (folder / f"year=2020/0.{suffix}").write_bytes(WRITERS[suffix](rows(3)))
    (folder / f"year=2021/0.{suffix}").write_bytes(WRITERS[suffix](rows(4)))
    with pytest.raises(DataError, match="year"):
        read(folder, tmp_path)
    # From nothing, the kind is one that all values have, or the one that is stated.
    assert {*read(folder, tmp_path / "cold")["year"].to_pylist()} == {"2020", "2021", "all"}
    (folder / f"year=all/0.{suffix}").unlink()
    stated = read(folder, tmp_path / "stated", kinds={"year": "text"})
    assert {*stated["year"].to_pylist()} == {"2020", "2021"}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_column_of_the_name_of_a_key_must_have_its_value(tmp_path: Path, suffix: str) -> None:
    equal = {f"year={year}/0.{suffix}": WRITERS[suffix](rows(year, year=year)) for year in (2020, 2021)}
    found = read(write(tmp_path / "equal", equal), tmp_path)
    assert {*found["year"].to_pylist()} == {2020, 2021}
    other = {f"year=2020/0.{suffix}": WRITERS[suffix](rows(1, year=1999))}
    with pytest.raises(
        DataError, match=r"year=2020/0\..* has a column 'year' itself, with '?1999'? in a row"
    ):
        inspect_data(recipe_of(write(tmp_path / "other", other)))


def test_files_with_and_without_a_key_are_refused_before_anything_is_paid(tmp_path: Path) -> None:
    for number, (suffix, writer) in enumerate(WRITERS.items()):
        files = {f"region=north/0.{suffix}": writer(rows(1)), f"0.{suffix}": writer(rows(2))}
        with pytest.raises(
            DataError, match=r"region=north/0\S* is in a folder region=.*, and 0\.\S* is in none"
        ):
            estimate_size(recipe_of(write(tmp_path / str(number), files)))


def test_large_files_are_sampled_with_the_types_of_all_folders(tmp_path: Path) -> None:
    large = pa.table({"x": [row / 7 for row in range(300_000)], "y": [row % 2 for row in range(300_000)]})
    for suffix, data in (("parquet", parquet_of(large)), ("csv", csv_of(large))):
        folder = write(tmp_path / suffix, {f"k={key}/0.{suffix}": data for key in ("1", "north")})
        page = page_of_run(recipe_of(folder, target={"column": "k"}))
        assert not page.is_whole
        assert "binary, 2 classes" in page.prediction
        assert ": 1, north" in page.prediction
        assert {each.name for each in page.columns} == {"x", "y", "k"}


def test_a_sample_reads_keys_with_the_types_of_the_folders_that_it_leaves_out(tmp_path: Path) -> None:
    large = pa.table({"x": [row / 7 for row in range(20_000)], "y": [row % 2 for row in range(20_000)]})
    names = [f"k={key}" for key in range(10, 20)] + ["k=12b"]
    for suffix, data in (("parquet", parquet_of(large)), ("csv", csv_of(large))):
        folder = write(tmp_path / suffix, {f"{name}/0.{suffix}": data for name in names})
        page = page_of_run(recipe_of(folder))
        assert not page.is_whole
        assert {each.name: each.type for each in page.columns}["k"] == "text"


def test_what_polars_writes_in_folders_is_read(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"x": range(60), "y": [row % 2 for row in range(60)], "city": ["São Paulo", "a/b"] * 30}
    )
    frame.write_parquet(tmp_path / "data", partition_by=["city"], mkdir=True)
    assert {*read(tmp_path / "data", tmp_path)["city"].to_pylist()} == {"São Paulo", "a/b"}


def test_rows_to_predict_have_the_keys_of_their_folders(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {"region=north/0.csv": csv_of(rows(1))})
    assert {*read_whole(open_rows(folder))["region"].to_pylist()} == {"north"}


@pytest.mark.parametrize("write_rows", [csv_of, parquet_of])
def test_hidden_and_private_folders_are_skipped(
    tmp_path: Path, write_rows: Callable[[pa.Table], bytes]
) -> None:
    suffix = "csv" if write_rows is csv_of else "parquet"
    hidden = (".ipynb_checkpoints/a-checkpoint", "_temporary/0/task_1/b", "..2026_11_25/a", "_delta_log/c")
    files = {f"{name}.{suffix}": write_rows(rows(number)) for number, name in enumerate(hidden)}
    folder = write(tmp_path / "data", files | {f"..2026_11_25/a.{suffix}": write_rows(rows(7))})
    (folder / "..data").symlink_to("..2026_11_25")
    (folder / f"a.{suffix}").symlink_to(f"..data/a.{suffix}")
    assert read(folder, tmp_path)["x"].to_pylist() == rows(7)["x"].to_pylist()
    (folder / f"a.{suffix}").unlink()
    with pytest.raises(RecipeError, match=r"names that begin with \. or _ are skipped"):
        estimate_size(recipe_of(folder))
    # Spark writes the folder of a key of this name, and reads it.
    write(folder, {f"_day=1/a.{suffix}": write_rows(rows(8))})
    assert {*read(folder, tmp_path / "key")["_day"].to_pylist()} == {1}


def test_a_missing_key_in_json_may_have_the_value_of_its_folder(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"x": row, "y": row % 2} | ({"k": "a"} if row % 3 else {})) + "\n" for row in range(9)
    )
    folder = write(tmp_path / "data", {"k=a/0.jsonl": lines.encode()})
    assert read(folder, tmp_path)["k"].to_pylist() == ["a"] * 9


def test_images_and_texts_in_hidden_folders_are_skipped(tmp_path: Path) -> None:
    names = ("cat/0.png", ".ipynb_checkpoints/0.png", "_old/0.png", "a.md", "_b/_b.md", ".git/c.md")
    folder = write(tmp_path, dict.fromkeys(names, b"-"))
    images = list_data_files(Source(path=folder, image=ImageSettings(size=(8, 8))))
    assert [file.name for file in images] == ["cat/0.png"]
    texts = list_data_files(Source(path=folder, text=TextSettings()))
    assert [file.name for file in texts] == ["_b/_b.md", "a.md"]
