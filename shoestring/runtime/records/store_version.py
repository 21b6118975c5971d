"""The schema version of a whole store: checked before a run starts in it."""

from __future__ import annotations

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.data.run_records import RunRecord, read_record


class StoreVersion(StoredRecord):
    """The record that marks a store. Its content is its schema version."""


def check_store_version(store: Store) -> None:
    """Mark a new store with this schema version.

    Raises:
        DataError: another schema version wrote to the store. Names both versions.
    """
    try:
        read_record(store, store_layout.STORE_VERSION, StoreVersion)
    except NotInStore:
        # Version 2 and before wrote no mark: the first run shows the version.
        first = next((key for key in store.list(store_layout.RUNS) if key.endswith("/run.json")), None)
        if first is not None:
            read_record(store, first, RunRecord)
        store.put(store_layout.STORE_VERSION, record_bytes(StoreVersion()), if_absent=True)
