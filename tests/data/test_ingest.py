from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import flights_lines
from data_files import ingested, quarantined_rows, quiet, recipe_of, table_of
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError, RecipeError, StoreFull
from shoestring.core.types import Format, StageOutcome
from shoestring.data.storage import cache
from shoestring.data.transforms.ingest import ingest, settings


def of(folder: Path, text: str, name: str = "rows.csv") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


def numbers(count: int) -> str:
    return "".join(f"{number},{number % 2}\n" for number in range(count))


def test_rows_with_the_wrong_number_of_values_are_quarantined_with_row_number_and_text(
    tmp_path: Path,
) -> None:
    path = of(tmp_path, "\n\na,y\n" + numbers(50) + "1,2,3\n\n" + numbers(50) + "7\n" + numbers(50))
    _, manifest, store = ingested(recipe_of(path), tmp_path)
    assert manifest.rows == 150
    assert manifest.quarantined == {"rows: 3 values instead of 2": 1, "rows: 1 values instead of 2": 1}
    assert [(row["row"], row["text"]) for row in quarantined_rows(store, manifest)] == [
        (52, "1,2,3"),
        (103, "7"),
    ]
    assert table_of(store, manifest, "rows")["a"].to_pylist() == [*range(50)] * 3


def test_text_in_a_number_column_costs_the_value_and_not_its_row(tmp_path: Path) -> None:
    path = of(
        tmp_path,
        "a,y\n" + numbers(40) + "1,2,3\n" + numbers(40) + "n/k,1\n" + numbers(40) + '"say ""what""",0\n',
    )
    _, manifest, store = ingested(recipe_of(path), tmp_path)
    assert manifest.columns == {"rows.a": "int64", "rows.y": "int64"}
    assert manifest.quarantined == {"rows: 3 values instead of 2": 1}
    assert manifest.unread == {"rows: a is not a whole number": 2}
    assert [
        (row["row"], row["text"]) for row in quarantined_rows(store, manifest) if "a is" in row["reason"]
    ] == [
        (83, "n/k,1"),
        (124, '"say ""what""",0'),
    ]
    column = table_of(store, manifest, "rows")["a"]
    assert manifest.rows == len(column) == 122
    assert (column[80].as_py(), column[121].as_py()) == (None, None)


def test_more_than_10_percent_bad_rows_are_refused_with_the_first_ones_shown(tmp_path: Path) -> None:
    path = of(tmp_path, "a,y\n" + numbers(80) + "1,2,3\n" * 10)
    with pytest.raises(DataError) as found:
        ingested(recipe_of(path), tmp_path)
    assert "10 of 90 rows of table rows" in str(found.value)
    assert "rows.csv, row 82: 3 values instead of 2: '1,2,3'" in str(found.value)
    assert str(found.value).count("\n") == 3
    assert ingested(recipe_of(of(tmp_path, "a,y\n" + numbers(90) + "1,2,3\n" * 10)), tmp_path)[1].rows == 90


def test_an_unclosed_quote_does_not_hide_the_following_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"501 of 1001 rows .*\n.*row 502"):
        ingested(recipe_of(of(tmp_path, "a,y\n" + numbers(500) + '"7,1\n' + numbers(500))), tmp_path)
    with pytest.raises(DataError, match="a quote that is opened and never closed"):
        ingested(recipe_of(of(tmp_path, "a,y\n" + numbers(500) + '"7,1\n' + "5,1\n" * 5_000_000)), tmp_path)


def test_a_header_without_rows_is_refused(tmp_path: Path) -> None:
    for text in ("a,y\n", "a,y", "\n\na,y\r\n"):
        with pytest.raises(DataError, match="no rows"):
            ingested(recipe_of(of(tmp_path, text)), tmp_path)


def test_an_unknown_target_is_a_recipe_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="late is not a column of table rows, which has a, y"):
        ingested(recipe_of(of(tmp_path, "a,y\n1,2\n"), target={"column": "late"}), tmp_path)


@examples(40)
@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12),
        min_size=1,
        max_size=20,
    ),
    delimiter=st.sampled_from(",;\t|"),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_unicode_quotes_and_line_breaks_in_values_are_preserved(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], delimiter: str, ending: str
) -> None:
    folder = tmp_path_factory.mktemp("quotes")
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter=delimiter, lineterminator=ending, quoting=csv.QUOTE_ALL)
    writer.writerow(["größe", "word", "y"])
    writer.writerows([number, f"~{text}~", number] for number, text in enumerate(texts))
    _, manifest, store = ingested(recipe_of(of(folder, lines.getvalue())), folder)
    table = table_of(store, manifest, "rows")
    assert table["word"].to_pylist() == [f"~{text}~" for text in texts]
    assert table["größe"].to_pylist() == [*range(len(texts))]


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbfa,y\n1,2\n")
    assert list(ingested(recipe_of(tmp_path / "rows.csv"), tmp_path)[1].columns) == ["rows.a", "rows.y"]


