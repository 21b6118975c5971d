"""The data page of texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from text_sources import story, text_folder, text_recipe

from shoestring.core.errors import DataError
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.inspect.page_records import DataPage
from shoestring.data.inspect.texts.text_page import SAMPLE_BYTES
from shoestring.reporting.data_text import plain_lines


def test_the_page_counts_documents_bytes_rows_and_splits(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 50)
    page = page_of_run(text_recipe(folder))
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    assert page.texts is not None
    assert (page.texts.files, page.texts.documents, page.texts.size_bytes) == (50, 50, size_bytes)
    assert page.rows == -(-size_bytes // 31) and sum(page.splits.values()) == 50 and page.is_whole
    assert (page.texts.encoding, page.texts.findings, page.refusal) == ("UTF-8", (), "")
    lines = plain_lines(page)
    assert lines[0] == "mine: 50 documents in 50 files, all read"
    assert lines[2].startswith(f"text: {size_bytes:,} bytes of UTF-8; about {page.rows:,} rows of 32 tokens")
    assert lines[-1] == "nothing looks wrong"
    assert DataPage.model_validate_json(page.model_dump_json()) == page


def test_empty_repeated_and_unreadable_documents_are_named(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {f"{number}.txt": story(number) + f" {number}" for number in range(40)}
    texts |= {f"copy{number}.txt": story(3) for number in range(5)}
    folder = text_folder(
        tmp_path / "texts", texts | {"e1.txt": "", "e2.txt": "\n", "latin.txt": b"m\xe4rz " * 40}
    )
    page = inspect_data(text_recipe(folder))
    assert page.texts is not None and page.without_target == 2 and page.misfits == 1
    ((reason, count),) = page.texts.unusable.items()
    assert reason.startswith("rows: not UTF-8 text") and count == 1
    empty, repeated = page.texts.findings
    assert empty == "2 documents are empty, and are left out"
    assert repeated.startswith("4 of 45 documents repeat another one word for word")
    assert page.notes[1:] == (f"warning: {empty}", f"warning: {repeated}")
    assert "; 2 empty; 1 set aside: rows: not UTF-8 text" in plain_lines(page)[0]


def test_one_huge_line_and_documents_shorter_than_a_row_are_named(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 20)
    text_folder(folder, {"data.txt": "0123456789" * 120_000})
    page = inspect_data(text_recipe(folder, row_tokens=512))
    assert page.texts is not None
    assert page.texts.findings == ("data.txt has a line of 1.2 MB: look whether it is text",)
    verses = text_folder(tmp_path / "verses", {"all.txt": "".join(f"verse {line}\n" for line in range(50))})
    page = inspect_data(text_recipe(verses, row_tokens=512, separator="\n"))
    assert page.texts is not None
    (finding,) = page.texts.findings
    assert finding.startswith("every document is shorter than a row of 512 tokens")


def test_what_a_run_would_be_refused_for_is_shown_before_it_is_paid(tmp_path: Path) -> None:
    novel = text_recipe(text_folder(tmp_path / "one", {"novel.txt": story(1, 400)}))
    assert "set `text.separator`" in inspect_data(novel).refusal
    few = text_recipe(text_folder(tmp_path / "few", 3))
    assert "none falls into the split" in inspect_data(few).refusal
    folder = text_folder(tmp_path / "bad", 8)
    text_folder(folder, {"wide.txt": "x".encode("utf-16-le"), "wider.txt": "y".encode("utf-16-le")})
    with pytest.raises(DataError, match="2 of 10 rows of table rows cannot be used"):
        page_of_run(text_recipe(folder))


def test_a_large_folder_is_looked_at_in_part(tmp_path: Path) -> None:
    block = b"a line of text\n" * 70_000
    folder = text_folder(
        tmp_path / "texts", {f"{number}.txt": b"%d " % number + block for number in range(10)}
    )
    page = inspect_data(text_recipe(folder))
    assert not page.is_whole and page.texts is not None and 0 < page.rows_read < 10
    assert page.rows_read * len(block) <= SAMPLE_BYTES
    assert page.texts.documents == 10 and page.splits == {"train": 8, "val": 1, "test": 1}
    assert "about 10 documents in 10 files" in plain_lines(page)[0]


def test_one_large_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    line = b"x" * 998 + b" \n"
    (tmp_path / "one.txt").write_bytes(line * 40_000)
    page = inspect_data(text_recipe(tmp_path / "one.txt", separator="\n"))
    assert page.texts is not None and not page.is_whole
    # The batch of 4,096 documents in which the limit is passed is the last one.
    assert page.rows_read == 3 * 4096
    assert page.texts.documents == pytest.approx(40_000, rel=0.01)


def test_a_vocabulary_without_its_library_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    recipe = tmp_path / "texts.yaml"
    recipe.write_text("name: t\nsource: {t: {path: none/, text: {vocabulary: 512}}}\n")
    (tmp_path / "tokenizers.py").write_text("raise ImportError")
    ran = subprocess.run(
        [sys.executable, "-m", "shoestring", "data", str(recipe)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2 and "pip install 'shoestring[texts]'" in ran.stderr
