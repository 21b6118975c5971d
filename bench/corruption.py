"""Claim: of 1,000 single-byte changes in stored objects, all are found before use, in a folder and on S3.

python bench/corruption.py [--changes 1000] [--quick]

Ingest and preprocess store a table with quarantined rows, and a model is stored with it. Each change is in
a random byte of one of their objects: a part, a dictionary, a manifest, quarantined rows, a model, or an
entry of the cache. All objects were read before, and those of the folder are marked as verified. In the
folder, every second change has the time of its last write put back. The object is then used as a router does,
which looks for the result, and as a stage does, which opens it: the router must find nothing, and the stage
must refuse it. After the byte is put back, the router must find the result again. Exits with 1 if a change is
not found.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from machine import describe

sys.path.append(str(Path(__file__).parent.parent / "tests/backends"))  # the S3 server of the tests

from s3_server import ADMIN, S3Server, environment
from store_locations import StoreLocation

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import CorruptObject
from shoestring.core.interfaces import Store
from shoestring.core.types import Format, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest, open_blob, put_blob
from shoestring.data.storage.cache import cache_key, find_outcome, save_outcome
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess

ROWS, BAD_ROWS, MODEL_BYTES, S3_SHARE, QUICK_CHANGES = 4_000, 20, 20_000, 5, 500
TICK_S = 0.01


@dataclass(frozen=True)
class Target:
    """An object, and the cached result that it belongs to."""

    key: str
    result: str


def fill(store: Store, folder: Path) -> list[Target]:
    """Store two data sets and a model, with their cache entries. Returns all of their objects."""
    draw = random.Random(7)
    rows = [f"{draw.gauss(0, 1):.4f},{draw.choice('abcdef')},{draw.randrange(2)}\n" for _ in range(ROWS)]
    bad = ["1,a,1,too,many\n"] * BAD_ROWS
    (folder / "rows.csv").write_text("number,word,y\n" + "".join(rows + bad))
    recipe = Recipe.model_validate(
        {"name": "made", "source": {"rows": {"path": folder / "rows.csv"}}, "target": {"column": "y"}}
    )
    scratch = folder / "scratch"
    scratch.mkdir()
    raw, _ = ingest(recipe, Format.PARQUET, store, scratch, lambda *_: None)
    encoded, _ = preprocess(recipe, raw, Format.PACKED, store, scratch, lambda *_: None)
    model = store_layout.blob(put_blob(store, random.Random(8).randbytes(MODEL_BYTES)))
    found = []
    for stage, key in (("ingest", raw), ("preprocess", encoded), ("train", model)):
        result, fields = cache_key(stage, "code", {}, {}, {"data": key})
        save_outcome(store, result, StageOutcome(key=key, rows=ROWS), fields)
        blobs = load_manifest(store, key).blobs if key.startswith(store_layout.DATASETS) else ()
        objects = (key, store_layout.cache_entry(result), *map(store_layout.blob, blobs))
        found += [Target(each, result) for each in dict.fromkeys(objects)]
    return found


def is_refused(store: Store, target: Target) -> bool:
    """Return whether a router finds no result, and a stage cannot open the object."""
    if find_outcome(store, target.result) is not None:
        return False
    try:
        if target.key.startswith(store_layout.DATASETS):
            load_manifest(store, target.key)
        elif target.key.startswith(store_layout.BLOBS):
            open_blob(store, Path(target.key).name)
        else:
            return True
    except CorruptObject:
        return True
    return False


def flipped(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes with one of them changed to any other value."""
    changed = bytearray(data)
    changed[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    return bytes(changed)


def missed_changes(
    open_store: Callable[[], Store],
    write: Callable[[str, bytes, int], None],
    targets: list[Target],
    count: int,
) -> list[str]:
    """Change, use and put back random bytes; return what was not found. `write(key, bytes, number)`."""
    draw, missed = random.Random(9), []
    for number in range(count):
        target = draw.choice(targets)
        data = open_store().fetch(target.key).read_bytes()
        write(target.key, flipped(data, draw), number)
        if not is_refused(open_store(), target):
            missed.append(target.key)
        write(target.key, data, number)
        if find_outcome(open_store(), target.result) is None:
            missed.append(f"{target.key}, whole again")
    return missed


def measure(name: str, count: int, missed: Callable[[], list[str]]) -> bool:
    began_s = time.process_time()
    found = missed()
    took_s = time.process_time() - began_s
    print(f"{name:<8} {count:>6,} changes  {count - len(found):>6,} found  {took_s:6.1f} CPU-seconds")
    for each in found[:10]:
        print(f"  not found: {each}")
    return not found


def in_folder(folder: Path, count: int) -> bool:
    store = FolderStore(folder / "store")
    targets = fill(store, folder)

    def write(key: str, data: bytes, number: int) -> None:
        path = store.root / key
        # The clock of a file system has ticks of some milliseconds.
        time.sleep(TICK_S)
        times = path.stat()
        path.write_bytes(data)
        if number % 2:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    return measure("folder", count, lambda: missed_changes(lambda: store, write, targets, count))


def on_s3(folder: Path, count: int) -> bool:
    os.environ |= environment(ADMIN)
    server = S3Server(folder / "server")
    server.start()
    try:
        location = StoreLocation(folder, server.location("corruption"))
        store = location.open()
        targets = fill(store, folder)

        def write(key: str, data: bytes, number: int) -> None:
            store.put(key, data)

        return measure("S3", count, lambda: missed_changes(location.open, write, targets, count))
    finally:
        server.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    changes = QUICK_CHANGES if given.quick else given.changes
    print(describe())
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        all_found = [in_folder(Path(first), changes), on_s3(Path(second), changes // S3_SHARE)]
    sys.exit(0 if all(all_found) else 1)


if __name__ == "__main__":
    main()