@pytest.mark.parametrize("kind", ["gz", "zip", "parquet"])
@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_file_is_named(tmp_path: Path, kind: str, keep: float) -> None:
    data = b"".join(flights_lines(5000))
    path = tmp_path / f"rows.csv.{kind}" if kind != "parquet" else tmp_path / "rows.parquet"
    if kind == "gz":
        path.write_bytes(gzip.compress(data))
    elif kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("flights.csv", data)
    else:
        pq.write_table(pa.table({"arr_delay": list(range(5000))}), path)
    assert ingested(recipe_of(path, target={"column": "arr_delay"}), tmp_path / "whole")[1].rows == 5000
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DataError) as found:
        ingested(recipe_of(path, target={"column": "arr_delay"}), tmp_path / "cut")
    assert path.name in str(found.value)
    assert "truncated" in str(found.value)


def test_a_damaged_zip_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.csv", "a,y\n" + numbers(5000))
    data = bytearray((tmp_path / "rows.csv.zip").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "rows.csv.zip").write_bytes(data)
    with pytest.raises(DataError, match=r"rows\.csv\.zip"):
        ingested(recipe_of(tmp_path / "rows.csv.zip"), tmp_path)


def test_a_folder_of_files_is_one_table_for_any_column_order(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    of(folder, "a,y\n1,2\n", "b.csv")
    of(folder, "y,a\n4,3.5\n", "a.csv")
    _, manifest, store = ingested(recipe_of(folder), tmp_path)
    assert table_of(store, manifest, "rows").select(["a", "y"]).to_pylist() == [
        {"a": 3.5, "y": 4},
        {"a": 1.0, "y": 2},
    ]
    of(folder, "a,z\n1,2\n", "c.csv")
    with pytest.raises(DataError, match=r"c\.csv has the columns a, z"):
        ingested(recipe_of(folder), tmp_path)


def test_parquet_files_of_one_table_get_the_wider_type(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(
        pa.table({"a": pa.array([1], pa.int32()), "w": pa.array(["x"]).dictionary_encode(), "y": [True]}),
        folder / "1.parquet",
    )
    pq.write_table(
        pa.table({"y": [False], "a": pa.array([2.5], pa.float32()), "w": pa.array([None], pa.null())}),
        folder / "2.parquet",
    )
    _, manifest, store = ingested(recipe_of(folder), tmp_path)
    assert manifest.columns == {"rows.a": "double", "rows.w": "string", "rows.y": "bool"}
    assert table_of(store, manifest, "rows").to_pylist() == [
        {"a": 1, "w": "x", "y": True},
        {"a": 2.5, "w": None, "y": False},
    ]


@pytest.mark.parametrize("format", Format)
def test_flights_keep_types_and_values_in_every_format(tmp_path: Path, format: Format) -> None:
    (tmp_path / "flights.csv").write_bytes(b"".join(flights_lines(3000)))
    recipe = recipe_of(tmp_path / "flights.csv", target={"column": "arr_delay"})
    key, manifest, store = ingested(recipe, tmp_path, format)
    assert manifest.rows == 3000
    assert manifest.quarantined == {}
    assert manifest.columns["rows.time_hour"] == "timestamp[us, tz=UTC]"
    assert {manifest.columns[f"rows.{name}"] for name in ("carrier", "tailnum", "origin", "dest")} == {
        "string"
    }
    assert manifest.columns["rows.dep_time"] == "int64"
    with (tmp_path / "flights.csv").open() as lines:
        truth = list(csv.DictReader(lines))
    table = table_of(store, manifest, "rows")
    assert table["arr_delay"].to_pylist() == [
        None if row["arr_delay"] == "NA" else int(row["arr_delay"]) for row in truth
    ]
    assert table["dest"].to_pylist() == [row["dest"] for row in truth]
    assert ingested(recipe, tmp_path / "again", format)[0] == key


def test_the_report_callback_can_stop_ingest(tmp_path: Path) -> None:
    def stop(what: str, rows: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "scratch").mkdir()
    store = FolderStore(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        ingest(recipe_of(of(tmp_path, "a,y\n" + numbers(9))), Format.ARROW, store, tmp_path / "scratch", stop)
    assert list(store.list("datasets/")) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    recipe = recipe_of(of(tmp_path, "a,y\n" + numbers(9)))
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch/part").symlink_to("/dev/full")
    with pytest.raises((StoreFull, OSError), match=r"[Nn]o space left"):
        ingest(recipe, Format.ARROW, FolderStore(tmp_path / "store"), tmp_path / "scratch", quiet)


def test_the_result_of_a_recipe_that_states_how_files_are_read_is_cached(tmp_path: Path) -> None:
    path = of(tmp_path, "a,y\n" + numbers(50))
    source = {"rows": {"path": path, "read": {"delimiter": ",", "missing": ["-999"]}}}
    recipe = recipe_of(path, source=source)
    result, _, store = ingested(recipe, tmp_path)
    key, made_from = cache.cache_key("ingest", "", {}, settings(recipe), {})
    cache.save_outcome(store, key, StageOutcome(key=result), made_from)
    assert cache.find_outcome(store, key) == StageOutcome(key=result)
