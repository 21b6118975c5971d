"""Ingest of a new version of a folder reads the files that changed, and equals one that reads all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_files import quarantined_rows, recipe_of, table_of
from examples import scaled
from source_folder import ROWS, WRITERS, Folder, csv_of, json_of, parquet_of, rows_of

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.storage.part_writer import REUSING
from shoestring.data.transforms.ingest import ingest


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("suffix", WRITERS)
def test_a_changed_an_added_and_a_removed_file_are_all_that_is_read(
    tmp_path: Path, suffix: str, format: Format
) -> None:
    folder, write = Folder(tmp_path, format), WRITERS[suffix]
    files = {f"{number}.{suffix}": write(rows_of(number)) for number in range(6)}
    folder.write(files)
    folder.ingest()
    assert (folder.read_rows, folder.reused_rows) == (6 * ROWS, 0)
    del files[f"4.{suffix}"]
    folder.write(files | {f"2.{suffix}": write(rows_of(20)), f"9.{suffix}": write(rows_of(9))})
    found = folder.ingest()
    assert (folder.read_rows, folder.reused_rows) == (2 * ROWS, 4 * ROWS)
    assert found == folder.cold()


def padded(seed: int, size_bytes: int) -> bytes:
    """Return a CSV file whose rows fill several parts, or a share of one. Some of them are quarantined."""
    random = np.random.default_rng(seed)
    rows = [f"{each},{random.integers(100)},{'x' * 400}{seed}-{each}" for each in range(size_bytes // 400)]
    bad = [f"{each},{each}" for each in range(seed % 3) if len(rows) > 30]
    return "\n".join(["id,y,text", *rows, *bad, ""]).encode()


@pytest.mark.parametrize("seed", range(scaled(3)))
def test_any_changes_give_the_parts_of_a_reading_of_all_files(tmp_path: Path, seed: int) -> None:
    folder, random = Folder(tmp_path, [*Format][seed % 3]), np.random.default_rng(seed)
    sizes = (4_000, 100_000, 100_000, 600_000, 9_000_000 if seed % 3 == 0 else 1_500_000)
    files = {f"{each:02d}.csv": padded(each, sizes[each % 5]) for each in range(9)}
    folder.write(files)
    folder.ingest()
    reused = 0
    for version in range(4):
        for each in random.choice(12, 3, replace=False):
            name = f"{each:02d}.csv"
            if name in files and random.integers(2) and len(files) > 3:
                del files[name]
            else:
                files[name] = padded(100 * version + int(each), int(random.choice(sizes[:4])))
        folder.write(files)
        found = folder.ingest()
        reused += folder.reused_rows
        # What a version takes over holds for the next one, too.
        cold_store = FolderStore(folder.scratch / f"cold{version}")
        expected = folder.ingest(cold_store)
        assert found.model_dump(exclude={"quarantine"}) == expected.model_dump(exclude={"quarantine"})
        assert sorted_rows(folder.store, found) == sorted_rows(cold_store, expected)
        assert table_of(folder.store, found, "rows").equals(table_of(cold_store, expected, "rows"))
    assert reused


def sorted_rows(store: FolderStore, manifest: Manifest) -> list[str]:
    return sorted(map(str, quarantined_rows(store, manifest))) if manifest.quarantine else []


KILLED = """
import os, signal, sys
from pathlib import Path
from data_files import quiet, recipe_of
from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.transforms.ingest import ingest

class Store(FolderStore):
    left = int(sys.argv[2])
    def put(self, *given, **named):
        self.left -= given[0].startswith("blobs/")
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().put(*given, **named)

