"""The source files of a recipe are read again, and compared with those of its data set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from data_files import ingested, recipe_of
from image_sources import image_folder, image_recipe, noise

from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.data.lineage.file_states import SourceCheck
from shoestring.data.lineage.source_check import check_sources, list_tables
from shoestring.data.recipe import Recipe
from shoestring.data.source_files import read_sources
from shoestring.data.sources.fingerprint import fingerprint, list_contents
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.data.storage.blobs import put_blob
from shoestring.reporting.runs.source_text import source_lines


def checked(recipe: Recipe, store: Store, key: str | None) -> SourceCheck:
    read: list[int] = []
    tables = list_tables(recipe, NO_REMOTE_SOURCES)
    found = check_sources(recipe, tables, store, key, NO_REMOTE_SOURCES, read.append)
    assert sum(read) == sum(file.size_bytes for table in tables for file in table.files)
    return found


def published(recipe: Recipe, folder: Path) -> tuple[str, Manifest, Store]:
    """Ingest a recipe, and store the list of its files as the stage does."""
    key, manifest, store = ingested(recipe, folder)
    listed = list_contents(recipe, store)
    assert listed is not None
    put_blob(store, listed.encode())
    return key, manifest, store


def folder_of(folder: Path, count: int) -> Path:
    (folder / "rows").mkdir()
    for number in range(count):
        (folder / "rows" / f"{number:03}.csv").write_text(f"a,y\n{number},0\n{number + 1},1\n")
    return folder / "rows"


def test_the_files_of_a_folder_are_named_by_what_happened_to_them_up_to_a_bound(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 30)
    key, _, store = published(recipe := recipe_of(folder), tmp_path)
    assert checked(recipe, store, key).counts == {"unchanged": 30}
    stat = (folder / "000.csv").stat()
    (folder / "000.csv").write_text("a,y\n7,0\n1,1\n")
    os.utime(folder / "000.csv", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (folder / "001.csv").write_text("a,y\n70,0\n1,1\n")
    (folder / "002.csv").unlink()
    for number in range(25):
        (folder / f"new{number:02}.csv").write_text("a,y\n1,0\n")
    found = checked(recipe, store, key)
    assert found.counts == {"rewritten": 1, "changed": 1, "removed": 1, "added": 25, "unchanged": 27}
    states = {each.name: each.state for each in found.files}
    assert [states[f"rows/{number:03}.csv"] for number in range(3)] == ["rewritten", "changed", "removed"]
    text = "\n".join(source_lines(found))
    assert "rows/new19.csv added" in text and "rows/new20.csv" not in text
    assert "  and 5 more added; --json lists them" in text


def test_each_file_of_a_data_set_is_recorded_with_its_place_size_and_time_of_reading(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 3)
    key, _, store = ingested(recipe_of(folder), tmp_path)
    record = read_sources(store, key)
    assert record is not None and record.dataset == key
    for file, path in zip(record.files, sorted(folder.iterdir()), strict=True):
        assert (file.name, file.place) == (f"rows/{path.name}", str(path))
        assert file.size_bytes == path.stat().st_size
        assert file.version.split()[:2] == [str(path.stat().st_size), str(path.stat().st_mtime_ns)]
        assert file.read_at is not None and file.read_at <= record.ingested_at


@pytest.mark.parametrize("is_time_put_back", [True, False])
def test_images_are_compared_as_one(tmp_path: Path, is_time_put_back: bool) -> None:
    folder = image_folder(tmp_path / "photos", noise(6))
    key, _, store = published(recipe := image_recipe(folder), tmp_path)
    (same,) = checked(recipe, store, key).files
    assert (same.name, same.state, same.files) == ("rows", "unchanged", 6)
    path = folder / "dark" / "0000.png"
    stat, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + b"x")
    if is_time_put_back:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (one,) = checked(recipe, store, key).files
    assert one.state == ("rewritten" if is_time_put_back else "changed")
    assert "rows (6 files together) changed" in "\n".join(source_lines(checked(recipe, store, key)))


def test_a_data_set_of_an_earlier_version_has_the_digests_alone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 2)
    key, manifest, store = published(recipe := recipe_of(folder), tmp_path)
    (tmp_path / "store" / "cache" / "sources" / key.removeprefix("datasets/")).unlink()
    assert checked(recipe, store, key).counts == {"unchanged": 2}
    assert (fingerprint(recipe, store),) == manifest.parents


def test_without_a_data_set_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 2)
    _, _, store = published(recipe := recipe_of(folder), tmp_path)
    with pytest.raises(DataError, match=r"no data set of mine is stored.*run it first"):
        checked(recipe, store, None)
