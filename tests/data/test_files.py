from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import recipe_of

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError, RecipeError, ShoestringError
from shoestring.data.recipe_files import find_recipe
from shoestring.data.sources.csv_reader import open_csv_table
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.files import estimate_size, list_data_files
from shoestring.data.sources.fingerprint import fingerprint, remember_digests, stored_digests
from shoestring.data.sources.quarantine import Quarantine

ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (number % 1000, number % 7) for number in range(300_000))


def packed_as(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(data, 1))
    elif name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rows.csv", data)
    elif name.endswith(".parquet"):
        pq.write_table(pa.table({"a": list(range(300_000)), "y": [1] * 300_000}), path)
    else:
        path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.csv.zip", "rows.parquet"])
def test_rows_are_estimated_within_5_percent_from_one_megabyte(tmp_path: Path, name: str) -> None:
    size = estimate_size(recipe_of(packed_as(tmp_path, name, ROWS)))
    assert size.rows_estimate == pytest.approx(300_000, rel=0.05)
    assert size.row_bytes == 16
    if name != "rows.parquet":
        assert size.size_bytes == pytest.approx(len(ROWS), rel=0.05)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.csv.zip"])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_the_rows_of_a_small_file_are_counted_exactly(tmp_path: Path, name: str, ending: bytes) -> None:
    assert (
        estimate_size(recipe_of(packed_as(tmp_path, name, b"a,y\n1,2\n3,4\n5,6" + ending))).rows_estimate == 3
    )


def test_all_files_of_a_folder_count_except_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", ".hidden.csv", "_SUCCESS", "notes.md"):
        (tmp_path / name).write_bytes(b"a,y\n1,2\n3,4\n")
    recipe = recipe_of(tmp_path)
    assert [file.name for file in list_data_files(recipe.source["rows"])] == ["a.csv", "b.csv"]
    assert estimate_size(recipe).rows_estimate == 4


