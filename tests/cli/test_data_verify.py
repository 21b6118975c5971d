"""`shoestring data verify`, on a copy of a store with two real runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import shoestring
from stored_lab import Lab
from stored_runs import StoredRuns

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import CorruptObject
from shoestring.data.storage.blobs import file_version, load_manifest, open_blob


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def key_of(store: StoredRuns, name: str) -> str:
    return next(store.list(f"datasets/{name}/"))


def flip(store: FolderStore, key: str) -> None:
    """Change one byte of an object, and put its times back."""
    path = store.root / key
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_store_that_is_intact(lab: Lab) -> None:
    immutable = [key for key in lab.store.list("") if key.startswith(("blobs/", "datasets/"))]
    found = lab("data", "verify", "--json").json
    sizes = {key: each.size_bytes for key, each in lab.store.objects("").items()}
    assert found["objects"] == len(immutable) and found["damaged"] == []
    assert found["size_bytes"] == sum(sizes[key] for key in immutable)
    assert "all match their digests" in lab("data", "verify").out


def test_a_data_set_is_read_with_those_that_it_was_made_from_and_a_run_with_its_model(lab: Lab) -> None:
    store = lab.store
    raw, encoded = (load_manifest(store, key_of(store, name)) for name in ("planes-raw", "planes"))
    counts = {
        what: lab("data", "verify", what, "--json").json["objects"]
        for what in ("planes-raw", "planes", key_of(store, "planes"), store.done)
    }
    of_raw = 1 + len(raw.blobs)
    assert counts["planes-raw"] == of_raw
    assert counts["planes"] == counts[key_of(store, "planes")] == of_raw + 1 + len(encoded.blobs)
    assert counts[store.done] > counts["planes"]
    unknown = shoestring("data", "verify", "ships", "--world", lab.world)
    assert unknown.code == 2 and "long-planes-raw" in unknown.err and store.done in unknown.err


def test_damaged_and_missing_objects_are_named_with_their_sizes_and_data_sets(lab: Lab) -> None:
    store, key = lab.store, key_of(lab.store, "planes")
    train, val, test = (load_manifest(store, key).splits[name][0] for name in ("train", "val", "test"))
    flip(store, train.key)
    (store.root / val.key).write_bytes(b"cut")
    (store.root / test.key).unlink()
    flip(store, key)
    found = {each["key"]: each for each in lab("data", "verify", "--json", code=1).json["damaged"]}
    assert {name: each["problem"] for name, each in found.items()} == {
        train.key: "differs", val.key: "differs", test.key: "is missing", key: "differs"
    }  # fmt: skip
    assert found[val.key]["size_bytes"] == 3 and found[val.key]["expected_bytes"] == val.size_bytes
    assert found[train.key]["datasets"] == [key_of(store, "long-planes")]
    text = lab("data", "verify", "planes", code=1).out
    assert f"{key} differs" in text
    assert f"3 bytes instead of {val.size_bytes:,}" in lab("data", "verify", code=1).out


def test_a_change_that_no_time_of_the_file_shows_is_found_and_is_used_by_nobody_afterwards(lab: Lab) -> None:
    store = lab.store
    part = load_manifest(store, key_of(store, "planes")).splits["train"][0]
    flip(store, part.key)
    # What a disk changes leaves the times as the mark has them.
    store.mark_verified(part.key, file_version(store.root / part.key))
    assert open_blob(FolderStore(store.root), part.sha256).is_file()
    damaged = lab("data", "verify", "--json", code=1).json["damaged"]
    assert [each["key"] for each in damaged] == [part.key]
    os.utime(store.root / part.key)
    with pytest.raises(CorruptObject):
        open_blob(FolderStore(store.root), part.sha256)
    assert store.verified_version(part.key) == ""
