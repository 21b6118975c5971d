"""A store that is only read: what this process writes stays with this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from shoestring.backends.memory import MemoryStore
from shoestring.core.errors import NotInStore, StoreError
from shoestring.core.interfaces import (
    FetchedCopies,
    ListedObject,
    RangedReads,
    Store,
    StoreInventory,
    VerifiedMarks,
)
from shoestring.core.types import STANDARD_CLASS


class ReadingStore:
    """Another store, as it is, and over it what was written here. Nothing can be deleted.

    Commands that only read need no right to write, and leave nothing behind: a report that is made again, a
    measurement of this machine, or a copy of a world's file stays in this process.
    """

    def __init__(self, shared: Store) -> None:
        self._shared, self._own = shared, MemoryStore()

    def fetch(self, key: str) -> Path:
        try:
            return self._own.fetch(key)
        except NotInStore:
            return self._shared.fetch(key)

    def read(self, key: str, start: int, stop: int) -> bytes:
        try:
            return self._own.read(key, start, stop)
        except NotInStore:
            assert isinstance(self._shared, RangedReads)
            return self._shared.read(key, start, stop)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        if if_absent and key in self._shared.list(key):
            return False
        return self._own.put(key, data, if_absent=if_absent, storage_class=storage_class)

    def list(self, prefix: str) -> Iterator[str]:
        yield from sorted({*self._shared.list(prefix), *self._own.list(prefix)})

    @property
    def place(self) -> str:
        return self._inventory.place

    def objects(self, prefix: str) -> Mapping[str, ListedObject]:
        """Return the objects of the shared store alone; those that were written here are not stored."""
        return self._inventory.objects(prefix)

    @property
    def _inventory(self) -> StoreInventory:
        assert isinstance(self._shared, StoreInventory)
        return self._shared

    def delete(self, key: str, written_before: datetime | None = None) -> bool:
        raise StoreError(f"cannot delete {key}: this store was opened for reading only")

    def verified_version(self, key: str) -> str:
        return self._shared.verified_version(key) if isinstance(self._shared, VerifiedMarks) else ""

    def mark_verified(self, key: str, version: str) -> None:
        """Do nothing: this store leaves nothing behind."""

    def forget_verified(self, key: str) -> None:
        """Remove the mark from the shared store: an object that is damaged must not be used by others."""
        if isinstance(self._shared, VerifiedMarks):
            self._shared.forget_verified(key)

    def drop_copy(self, key: str) -> None:
        if isinstance(self._shared, FetchedCopies):
            self._shared.drop_copy(key)
