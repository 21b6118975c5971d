"""Texts on a real S3 server: a folder of them, and one packed file."""

from __future__ import annotations

import gzip
from pathlib import Path

from counting_sources import CountingSources
from s3_objects import leftovers, put
from s3_server import BUCKET, S3Server

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import TEXT_COLUMN
from shoestring.core.types import Format
from shoestring.data.inspect.page import inspect_data
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.ingest import ingest


def text_recipe_at(url: str, separator: str = "") -> Recipe:
    text = {"row_tokens": 16, "separator": separator}
    return Recipe.model_validate({"name": "mine", "source": {"rows": {"url": url, "text": text}}})


def test_a_folder_of_texts_in_a_bucket_is_read_and_a_changed_file_is_another_data_set(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    for number in range(30):
        put(s3_server, f"{prefix}/deep/{number:02}.md", b"text number %d" % number)
    put(s3_server, f"{prefix}/table.csv", b"a,b\n1,2\n")
    url, store = f"s3://{BUCKET}/{prefix}", FolderStore(tmp_path / "store")
    recipe = text_recipe_at(url)
    page = inspect_data(recipe, sources)
    assert page.texts is not None and page.texts.documents == 30 and page.refusal == ""
    before = fingerprint(recipe, store, sources)
    _, manifest = ingest(recipe, Format.PACKED, store, tmp_path, lambda *_: None, remote=sources)
    rows = open_part(store, manifest, manifest.splits["rows"][0])
    assert rows[TEXT_COLUMN].to_pylist() == [b"text number %d" % number for number in range(30)]
    assert rows["path"].to_pylist()[0] == "deep/00.md"
    assert manifest.parents == (before,)
    assert leftovers(url, sources) == []
    put(s3_server, f"{prefix}/deep/03.md", b"another text")
    assert fingerprint(recipe, store, sources) != before


def test_one_packed_file_in_a_bucket_is_divided_by_a_separator(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    put(s3_server, f"{prefix}/verses.txt.gz", gzip.compress(b"one\ntwo\nthree\nfour\n"))
    recipe = text_recipe_at(f"s3://{BUCKET}/{prefix}/verses.txt.gz", "\n")
    store = FolderStore(tmp_path / "store")
    assert estimate_size(recipe, sources).size_bytes == 19
    _, manifest = ingest(recipe, Format.ARROW, store, tmp_path, lambda *_: None, remote=sources)
    rows = open_part(store, manifest, manifest.splits["rows"][0])
    assert rows[TEXT_COLUMN].to_pylist() == [b"one", b"two", b"three", b"four"]
