"""`shoestring data verify RECIPE`, on a copy of the store of a completed run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import Finished, Ran

from shoestring.backends.folder_store import FolderStore
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.fingerprint import fingerprint, remember_digests, stored_digests, version_of


class Copied:
    """A copy of the recipe, its file and its store, and commands on them."""

    def __init__(self, finished: Finished, folder: Path) -> None:
        self.finished, self.recipe = finished, folder / "slice.yaml"
        self.file = folder / "flights.csv"
        shutil.copy(finished.recipe, self.recipe)
        shutil.copy2(finished.recipe.with_name("flights.csv"), self.file)
        self.store = FolderStore(shutil.copytree(finished.store, folder / "store"))
        # As a run of the copy does.
        fingerprint(self.read, self.store)

    def __call__(self, *arguments: object, code: int = 0) -> Ran:
        ran = self.finished.again(*arguments, store=self.store.root)
        assert ran.code == code, ran.err
        return ran

    def verify(self, code: int = 0) -> Any:
        return self("data", "verify", self.recipe, "--json", code=code).json

    @property
    def ingest(self) -> str:
        stages = self("data", "why", self.recipe, "--json").json
        return str(stages[0]["status"])

    @property
    def read(self) -> Recipe:
        return read_recipe(self.recipe)


@pytest.fixture
def copied(finished: Finished, tmp_path: Path) -> Copied:
    return Copied(finished, tmp_path)


def rewrite(file: Path) -> None:
    """Change one digit of a file, with its size, and put its times back."""
    stat, data = file.stat(), bytearray(file.read_bytes())
    data[-2] = ord("1") if data[-2] != ord("1") else ord("2")
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)


def forget_inode_time(copied: Copied) -> None:
    """Let the store take the file for the one it read, as on a file system that keeps no time of inodes."""
    source = copied.read.source["flights"]
    known = stored_digests(source, copied.store)
    files = list_data_files(source)
    now = {file.name: known[file.name]._replace(version=version_of(file)) for file in files}
    remember_digests(source, known, now, copied.store)


def test_files_that_are_as_they_were(copied: Copied) -> None:
    found = copied.verify()
    assert found["sources"]["counts"] == {"unchanged": 1} and found["damaged"] == []
    assert found["sources"]["dataset"].startswith("datasets/slice-raw/")
    assert found["objects"] == copied("data", "verify", "slice", "--json").json["objects"]
    text = copied("data", "verify", copied.recipe).out
    assert "1 source file of slice read" in text and "all are as they were" in text


def test_a_rewritten_file_that_a_run_takes_for_unchanged_is_found_and_the_next_run_reads_it(
    copied: Copied,
) -> None:
    assert copied.ingest == "cached"
    rewrite(copied.file)
    forget_inode_time(copied)
    assert copied.ingest == "cached"
    found = copied.verify(code=1)["sources"]
    assert found["counts"] == {"rewritten": 1}
    assert copied.ingest == "missing"
    text = copied("data", "verify", copied.recipe, code=1).out
    assert "flights/flights.csv changed, though its size and time (or version) are the same" in text


def test_a_rewritten_file_with_its_time_put_back_is_seen_by_the_time_of_its_inode(copied: Copied) -> None:
    assert copied.ingest == "cached"
    rewrite(copied.file)
    assert copied.ingest == "missing"


def test_a_file_that_is_gone_or_changed_is_named(copied: Copied) -> None:
    with copied.file.open("ab") as file:
        file.write(b"\n")
    assert copied.verify(code=1)["sources"]["counts"] == {"changed": 1}
    copied.file.unlink()
    assert copied.verify(code=1)["sources"]["counts"] == {"removed": 1}


def test_stored_bytes_of_the_recipe_are_read_as_well(copied: Copied) -> None:
    key = next(iter(copied.store.list("datasets/slice/")))
    path = copied.store.root / key
    path.write_bytes(path.read_bytes() + b" ")
    found = copied.verify(code=1)
    assert found["sources"]["counts"] == {"unchanged": 1} and found["damaged"][0]["key"] == key


def test_a_recipe_that_never_ran_is_run_first(copied: Copied) -> None:
    copied.recipe.write_text(copied.recipe.read_text().replace("name: slice", "name: other"))
    assert "run it first" in copied("data", "verify", copied.recipe, code=1).err
