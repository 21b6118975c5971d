"""Documents of plain text: which files and pieces of them, and what cannot be read."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest
from data_files import ingested, quarantined_rows
from text_sources import raw_documents, text_folder, text_recipe

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Recipe
from shoestring.data.sources.documents.text_documents import MAX_DOCUMENT_BYTES
from shoestring.data.sources.files import estimate_size
from shoestring.training.families.text_net.settings import TextNetSettings


def documents(recipe: Recipe, folder: Path) -> list[tuple[str, bytes]]:
    _, manifest, store = ingested(recipe, folder)
    return raw_documents(store, manifest)


def test_each_file_of_a_folder_is_a_document_at_any_depth_packed_or_not(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", {"a.txt": "one", "deep/b.md": "zwölf", "c.py": "x = 3\r\n"})
    text_folder(folder, {"table.csv": "no text", ".hidden.txt": "no", "__init__.py": "y = 1"})
    (folder / "d.txt.gz").write_bytes(gzip.compress(b"four"))
    with zipfile.ZipFile(folder / "e.txt.zip", "w") as archive:
        archive.writestr("e.txt", "five")
    assert documents(text_recipe(folder), tmp_path) == [
        ("__init__.py", b"y = 1"),
        ("a.txt", b"one"),
        ("c.py", b"x = 3\r\n"),
        ("d.txt.gz", b"four"),
        ("deep/b.md", "zwölf".encode()),
        ("e.txt.zip", b"five"),
    ]


def test_a_separator_divides_a_file_of_any_name_and_blank_pieces_are_no_documents(tmp_path: Path) -> None:
    path = text_folder(tmp_path, {"novel": b"\xef\xbb\xbfone\n\ntwo\nlines\n\n\n\n \n\nthree\n"}) / "novel"
    recipe = text_recipe(path, separator="\n\n")
    assert [text for _, text in documents(recipe, tmp_path)] == [b"one", b"two\nlines", b"three\n"]
    lines = documents(text_recipe(path, separator="\n"), tmp_path)
    assert [text for _, text in lines] == [b"one", b"two", b"lines", b"three"]


def test_a_separator_is_found_where_two_blocks_of_the_file_meet(tmp_path: Path) -> None:
    first = b"a" * ((1 << 20) - 2)
    path = text_folder(tmp_path, {"one.txt": first + b"<end>" + b"b" * 9 + b"<end>c"}) / "one.txt"
    found = documents(text_recipe(path, separator="<end>"), tmp_path)
    assert [text for _, text in found] == [first, b"b" * 9, b"c"]


def test_a_folder_without_texts_is_refused_with_the_names_that_are_read(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", {"table.csv": "a,b"})
    with pytest.raises(RecipeError, match=r"does not contain a file whose name ends in \.txt, \.md, .*\.py"):
        estimate_size(text_recipe(folder))
    with pytest.raises(RecipeError, match="there is no file or folder"):
        estimate_size(text_recipe(tmp_path / "missing"))


def test_a_single_document_is_refused_and_a_separator_named(tmp_path: Path) -> None:
    path = text_folder(tmp_path, {"novel.txt": "one\n\ntwo\n\nthree"}) / "novel.txt"
    with pytest.raises(DataError, match=r"there is 1 document, a file each.*set `text.separator`"):
        estimate_size(text_recipe(path))
    assert estimate_size(text_recipe(path, separator="\n\n")).rows_estimate == 1


def test_what_is_not_utf_8_is_quarantined_with_the_encoding_that_it_seems_to_have(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 30)
    latin = "Die schönen Mädchen trägt man über die Brücke, größer als früher. " * 8
    text_folder(folder, {"x.txt": latin.encode("cp1252"), "y.txt": "zwölf".encode("utf-16-le")})
    _, manifest, store = ingested(text_recipe(folder), tmp_path)
    assert manifest.rows == 30
    found = {row["file"]: row["reason"] for row in quarantined_rows(store, manifest)}
    assert found["x.txt"].startswith("not UTF-8 text, seems to be ")
    assert found["y.txt"].startswith("not UTF-8 text") and len(found) == 2


def test_too_many_files_that_are_no_text_are_refused_with_their_names(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 8)
    text_folder(folder, {"a.txt": "wide".encode("utf-16-le")})
    with pytest.raises(
        DataError, match=r"1 of 9 rows.*(?s:.*)a\.txt, row 1: zero bytes, so no text, or UTF-16"
    ):
        ingested(text_recipe(folder), tmp_path)


def test_a_document_that_is_too_long_is_left_out_and_a_separator_is_named(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 12)
    long = b"x" * (MAX_DOCUMENT_BYTES + 1)
    text_folder(folder, {"long.txt": long})
    _, manifest, store = ingested(text_recipe(folder), tmp_path)
    assert manifest.rows == 12
    (reason,) = (row["reason"] for row in quarantined_rows(store, manifest))
    assert reason.startswith("a document of more than 64 MB: divide it by `text.separator`")
    # Between separators, only the piece that is too long is left out.
    text_folder(tmp_path, {"lines.txt": b"".join(b"%d\n" % number for number in range(9)) + long + b"\nlast"})
    lines = text_recipe(tmp_path / "lines.txt", separator="\n")
    _, manifest, store = ingested(lines, tmp_path / "lines")
    assert [text for _, text in raw_documents(store, manifest)][-2:] == [b"8", b"last"]
    assert sum(manifest.quarantined.values()) == 1


def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 4)
    (folder / "bomb.txt.gz").write_bytes(gzip.compress(bytes(70 << 20)))
    with pytest.raises(
        DataError, match=r"bomb\.txt\.gz has .* MB and unpacks to more than .* unpack it yourself"
    ):
        ingested(text_recipe(folder), tmp_path)


def test_a_truncated_file_is_refused_by_name(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 4)
    (folder / "half.txt.gz").write_bytes(gzip.compress(bytes(range(65, 91)) * 1000)[:60])
    with pytest.raises(DataError, match=r"half\.txt\.gz is damaged or truncated"):
        ingested(text_recipe(folder), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": {"column": "y"}}, "texts have no target"),
        ({"leaks": ["path"]}, "texts are used alone: remove `leaks`"),
        ({"numeric": ["path"]}, "texts are used alone: remove the features"),
        ({"kinds": {"path": "text"}}, "texts are used alone: remove `kinds`"),
        ({"max_categories": 8}, "texts are used alone: remove `max_categories`"),
        ({"train": {"hidden": [8, 16]}}, "all layers of a net for texts have the same number of units"),
        ({"split": {"by": ["day"]}}, "split.by: day is not a column of table rows"),
    ],
)
def test_keys_of_tables_are_refused_for_texts(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    folder = text_folder(tmp_path / "texts", 5)
    with pytest.raises((ValueError, RecipeError), match=message):
        ingested(text_recipe(folder, **changes), tmp_path)


def test_a_recipe_on_texts_is_the_same_when_it_is_written_and_read(tmp_path: Path) -> None:
    recipe = text_recipe(tmp_path, train={"hidden": [16, 16]})
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
    assert recipe.train == TextNetSettings(hidden=(16, 16), batch_rows=8)
    with pytest.raises(ValueError, match="the task next_token is that of texts"):
        Recipe.model_validate(
            {"name": "a", "source": {"b": {"path": "c"}}, "target": {"column": "y", "task": "next_token"}}
        )
