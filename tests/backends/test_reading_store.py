"""A store that is only read: what is written over it stays with the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.reading_store import ReadingStore
from shoestring.core.errors import NotInStore, StoreError


@pytest.fixture
def shared(tmp_path: Path) -> FolderStore:
    store = FolderStore(tmp_path / "store")
    store.put("runs/a/run.json", b"theirs")
    return store


def test_what_is_written_is_read_again_and_stays_out_of_the_shared_store(shared: FolderStore) -> None:
    store = ReadingStore(shared)
    assert store.put("runs/a/report.html", b"mine")
    assert store.put("runs/a/run.json", b"mine")
    assert store.fetch("runs/a/report.html").read_bytes() == b"mine"
    assert store.fetch("runs/a/run.json").read_bytes() == b"mine"
    assert list(store.list("runs/a/")) == ["runs/a/report.html", "runs/a/run.json"]
    assert list(shared.list("")) == ["runs/a/run.json"]
    assert shared.fetch("runs/a/run.json").read_bytes() == b"theirs"


def test_only_one_object_is_created_under_a_key_of_either_store(shared: FolderStore) -> None:
    store = ReadingStore(shared)
    assert not store.put("runs/a/run.json", b"mine", if_absent=True)
    assert store.put("runs/b/run.json", b"mine", if_absent=True)
    assert not store.put("runs/b/run.json", b"again", if_absent=True)
    assert store.fetch("runs/b/run.json").read_bytes() == b"mine"


def test_what_neither_store_has_is_not_in_the_store(shared: FolderStore) -> None:
    with pytest.raises(NotInStore, match="runs/c"):
        ReadingStore(shared).fetch("runs/c/run.json")


def test_it_lists_what_lies_in_the_shared_store_and_refuses_to_delete(shared: FolderStore) -> None:
    store = ReadingStore(shared)
    store.put("runs/a/report.html", b"mine")
    assert store.objects("runs/") == shared.objects("runs/") and list(store.objects("")) == [
        "runs/a/run.json"
    ]
    assert store.place == str(shared.root)
    for key in ("runs/a/run.json", "runs/a/report.html"):
        with pytest.raises(StoreError, match="opened for reading only"):
            store.delete(key)
    assert shared.fetch("runs/a/run.json").read_bytes() == b"theirs"
