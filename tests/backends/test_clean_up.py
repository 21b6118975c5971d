"""Clean-up of stores of every kind, by their own clocks."""

from __future__ import annotations

import time

from clocks import StillClock
from store_locations import StoreLocation
from stored_runs import STORED

from shoestring.backends.folder_store import FolderStore
from shoestring.config.retention import RetentionPolicy
from shoestring.core.interfaces import ObjectDeletion, StoreInventory
from shoestring.data.retention.collect import collect
from shoestring.data.storage.blobs import put_blob

GRACE_S = 2.0


def test_what_no_run_names_goes_from_every_kind_of_store(location: StoreLocation) -> None:
    store, stored = location.open(), FolderStore(STORED)
    assert isinstance(store, StoreInventory) and isinstance(store, ObjectDeletion)
    for key in stored.list(""):
        store.put(key, stored.fetch(key))
    old = f"blobs/{put_blob(store, b'old')}"
    time.sleep(GRACE_S + 1)
    new = f"blobs/{put_blob(store, b'new')}"
    retention = RetentionPolicy(grace_hours=GRACE_S / 3600)
    before = set(store.list(""))
    found, deleted = collect(store, store, store, retention, StillClock())
    assert deleted == (old,) and before - set(store.list("")) == {old} and new in found.objects
    expired = RetentionPolicy(grace_hours=GRACE_S / 3600, keep_days=GRACE_S / 86400)
    time.sleep(GRACE_S + 1)
    _, deleted = collect(store, store, store, expired, StillClock())
    assert new in deleted and not list(store.list("datasets/")) and list(store.list("runs/"))
