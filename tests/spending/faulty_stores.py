"""Stores that fail as real ones do, through the Store interface."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from approved_caps import approve
from clocks import StillClock

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import NotInStore, StoreError
from shoestring.spending.ledger.ledger import Ledger

MONTH = "2026-11"
# The laws write thousands of entries. On a RAM disk, flushing them costs nothing.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


class ForgetfulStore(FolderStore):
    """Writes the object, and then reports that it already existed."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        wrote = super().put(key, data, if_absent=if_absent, storage_class=storage_class)
        return wrote and not if_absent


class LateStore(FolderStore):
    """Reports a new object as missing for the next `looks` reads, as NFS does."""

    def __init__(self, root: Path, looks: int) -> None:
        super().__init__(root)
        self._looks, self._left = looks, dict[str, int]()

    def fetch(self, key: str) -> Path:
        if key in self._left or not (self.root / key).exists():
            self._left[key] = self._left.get(key, self._looks) - 1
            if self._left[key] >= 0:
                raise NotInStore(key)
        return super().fetch(key)


class BusyStore(FolderStore):
    """Runs `meanwhile` when a key is first read, as a concurrent writer would."""

    def __init__(self, root: Path, key: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(root)
        self._key, self._meanwhile = key, [meanwhile]

    def fetch(self, key: str) -> Path:
        if key == self._key and self._meanwhile:
            self._meanwhile.pop()()
        return super().fetch(key)


class DyingStore(FolderStore):
    """Fails at the `at`-th write, before or after writing it, and at every write from then on."""

    def __init__(self, root: Path, at: int, *, wrote: bool) -> None:
        super().__init__(root)
        self.left, self._wrote = at, wrote

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        self.left -= 1
        if self.left == 0 and self._wrote:
            super().put(key, data, if_absent=if_absent, storage_class=storage_class)
        if self.left <= 0:
            raise StoreError(f"the writer of {key} died")
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def writes_of(work: Callable[[Ledger], object]) -> int:
    """Return how many writes some work on a ledger makes."""
    with fast_folder() as folder:
        approve(FolderStore(folder))
        store = DyingStore(folder, 10_000, wrote=False)
        work(Ledger(store, StillClock()))
        return 10_000 - store.left


@contextmanager
def fast_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        yield Path(folder)
