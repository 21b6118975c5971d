"""The clock of a store: it gives the times of objects, whatever the clocks of the machines show."""

from __future__ import annotations

from datetime import datetime

from shoestring.core.errors import StoreError
from shoestring.core.interfaces import Store, StoreInventory


def written_at(inventory: StoreInventory, key: str) -> datetime | None:
    """Return when an object was last written; None: it is not there."""
    found = inventory.objects(key).get(key)
    return found.modified_at if found else None


def store_time(store: Store, inventory: StoreInventory, probe_key: str) -> datetime:
    """Return the time by the store's clock: that of the object `probe_key`, which is written now. Raises
    StoreError.
    """
    store.put(probe_key, b"")
    if (now := written_at(inventory, probe_key)) is None:
        raise StoreError(f"the store does not keep {probe_key}, whose time is the time of the store")
    return now
