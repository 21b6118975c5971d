"""A clock that stands still until it is told, and stores that misbehave as real ones do. All through the seams."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clocks import StillClock

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import NotInStore, StoreError
from shoestring.spending.ledger.ledger import Ledger

MONTH = "2026-11"
# Laws write thousands of entries; where there is a RAM disk, flushing them costs nothing.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


class ForgetfulStore(FolderStore):
    """Writes, and then says that the object was there already."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        wrote = super().put(key, data, if_absent=if_absent, storage_class=storage_class)
        return wrote and not if_absent


class LateStore(FolderStore):
    """Remembers that an object was not there, as NFS does: it is found only after so many more looks."""

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
    """Somebody else does something at the moment when a key is first read."""

    def __init__(self, root: Path, key: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(root)
        self._key, self._meanwhile = key, [meanwhile]

    def fetch(self, key: str) -> Path:
        if key == self._key and self._meanwhile:
            self._meanwhile.pop()()
        return super().fetch(key)


class DyingStore(FolderStore):
    """The writer is gone at its `at`-th write, just before it or just after it; from then on nothing is written."""

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
    """How many writes a ledger's work takes."""
    with fast_folder() as folder:
        store = DyingStore(folder, 10_000, wrote=False)
        work(Ledger(store, StillClock()))
        return 10_000 - store.left


@contextmanager
def fast_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        yield Path(folder)
