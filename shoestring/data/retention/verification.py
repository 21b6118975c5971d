"""Read all stored bytes again, and name the objects that do not match the digest in their key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from shoestring.core import store_layout
from shoestring.core.datasets import Manifest
from shoestring.core.errors import NotInStore, UnknownName
from shoestring.core.interfaces import FetchedCopies, ListedObject, Store, StoreInventory, VerifiedMarks
from shoestring.core.record import Record
from shoestring.data.retention.holdings import objects_of_run
from shoestring.data.retention.references import read_all
from shoestring.data.storage.blobs import file_digest

PARALLEL_DIGESTS = 4
"""Objects that are read at the same time; on S3 also the number of copies on this machine's disk."""
ALL = "all"

ReadBytes = Callable[[int], object]
"""Receives the bytes of each object that was read."""


class DamagedObject(Record):
    """An object whose bytes do not match its digest, or that is missing."""

    key: str
    problem: Literal["differs", "is missing"]
    size_bytes: int = Field(description="as the store lists it; 0: it is missing")
    expected_bytes: int | None = Field(None, description="as its data set lists it; null: no data set does")
    found_sha256: str = Field("", description="of its bytes; empty: it is missing")
    datasets: tuple[str, ...] = Field((), description="keys of the data sets that name it")


class BytesCheck(Record):
    """The result of reading objects again."""

    store: str
    objects: int
    size_bytes: int
    damaged: tuple[DamagedObject, ...]


class StoredDigests:
    """The objects of a store that are named by their content, and what its data sets list of them."""

    def __init__(self, store: Store, inventory: StoreInventory) -> None:
        self._store = store
        self.objects = inventory.objects("")
        self._names: dict[str, list[str]] = {}
        self._sizes: dict[str, int] = {}
        self._manifests = self._read_manifests()
        for key, manifest in self._manifests.items():
            for sha256 in manifest.blobs:
                self._names.setdefault(store_layout.blob(sha256), []).append(key)
            parts = (part for of_split in manifest.splits.values() for part in of_split)
            self._sizes |= {part.key: part.size_bytes for part in parts}

    def select(self, what: str) -> list[str]:
        """Return the keys to read: of a data set (a name, or the key of one version) and of those that it was
        made from, of a run, or all.

        Raises UnknownName.
        """
        if what == ALL:
            named = (key for key in self.objects if key.startswith(store_layout.IMMUTABLE))
            return sorted({*named, *self._names})
        stored = [key for key in self.objects if key.startswith(store_layout.DATASETS)]
        datasets = {key for key in stored if what in (key, PurePosixPath(key).parent.name)}
        if not datasets and store_layout.run_record(what) in self.objects:
            of_run = objects_of_run(self._store, self.objects, what)
            return self._with_parents({key for key in of_run if key.startswith(store_layout.IMMUTABLE)})
        if not datasets:
            known = {PurePosixPath(key).parent.name for key in stored}
            runs = {key.split("/")[1] for key in self.objects if key.startswith(store_layout.RUNS)}
            raise UnknownName("data set or run", what, [*sorted(known), *sorted(runs)[-10:]])
        return self._with_parents(datasets)

    def verify(self, keys: Iterable[str], progress: ReadBytes) -> list[DamagedObject]:
        """Read these objects; return those that are damaged or missing. A mark that one was verified is
        removed: it is found before its next use.
        """

        def check(key: str) -> DamagedObject | None:
            found = self._check(key)
            listed = self.objects.get(key)
            progress(listed.size_bytes if listed else 0)
            return found

        with ThreadPoolExecutor(PARALLEL_DIGESTS) as readers:
            return [found for found in readers.map(check, keys) if found is not None]

    def size_bytes(self, keys: Iterable[str]) -> int:
        return sum(self.objects[key].size_bytes for key in keys if key in self.objects)

    def _check(self, key: str) -> DamagedObject | None:
        store = self._store
        try:
            found = file_digest(store.fetch(key))
        except (NotInStore, FileNotFoundError):
            return self._damaged(key, None, "")
        finally:
            if isinstance(store, FetchedCopies):
                store.drop_copy(key)
        if found == PurePosixPath(key).stem:
            return None
        if isinstance(store, VerifiedMarks):
            store.forget_verified(key)
        return self._damaged(key, self.objects.get(key), found)

    def _damaged(self, key: str, listed: ListedObject | None, found: str) -> DamagedObject:
        return DamagedObject(
            key=key,
            problem="differs" if found else "is missing",
            size_bytes=listed.size_bytes if listed else 0,
            expected_bytes=self._sizes.get(key),
            found_sha256=found,
            datasets=tuple(self._names.get(key, ())),
        )

    def _with_parents(self, keys: set[str]) -> list[str]:
        """Return these keys, those of the data sets that they were made from, and the blobs of all."""
        found, waiting = set(keys), [key for key in keys if key in self._manifests]
        while waiting:
            manifest = self._manifests[waiting.pop()]
            new = {parent for parent in manifest.parents if parent in self.objects} - found
            found |= new | {store_layout.blob(sha256) for sha256 in manifest.blobs}
            waiting += [key for key in new if key in self._manifests]
        return sorted(found)

    def _read_manifests(self) -> Mapping[str, Manifest]:
        def read(key: str, data: bytes) -> tuple[str, Manifest | None]:
            try:
                return key, Manifest.model_validate_json(data)
            except ValueError:
                # One that is damaged differs from its digest.
                return key, None

        keys = [key for key in self.objects if key.startswith(store_layout.DATASETS)]
        return {key: manifest for key, manifest in read_all(self._store, keys, read) if manifest is not None}