folder = Path(sys.argv[1])
ingest(recipe_of(folder / "data"), Format.ARROW, Store(folder / "store"), folder / "scratch", quiet)
"""


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_an_ingest_that_is_killed_between_parts_is_done_by_the_next_one(tmp_path: Path, parts: int) -> None:
    folder = Folder(tmp_path)
    files = {f"{each}.csv": padded(each, 1_500_000) for each in range(3)}
    folder.write(files)
    folder.ingest()
    folder.write(files | {"1.csv": padded(11, 1_500_000), "3.csv": padded(3, 1_500_000)})
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(parts)]
    path = os.pathsep.join([*sys.path])
    done = subprocess.run(command, check=False, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == -signal.SIGKILL
    found = folder.ingest()
    assert folder.reused_rows == 2 * (1_500_000 // 400)
    assert found.model_dump(exclude={"quarantine"}) == folder.cold().model_dump(exclude={"quarantine"})


@pytest.mark.parametrize("change", ["written", "added", "removed"])
def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path: Path, change: str) -> None:
    folder = Folder(tmp_path)
    files = {f"{each}.csv": csv_of(rows_of(each)) for each in range(4)}
    folder.write(files)
    first = folder.ingest()
    files["1.csv"] = csv_of(rows_of(11))
    folder.write(files)

    def change_folder(what: str, rows: int) -> None:
        if what != REUSING:
            path = folder.data / {"written": "1.csv", "added": "5.csv", "removed": "2.csv"}[change]
            path.unlink() if change == "removed" else path.write_bytes(csv_of(rows_of(12)))

    with pytest.raises(DataError, match=r"changed while it was read \(1 of 4 files, such as rows/\d.csv\)"):
        ingest(folder.recipe, folder.format, folder.store, folder.scratch, change_folder)
    assert folder.ingest() == folder.cold() != first


def test_the_kinds_of_the_first_version_stay_and_what_does_not_fit_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    whole = {f"{each}.csv": csv_of(rows_of(each)) for each in range(5)}
    folder.write(whole)
    first = folder.ingest()
    decimals = b"id,price,word,y\n" + b"2.5,1,w,true\n" * 2
    folder.write(whole | {"8.csv": decimals})
    found = folder.ingest()
    assert found.columns == first.columns != folder.cold().columns
    assert found.unread == {"rows: id is not a whole number": 2}
    assert [(row["file"], row["row"]) for row in quarantined_rows(folder.store, found)] == [
        ("8.csv", 2),
        ("8.csv", 3),
    ]
    # They count for later versions, too.
    folder.write(whole | {"8.csv": decimals, "9.csv": decimals + b"3.5,1,w,true\n"})
    with pytest.raises(
        DataError, match=r"(?s)5 of 205 values.*id is not a whole.*9\.csv, row 2.*other `name`"
    ):
        folder.ingest()
    folder.recipe = recipe_of(folder.data, name="other")
    assert folder.ingest().columns["rows.id"] == "double"
    # So it is where none of its files is left.
    folder.recipe = recipe_of(folder.data)
    folder.write({"8.csv": decimals + b"7.5,2,v,false\n" * 9})
    with pytest.raises(DataError, match=r"column id: 11 of 11 values are not a whole number, .* other data"):
        folder.ingest()


def test_a_typed_file_that_the_types_do_not_hold_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    files = {f"{each}.parquet": parquet_of(rows_of(each)) for each in range(2)}
    folder.write(files)
    folder.ingest()
    table = rows_of(3).set_column(0, "id", pa.array([0.5] * ROWS, pa.float64()))
    folder.write(files | {"3.parquet": parquet_of(table)})
    with pytest.raises(DataError, match=r"3\.parquet: column 'id' is of type double.*int64.*another `name`"):
        folder.ingest()


def test_a_file_with_other_columns_is_named_and_a_new_key_makes_a_column(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "text")
    files = {f"{each}.csv": csv_of(rows_of(each)) for each in range(2)}
    folder.write(files)
    folder.ingest()
    folder.write(files | {"3.csv": csv_of(rows_of(3).drop(["word"]))})
    with pytest.raises(DataError, match=r"3\.csv has the columns id, price, y, and .* id, price, word, y"):
        folder.ingest()
    lines = Folder(tmp_path / "lines")
    objects = {f"{each}.jsonl": json_of(rows_of(each)) for each in range(2)}
    lines.write(objects)
    lines.ingest()
    lines.write(objects | {"3.jsonl": json_of(rows_of(3).append_column("more", pa.array(range(ROWS))))})
    found = lines.ingest()
    assert found == lines.cold() and "rows.more" in found.columns
    lines.write(objects)
    assert lines.ingest() == lines.cold()


def test_numbers_are_read_as_they_are_written_in_the_first_version(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    rows = b"".join(b"%d,%d;%d\n" % (each, 10 + each % 80, each % 2) for each in range(90))
    files = {"1.csv": b"price;y\n" + rows, "2.csv": b"price;y\n" + rows + b"1,55;0\n"}
    folder.write(files)
    folder.ingest()
    # By itself, 1,234 has a thousands comma.
    folder.write(files | {"3.csv": b"price;y\n1,234;1\n"})
    found = folder.ingest()
    assert found == folder.cold()
    assert table_of(folder.store, found, "rows")["price"].to_pylist()[-1] == 1.234


def test_a_damaged_part_is_made_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    files = {f"{each}.csv": padded(each, 1_500_000) for each in (0, 3, 6)}
    folder.write(files)
    first = folder.ingest()
    path = folder.store.fetch(store_layout.blob(first.splits["rows"][0].sha256))
    path.write_bytes(b"?" + path.read_bytes()[1:])
    folder.write(files | {"9.csv": padded(9, 4_000)})
    assert folder.ingest() == folder.cold()
    assert folder.reused_rows == 0
    # The files are those of the last version: its result would be used if it were whole.
    assert folder.ingest() == folder.cold()
    assert folder.reused_rows == 0