def test_the_size_of_flights_is_estimated_within_5_percent() -> None:
    assert estimate_size(find_recipe("flights")).rows_estimate == pytest.approx(336_776, rel=0.05)


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv.zip", "rows.parquet"])
@pytest.mark.parametrize("keep", [0.01, 0.5])
def test_a_truncated_file_is_named_or_its_size_estimate_is_sane(
    tmp_path: Path, name: str, keep: float
) -> None:
    path = packed_as(tmp_path, name, ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    try:
        size = estimate_size(recipe_of(path))
    except DataError as error:
        assert name in str(error)
        assert "truncated" in str(error)
    else:
        assert name == "rows.csv.gz"
        assert size.rows_estimate < 300_000


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_an_empty_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(DataError, match=f"{name} is empty"):
        estimate_size(recipe_of(tmp_path / name))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_fewer_rows_than_splits_are_refused(tmp_path: Path, rows: int) -> None:
    with pytest.raises(DataError, match=f"table rows has {rows} row"):
        estimate_size(recipe_of(packed_as(tmp_path, "rows.csv", b"a,y\n" + b"1,2\n" * rows)))


def test_rows_that_are_only_predicted_may_be_few_and_lack_the_target(tmp_path: Path) -> None:
    for rows in (0, 1, 2):
        recipe = recipe_of(packed_as(tmp_path, "rows.csv", b"a,b\n" + b"1,2\n" * rows))
        assert estimate_size(recipe, learns=False).rows_estimate == max(1, rows)


def test_a_quoted_column_name_may_contain_a_line_break(tmp_path: Path) -> None:
    table = open_csv_table(
        [DataFile(packed_as(tmp_path, "rows.csv", b'"a\nb",y\n1,2\n3,4\n5,6\n'), "rows.csv")]
    )
    assert table.names == ["a\nb", "y"]
    rows = pa.concat_tables(table.batches(Quarantine("rows", io.StringIO())))
    assert rows.to_pydict() == {"a\nb": [1, 3, 5], "y": [2, 4, 6]}


def test_files_without_a_header_are_empty(tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.csv.gz"):
        with pytest.raises(DataError, match=f"{name} is empty"):
            estimate_size(recipe_of(packed_as(tmp_path, name, b"\n\r\n")))


def test_a_missing_file_and_an_unknown_file_type_are_recipe_errors(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no file or folder .*gone\.csv"):
        estimate_size(recipe_of(tmp_path / "gone.csv"))
    (tmp_path / "rows.xlsx").write_bytes(b"PK")
    with pytest.raises(RecipeError, match=r"rows\.xlsx"):
        estimate_size(recipe_of(tmp_path / "rows.xlsx"))
    (tmp_path / "hollow").mkdir()
    with pytest.raises(RecipeError, match="hollow"):
        estimate_size(recipe_of(tmp_path / "hollow"))


def test_a_folder_with_two_file_types_and_an_archive_with_two_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    packed_as(folder, "a.csv", b"a,y\n1,2\n")
    packed_as(folder, "b.parquet", b"")
    with pytest.raises(DataError, match="both text and Parquet"):
        estimate_size(recipe_of(folder))
    with zipfile.ZipFile(tmp_path / "two.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a,y\n")
        archive.writestr("b.csv", "a,y\n")
    with pytest.raises(DataError, match="contains 2 files"):
        estimate_size(recipe_of(tmp_path / "two.csv.zip"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"target": {"column": "lateness"}},
            "the target: lateness is not a column of table rows, which has a, y",
        ),
        ({"numeric": ["b", "c"]}, "the features: b, c are not columns"),
        ({"leaks": ["b"]}, "leaks: b is not"),
        ({"split": {"by": ["day"]}}, "split.by: day is not"),
    ],
)
def test_an_unknown_column_is_reported_with_the_known_ones(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(RecipeError) as found:
        estimate_size(recipe_of(packed_as(tmp_path, "rows.csv", b"a,y\n1,2\n"), **changes))
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ({"by": ["b"], "columns": ["t"]}, "b is not a column of table rows"),
        ({"by": ["a"], "columns": ["u"]}, "u is not a column of table more"),
        ({"by": ["a"], "columns": ["y"]}, "adds y, which rows already has"),
    ],
)
def test_an_impossible_join_is_reported(tmp_path: Path, join: dict[str, object], message: str) -> None:
    rows, more = (
        packed_as(tmp_path, "rows.csv", b"a,y\n1,2\n"),
        packed_as(tmp_path, "more.csv", b"a,b,t,y\n1,2,3,4\n"),
    )
    recipe = recipe_of(
        rows,
        source={"rows": {"path": rows}, "more": {"path": more}},
        main="rows",
        joins=[{"table": "more"} | join],
    )
    with pytest.raises(ShoestringError) as found:
        estimate_size(recipe)
    assert message in str(found.value)


def test_a_fingerprint_depends_only_on_the_content(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    first = packed_as(tmp_path, "rows.csv", b"a,y\n1,2\n")
    before = fingerprint(recipe_of(first), store)
    os.utime(first, ns=(1, 1))
    assert fingerprint(recipe_of(first), store) == before
    (tmp_path / "copy").mkdir()
    assert fingerprint(recipe_of(packed_as(tmp_path / "copy", "rows.csv", b"a,y\n1,2\n")), store) == before
    first.write_bytes(b"a,y\n1,3\n")
    assert fingerprint(recipe_of(first), store) != before


def test_a_file_with_a_cached_digest_is_not_read_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    recipe = recipe_of(packed_as(tmp_path, "rows.csv", b"a,y\n1,2\n"))
    before, source = fingerprint(recipe, store), recipe.source["rows"]
    known = stored_digests(source, store)
    other = {name: each._replace(sha256="0" * 64) for name, each in known.items()}
    remember_digests(source, known, other, store)
    assert fingerprint(recipe, store) != before
    assert fingerprint(recipe, FolderStore(tmp_path / "other")) == before


def test_a_file_that_is_rewritten_with_its_size_and_its_time_put_back_is_read_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    path = packed_as(tmp_path, "rows.csv", b"a,y\n1,2\n")
    before, stat = fingerprint(recipe_of(path), store), path.stat()
    path.write_bytes(b"a,y\n1,9\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns
    assert fingerprint(recipe_of(path), store) != before
