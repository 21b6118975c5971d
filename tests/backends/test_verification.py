"""Stores of every kind are read again, whole."""

from __future__ import annotations

from pathlib import Path

from store_locations import StoreLocation
from stored_runs import STORED

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.s3.store import S3Store
from shoestring.core.interfaces import StoreInventory
from shoestring.data.retention.verification import ALL, StoredDigests


def test_a_changed_byte_is_found_in_every_kind_of_store_and_no_copy_stays(location: StoreLocation) -> None:
    store, stored = location.open(), FolderStore(STORED)
    for key in stored.list(""):
        store.put(key, stored.fetch(key))
    part = max(stored.objects("blobs/").items(), key=lambda found: found[1].size_bytes)[0]
    data = bytearray(stored.fetch(part).read_bytes())
    data[len(data) // 2] ^= 1
    store.put(part, bytes(data))
    again = location.open()
    assert isinstance(again, StoreInventory)
    digests = StoredDigests(again, again)
    keys, read = digests.select(ALL), list[int]()
    damaged = digests.verify(keys, read.append)
    assert [(each.key, each.problem, each.size_bytes) for each in damaged] == [(part, "differs", len(data))]
    assert sum(read) == digests.size_bytes(keys) > 500_000
    if isinstance(again, S3Store):
        copies = [path for path in Path(again._scratch).rglob("*") if path.is_file()]
        assert not [path for path in copies if path.parent.name == "blobs"]
