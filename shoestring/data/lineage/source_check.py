"""Read all source files of a recipe again, and compare them with those of its newest data set."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shoestring.core import store_layout
from shoestring.core.errors import CorruptObject, DataError, RecipeError
from shoestring.core.interfaces import RemoteSources, Store, StoreInventory
from shoestring.data.lineage.file_states import FileCheck, SourceCheck, compared, removed
from shoestring.data.recipe import Recipe
from shoestring.data.retention.references import read_all
from shoestring.data.source import Source
from shoestring.data.source_files import SourceFile, read_sources, recorded_files
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.fingerprint import (
    KnownDigest,
    digest_of_all,
    known_as_one,
    remember_as_one,
    remember_digests,
    source_file,
    stored_digests,
    version_of,
    version_of_all,
)
from shoestring.data.sources.remote.fetch import PART_BYTES
from shoestring.data.sources.remote.known_digests import known_digest, remember_digest
from shoestring.data.sources.remote.remote_file import RemoteFile
from shoestring.data.storage.cache import read_entry
from shoestring.data.storage.origins import source_files, source_of

PARALLEL_FILES = 4
"""Files that are read at the same time."""

ReadBytes = Callable[[int], object]
"""Receives the bytes of each block that was read."""


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table of a recipe with its files now."""

    name: str
    source: Source
    files: Sequence[DataFile]


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads files whole. `progress` receives the bytes of each block."""

    remote: RemoteSources
    progress: ReadBytes

    def digests(self, files: Sequence[DataFile]) -> list[str]:
        with ThreadPoolExecutor(PARALLEL_FILES) as readers:
            return list(readers.map(self._digest, files))

    def _digest(self, file: DataFile) -> str:
        sha256 = hashlib.sha256()
        for block in self._blocks(file):
            sha256.update(block)
            self.progress(len(block))
        return sha256.hexdigest()

    def _blocks(self, file: DataFile) -> Iterator[bytes]:
        if isinstance(file.place, RemoteFile):
            found = file.place.found
            for start in range(0, found.size_bytes, PART_BYTES):
                yield self.remote.read(found, start, min(start + PART_BYTES, found.size_bytes))
            return
        with file.place.open("rb") as opened:
            while block := opened.read(PART_BYTES):
                yield block


def newest_raw(store: Store, inventory: StoreInventory, recipe: Recipe) -> str | None:
    """Return the key of the raw data set that a run of a recipe of this name made or used last; None: there
    is none.
    """
    objects = inventory.objects(store_layout.CACHE)

    def read(key: str, data: bytes) -> tuple[datetime, str] | None:
        try:
            entry = read_entry(key, data)
        except (CorruptObject, ValueError):
            return None
        settings = entry.key_fields["settings"]
        is_of_recipe = isinstance(settings, dict) and settings.get("name") == recipe.name
        is_ingest = entry.key_fields["stage"] == "ingest" and is_of_recipe
        return (objects[key].modified_at, entry.outcome.key) if is_ingest else None

    found = read_all(store, [key for key in objects if key.count("/") == 1], read)
    return max((each for each in found if each is not None), default=(None, None))[1]


def list_tables(recipe: Recipe, remote: RemoteSources) -> list[ListedTable]:
    """Return the tables of a recipe with their files; without files where they are gone from this machine.

    Raises RecipeError, DataError, and what RemoteSources raises.
    """
    return [
        ListedTable(name, source, _files_of(source, remote)) for name, source in sorted(recipe.source.items())
    ]


def _files_of(source: Source, remote: RemoteSources) -> Sequence[DataFile]:
    try:
        return list_data_files(source, remote)
    except RecipeError:
        if source.path is None or source.path.exists():
            raise
        return ()


def check_sources(
    recipe: Recipe,
    tables: Sequence[ListedTable],
    store: Store,
    dataset: str | None,
    remote: RemoteSources,
    progress: ReadBytes,
) -> SourceCheck:
    """Read all files of the tables, compare them with those of a data set, and correct the digests that the
    store remembers of them, so that the next run reads what has changed.

    Raises DataError: no data set is stored; NotInStore, CorruptObject: the list of its files is not, or is
    damaged; what RemoteSources raises.
    """
    if dataset is None:
        raise DataError(
            f"no data set of {recipe.name} is stored, so there is nothing to compare its files with: run it "
            "first"
        )
    record = read_sources(store, dataset)
    files = recorded_files(record, source_files(store, source_of(store, dataset)))
    recorded = {each.name: each for each in files}
    reader, checks = FileReader(remote, progress), list[FileCheck]()
    for table in tables:
        check = _check_as_one if table.source.is_read_as_one else _check_files
        checks += check(table, recorded, reader, store) if table.files else ()
    seen = {each.name for each in checks}
    checks += [removed(each) for name, each in recorded.items() if name not in seen]
    return SourceCheck(
        recipe=recipe.name,
        dataset=dataset,
        ingested_at=record.ingested_at if record else None,
        counts=dict(Counter(each.state for each in checks)),
        files=tuple(sorted(checks, key=lambda each: each.name)),
    )


def _check_files(
    table: ListedTable, recorded: Mapping[str, SourceFile], reader: FileReader, store: Store
) -> Iterator[FileCheck]:
    """Check the files of a table one by one, and correct what the store remembers of them."""
    # Taken before the bytes are read: a file that changes meanwhile is read again by the next run.
    versions = [version_of(file) for file in table.files]
    known, found = stored_digests(table.source, store), dict[str, KnownDigest]()
    for file, version, sha256 in zip(table.files, versions, reader.digests(table.files), strict=True):
        name, last = f"{table.name}/{file.name}", known.get(file.name)
        now_known = KnownDigest(version, sha256, datetime.now(UTC))
        found[file.name] = last if last is not None and last[:2] == now_known[:2] else now_known
        _correct_remote(file, sha256, store)
        now, before = source_file(name, file, found[file.name]), recorded.get(name)
        is_comparable = last is not None and (isinstance(file.place, Path) or last.version == version)
        if before is not None and last is not None and is_comparable and last.sha256 == before.sha256:
            # These bytes were seen since, perhaps with other times.
            before = source_file(name, file, last)
        yield compared(now, before)
    remember_digests(table.source, known, found, store)


def _check_as_one(
    table: ListedTable, recorded: Mapping[str, SourceFile], reader: FileReader, store: Store
) -> Iterator[FileCheck]:
    """Check many small files, which the data set has one digest of; on a server also one by one."""
    files, version = table.files, version_of_all(table.files)
    digests, known = reader.digests(files), known_as_one(files, version, store)
    rewritten = [
        file for file, sha256 in zip(files, digests, strict=True) if _correct_remote(file, sha256, store)
    ]
    sha256 = digest_of_all(files, digests)
    if table.source.url and not rewritten:
        sha256 = known.sha256 if known else version
    elif known is None or known.sha256 != sha256:
        # Of files on a server instead of the digest of their versions, which are those of other bytes.
        remember_as_one(files, version, sha256, store)
    now = SourceFile(
        name=table.name,
        place=table.source.url or str(table.source.locate()),
        size_bytes=sum(file.size_bytes for file in files),
        sha256=sha256,
        version=version,
        files=len(files),
    )
    yield compared(now, recorded.get(table.name))


def _correct_remote(file: DataFile, sha256: str, store: Store) -> bool:
    """Remember the digest of a file on a server. Returns whether its version had another one."""
    if not isinstance(file.place, RemoteFile):
        return False
    known = known_digest(store, file.place.found)
    if known != sha256:
        remember_digest(store, file.place.found, sha256)
    return known not in (None, sha256)
