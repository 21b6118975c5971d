"""Documents in a column of tables: JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import ingested, preprocessed, quarantined_rows, samples_of
from pydantic import ValidationError
from text_sources import documents_of, raw_documents, story

from shoestring.core.errors import RecipeError
from shoestring.data.inspect.page import inspect_data
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe

ROWS = [
    {"book": "Ruth", "chapter": 1, "text": "one"},
    {"book": "Ruth", "chapter": 1, "text": "zwölf, \n drei"},
    {"book": "Ruth", "chapter": 2, "text": "2024"},
    {"book": "Job", "chapter": 2, "text": ""},
    {"book": "Job", "chapter": 2, "text": "007"},
]


def written(folder: Path, suffix: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    path = folder / f"verses.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="", encoding="utf-16") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


def recipe_of_texts(path: Path, **text: Any) -> Recipe:
    settings = {"row_tokens": 32, "column": "text"} | text
    return Recipe.model_validate({"name": "mine", "source": {"rows": {"path": path, "text": settings}}})


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_each_row_is_a_document_and_text_stays_as_it_is_written(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, suffix)
    _, manifest, store = ingested(recipe_of_texts(path), tmp_path)
    assert raw_documents(store, manifest) == [
        (f"{path.name}#1", b"one"),
        (f"{path.name}#2", "zwölf, \n drei".encode()),
        (f"{path.name}#3", b"2024"),
        (f"{path.name}#5", b"007"),
    ]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_rows_with_equal_values_that_follow_one_another_are_one_document(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, suffix)
    _, manifest, store = ingested(recipe_of_texts(path, by=["book", "chapter"]), tmp_path)
    assert raw_documents(store, manifest) == [
        (f"{path.name}#Ruth/1", "one\nzwölf, \n drei".encode()),
        (f"{path.name}#Ruth/2", b"2024"),
        (f"{path.name}#Job/2", b"007"),
    ]


def test_documents_of_a_table_become_token_rows_of_their_splits(tmp_path: Path) -> None:
    rows = [{"text": f"{number} {story(number)}", "n": number} for number in range(60)]
    path = written(tmp_path, "jsonl", rows)
    _, manifest, store = preprocessed(recipe_of_texts(path), tmp_path)
    found = [text for split in manifest.splits for text in documents_of(samples_of(store, manifest, split))]
    assert sorted(filter(None, found)) == sorted(row["text"].encode() for row in rows)


def test_a_damaged_row_is_quarantined_and_the_others_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl", [{"text": story(number)} for number in range(40)])
    with path.open("a") as file:
        file.write('{"text": "half\n')
    _, manifest, store = ingested(recipe_of_texts(path), tmp_path)
    [row] = quarantined_rows(store, manifest)
    assert (row["row"], row["reason"], manifest.rows) == (41, "not JSON", 40)


@pytest.mark.parametrize(("by", "number"), [([], 4), (["name"], 3)])
def test_a_text_that_cannot_be_used_is_quarantined_with_its_row(
    tmp_path: Path, by: list[str], number: int
) -> None:
    rows = [{"name": index // 2, "text": story(index)} for index in range(40)]
    rows[1]["text"] = ""
    rows[3]["text"] = "a zero \0 byte"
    _, manifest, store = ingested(recipe_of_texts(written(tmp_path, "jsonl", rows), by=by), tmp_path)
    [row] = quarantined_rows(store, manifest)
    assert row["row"] == number and row["reason"].startswith("zero bytes")


def test_the_page_counts_the_documents_of_a_table(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl", [{"text": story(number, number + 5)} for number in range(80)])
    page = inspect_data(recipe_of_texts(path))
    assert page.texts is not None and page.texts.documents == 80 and not page.refusal


def test_the_included_recipe_reads_the_chapters_of_the_king_james_bible() -> None:
    page = inspect_data(find_recipe("kjv"))
    assert page.texts is not None and page.texts.documents == 1189 and not page.refusal


def test_a_column_that_the_table_lacks_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    with pytest.raises(RecipeError, match=r"body is no column of verses\.csv, which has book, chapter, text"):
        inspect_data(recipe_of_texts(path, column="body"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ({"separator": "\n"}, "either `column`.*or `separator`"),
        ({"column": "", "by": ["book"]}, "`by` joins the rows of a table"),
    ],
)
def test_keys_that_exclude_one_another_are_refused(tmp_path: Path, text: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        recipe_of_texts(tmp_path, **text)
