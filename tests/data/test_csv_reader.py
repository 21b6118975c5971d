"""Delimited text is read once, with the types that all of its rows have."""

from __future__ import annotations

import gzip
import random
import zipfile
from pathlib import Path

import pytest
from data_files import ingested, quarantined_rows, recipe_of, table_of

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.sources.untyped_table import BLOCK_BYTES, SAMPLE_BLOCKS
from shoestring.data.transforms.ingest import ingest


def of(folder: Path, text: str) -> Path:
    (folder / "rows.csv").write_bytes(text.encode())
    return folder / "rows.csv"


def beyond_the_sample(cell: str, delimiter: str = ";") -> str:
    """Return rows with two values, more than the kinds are inferred from, and then 40,000 of `cell`."""
    padding = "x" * 1000
    rows = "".join(f"{number}{delimiter}{padding}\n" for number in range(SAMPLE_BLOCKS * BLOCK_BYTES // 1000))
    return rows + f"{cell}{delimiter}x\n" * 40_000


@pytest.mark.parametrize(
    ("cell", "type_", "value"),
    [("3,14", "double", 3.14), ("2.5", "double", 2.5), ("late", "string", "late"), ("", "int64", None)],
)
def test_a_column_that_changes_beyond_the_sample_is_read_again_with_its_type(
    tmp_path: Path, cell: str, type_: str, value: object
) -> None:
    text = "a;y\n" + beyond_the_sample(cell) + "1;2;3\n"
    seen: list[int] = []
    (tmp_path / "scratch").mkdir()
    store = FolderStore(tmp_path / "store")
    recipe = recipe_of(of(tmp_path, text))
    _, manifest = ingest(recipe, Format.ARROW, store, tmp_path / "scratch", lambda _, rows: seen.append(rows))
    assert manifest.columns["rows.a"] == type_
    assert manifest.quarantined == {"rows: 3 values instead of 2": 1}
    assert [row["row"] for row in quarantined_rows(store, manifest)] == [text.count("\n")]
    column = table_of(store, manifest, "rows")["a"]
    assert len(column) == manifest.rows == text.count("\n") - 2
    assert (column[7].as_py(), column[-1].as_py()) == ("7" if type_ == "string" else 7, value)
    assert seen == sorted(seen)


def test_a_few_late_words_are_missing_and_named_with_their_row(tmp_path: Path) -> None:
    text = "a;y\n" + beyond_the_sample("5") + "late;x\n"
    _, manifest, store = ingested(recipe_of(of(tmp_path, text)), tmp_path)
    assert manifest.columns["rows.a"] == "int64"
    [row] = quarantined_rows(store, manifest)
    assert (row["file"], row["row"], row["text"]) == ("rows.csv", text.count("\n"), "late,x")
    assert (row["reason"], row["column"], row["value"]) == ("a is not a whole number", "a", "late")


@pytest.mark.parametrize(("late", "damaged"), [("1,2,checked\n", 1), ("1,2,  \n", 0)])
def test_a_late_value_in_a_column_without_a_name_is_named_with_its_row(
    tmp_path: Path, late: str, damaged: int
) -> None:
    text = "a,y,\n" + "1,2,\n" * 3000 + late + "3,4,\n"
    _, manifest, store = ingested(recipe_of(of(tmp_path, text)), tmp_path)
    assert [*manifest.columns] == ["rows.a", "rows.y"]
    assert manifest.unread == ({"rows: column_3 has no name": 1} if damaged else {})
    assert manifest.rows == 3002
    if damaged:
        [row] = quarantined_rows(store, manifest)
        assert (row["row"], row["value"], row["column"]) == (3002, "checked", "column_3")


def test_many_late_values_in_a_column_without_a_name_are_refused_with_the_key(tmp_path: Path) -> None:
    text = "a,y,\n" + "1,2,\n" * 3000 + "1,2,checked\n" * 1001
    path = of(tmp_path, text)
    with pytest.raises(
        DataError, match=r"column_3 has no name.*1,001 such as 'checked' up to row 4,002: name"
    ):
        ingested(recipe_of(path), tmp_path)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "cp1251", "utf-8-sig", "shift_jis"])
@pytest.mark.parametrize("rows_before", [0, 200_000])
def test_text_in_another_encoding_is_read_also_where_its_first_megabyte_is_ascii(
    tmp_path: Path, encoding: str, rows_before: int
) -> None:
    words = {"cp1251": "Привет из Москвы, дорогой друг", "shift_jis": "東京,大阪"}
    word = words.get(encoding, "Größe und Straße über München")
    text = "a,y\n" + "plain,1\n" * rows_before + f'"{word}",1\n' * 20
    (tmp_path / "rows.csv").write_bytes(text.encode(encoding))
    _, manifest, store = ingested(recipe_of(tmp_path / "rows.csv"), tmp_path)
    assert table_of(store, manifest, "rows")["a"].to_pylist() == ["plain"] * rows_before + [word] * 20
    assert manifest.rows == rows_before + 20 and not manifest.unread


def test_a_byte_that_is_no_text_costs_its_value_and_not_its_row(tmp_path: Path) -> None:
    rows = ["Zürich,1\n".encode()] * 50 + [b"Z\xfcrich,1\n"] + ["Zürich,1\n".encode()] * 50
    (tmp_path / "rows.csv").write_bytes(b"a,y\n" + b"".join(rows))
    _, manifest, store = ingested(recipe_of(tmp_path / "rows.csv"), tmp_path)
    assert (manifest.rows, manifest.unread) == (101, {"rows: a is not utf-8 text": 1})
    [value] = quarantined_rows(store, manifest)
    assert (value["row"], value["column"]) == (52, "a")
    assert table_of(store, manifest, "rows")["a"][50].as_py() is None


def test_an_encoding_that_none_fits_is_refused_with_the_key_that_states_it(tmp_path: Path) -> None:
    noise = random.Random(1)
    rows = (bytes(noise.choices(range(0x80, 0x100), k=30)) + b",1\n" for _ in range(20))
    (tmp_path / "rows.csv").write_bytes(b"a,y\n" + b"".join(rows))
    with pytest.raises(DataError, match=r"rows\.csv is not UTF-8 text.*`read: \{encoding: cp437\}`"):
        ingested(recipe_of(tmp_path / "rows.csv"), tmp_path)


@pytest.mark.parametrize("kind", ["gz", "zip"])
def test_a_file_that_unpacks_without_end_is_refused_and_is_not_read_to_its_end(
    tmp_path: Path, kind: str
) -> None:
    block = ("x" * 1000 + ",1\n").encode() * 8000
    path = tmp_path / f"rows.csv.{kind}"
    if kind == "gz":
        path.write_bytes(gzip.compress(b"a,y\n") + gzip.compress(block) * 12)
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rows.csv", b"a,y\n" + block * 9)
    with pytest.raises(DataError, match=rf"rows\.csv\.{kind} has .* MB and unpacks to more than 67.1 MB"):
        ingested(recipe_of(path), tmp_path)
