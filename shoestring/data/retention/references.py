"""Which objects of a store records name, found without knowing the records.

An object whose key is a digest is named by any record that holds the digest: a manifest its parts, a receipt
its data set, a model its weights. So a kind of record that is added later protects what it names, as long as
it is JSON. Binary objects are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import TypeVar

from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import PARALLEL_READS, ListedObject, Store
from shoestring.core.store_layout import BLOBS, DATASETS

SHA256 = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
MAX_RECORD_BYTES = 4 << 20
"""A blob of more bytes is data: it is not read to see whether it is a record."""
Result = TypeVar("Result")


def named_digests(data: bytes) -> frozenset[str]:
    """Return the SHA-256 digests that a record holds. Empty for an object that is no JSON."""
    if not data.startswith((b"{", b"[")):
        return frozenset()
    return frozenset(found.decode() for found in SHA256.findall(data))


def read_all(store: Store, keys: Iterable[str], parse: Callable[[str, bytes], Result]) -> list[Result]:
    """Return what `parse(key, bytes)` makes of each object that is still there, in order."""

    def read(key: str) -> tuple[Result] | None:
        try:
            return (parse(key, store.fetch(key).read_bytes()),)
        except (NotInStore, FileNotFoundError):
            return None

    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        return [found[0] for found in readers.map(read, keys) if found is not None]


class ReferencedObjects:
    """The data sets and blobs that are named by what is kept: `keys`."""

    def __init__(self, store: Store, objects: Mapping[str, ListedObject]) -> None:
        self._store, self._objects = store, objects
        self.keys: set[str] = set()
        self._by_digest: dict[str, list[str]] = {}
        for key in objects:
            if key.startswith((BLOBS, DATASETS)):
                self._by_digest.setdefault(PurePosixPath(key).stem, []).append(key)

    def named_by(self, data: bytes) -> set[str]:
        """Return the data sets and blobs that a record names and that exist."""
        return {key for sha256 in named_digests(data) for key in self._by_digest.get(sha256, ())}

    def read(self, keys: Iterable[str]) -> dict[str, set[str]]:
        """Return what each of these records names."""
        return dict(read_all(self._store, keys, lambda key, data: (key, self.named_by(data))))

    def keep_named_by(self, keys: Iterable[str]) -> None:
        """Keep what these records name, and what that names in turn."""
        for named in self.read(keys).values():
            self.keep(named)

    def keep(self, keys: Iterable[str]) -> None:
        """Keep these objects, and what they name in turn."""
        found = set(keys) - self.keys
        while found:
            self.keys |= found
            named = self.read(sorted(filter(self._may_be_record, found)))
            found = set().union(*named.values()) - self.keys

    def keep_only(self, keys: Iterable[str]) -> None:
        """Keep these objects, and not what they name."""
        self.keys.update(keys)

    def _may_be_record(self, key: str) -> bool:
        return key.startswith(DATASETS) or self._objects[key].size_bytes <= MAX_RECORD_BYTES
