"""The digest of a recipe's source data, part of the cache key of what is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime, Field

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import RemoteSources, Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.recipe import Recipe
from shoestring.data.source import Source
from shoestring.data.source_files import SourceFile, contents_of
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.remote.known_digests import known_fingerprint
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.data.sources.remote.remote_file import RemoteFile
from shoestring.data.storage.blobs import file_digest, file_version


class KnownDigest(NamedTuple):
    """The digest of one version of a file, and when its bytes were read."""

    version: str
    sha256: str
    read_at: AwareDatetime | None


class SourceDigests(StoredRecord):
    """The stored digests of the files of a source, in one object. Each holds for one version of its file."""

    place: str
    files: dict[str, KnownDigest] = Field(
        description="by name; the version of a local file is its size and its times of change"
    )


class FileFingerprint(StoredRecord):
    """The stored digest of a folder of images or texts, valid until a size or a time of change differs."""

    path: str
    size_bytes: int
    mtime_ns: int
    sha256: str
    read_at: AwareDatetime | None = Field(None, description="null: an earlier version wrote it")


def fingerprint(recipe: Recipe, store: Store, remote: RemoteSources = NO_REMOTE_SOURCES) -> str | None:
    """Return the SHA-256 of the content of all source files. Raises RecipeError, DataError.

    The store caches the digests of files by path, size and times of change, or by URL, size and version,
    so that later runs need not read them. None: no run has fetched a remote file in its version yet, so
    nothing can have been made from it.
    """
    contents = list_contents(recipe, store, remote)
    return None if contents is None else digest(contents.encode())


def list_contents(recipe: Recipe, store: Store, remote: RemoteSources = NO_REMOTE_SOURCES) -> str | None:
    """Return the list of the source files and their digests, as `contents_of` makes it. The fingerprint is
    the digest of this list.
    """
    return contents_of(list_sources(recipe, store, remote))


def list_sources(recipe: Recipe, store: Store, remote: RemoteSources) -> tuple[SourceFile, ...]:
    """Return all source files of a recipe, by table. Raises RecipeError, DataError."""
    return tuple(
        file
        for name, source in sorted(recipe.source.items())
        for file in table_files(name, source, list_data_files(source, remote), store)
    )


def table_files(name: str, source: Source, files: Sequence[DataFile], store: Store) -> list[SourceFile]:
    """Return the source files of a table; of images or texts one, which stands for all."""
    if source.is_read_as_one:
        return [_as_one(name, source, files, store)]
    digests = _file_digests(source, files, store)
    return [source_file(f"{name}/{file.name}", file, digests.get(file.name)) for file in files]


def source_file(name: str, file: DataFile, known: KnownDigest | None) -> SourceFile:
    """Return a file of a table as it is recorded. `known`: None: no run has fetched this version."""
    found = file.place.found if isinstance(file.place, RemoteFile) else None
    sha256, read_at, version = (known.sha256, known.read_at, known.version) if known else ("", None, "")
    return SourceFile(
        name=name,
        place=found.url if found else str(file.place),
        size_bytes=file.size_bytes,
        sha256=sha256,
        version=found.version if found else version,
        read_at=read_at,
    )


def files_key(source: Source) -> str:
    """Return the key of the digests of a source's files."""
    return store_layout.fingerprint(digest(_place(source).encode()))


def _place(source: Source) -> str:
    return source.url or str(source.locate().absolute())


def _file_digests(source: Source, files: Sequence[DataFile], store: Store) -> dict[str, KnownDigest]:
    """Return the digests of all files whose content is known. Files on this machine that are new, or have
    another version, are read."""
    known, found = stored_digests(source, store), dict[str, KnownDigest]()
    for file in files:
        version, before = version_of(file), known.get(file.name)
        if before is not None and before.version == version:
            found[file.name] = before
        elif (now := _content_digest(file, version, store)) is not None:
            found[file.name] = now
    remember_digests(source, known, found, store)
    return found


def stored_digests(source: Source, store: Store) -> Mapping[str, KnownDigest]:
    """Return the digests that the store remembers of the files of a source, by name."""
    try:
        return SourceDigests.model_validate_json(store.fetch(files_key(source)).read_bytes()).files
    except (NotInStore, ValueError):
        return {}


def remember_digests(
    source: Source, known: Mapping[str, KnownDigest], found: Mapping[str, KnownDigest], store: Store
) -> None:
    """Store the digests of the files of a source, if they are not those that are known."""
    if found != known:
        record = SourceDigests(place=_place(source), files=dict(found))
        store.put(files_key(source), record_bytes(record))


def version_of(file: DataFile) -> str:
    """Return what a changed file differs in: its version on its server, or its size and its times."""
    return file.place.found.identity if isinstance(file.place, RemoteFile) else file_version(file.place)


def _content_digest(file: DataFile, version: str, store: Store) -> KnownDigest | None:
    if isinstance(file.place, RemoteFile):
        known = known_fingerprint(store, file.place.found)
        return KnownDigest(version, known.sha256, known.read_at) if known else None
    return KnownDigest(version, file_digest(file.place), datetime.now(UTC))


def _as_one(name: str, source: Source, files: Sequence[DataFile], store: Store) -> SourceFile:
    """Return many small files as one, by the digest of their content, which one object caches for all; on a
    server by that of their versions, since ingest need not fetch each."""
    version = version_of_all(files)
    known = known_as_one(files, version, store)
    if known is None and not source.url:
        known = remember_as_one(files, version, digest_of_all(files, map(_local_digest, files)), store)
    return SourceFile(
        name=name,
        place=source.url or str(source.locate()),
        size_bytes=sum(file.size_bytes for file in files),
        sha256=known.sha256 if known else version,
        version=version,
        read_at=known.read_at if known else None,
        files=len(files),
    )


def _local_digest(file: DataFile) -> str:
    assert isinstance(file.place, Path)
    return file_digest(file.place)


def version_of_all(files: Sequence[DataFile]) -> str:
    """Return the version of files together; of those on this machine as of one: size, times, times."""
    if not isinstance(files[0].place, Path):
        return digest("\n".join(map(version_of, files)).encode())
    versions = [version_of(file).split() for file in files]
    modified = [f"{file.name} {size} {mtime}" for file, (size, mtime, _) in zip(files, versions, strict=True)]
    times = (digest("\n".join(each).encode()) for each in (modified, [ctime for *_, ctime in versions]))
    return " ".join([str(sum(int(size) for size, *_ in versions)), *times])


def digest_of_all(files: Sequence[DataFile], digests: Iterable[str]) -> str:
    """Return the digest of many small files together, from that of each."""
    contents = (f"{file.name} {sha256}" for file, sha256 in zip(files, digests, strict=True))
    return digest("\n".join(contents).encode())


def known_as_one(files: Sequence[DataFile], version: str, store: Store) -> FileFingerprint | None:
    """Return the stored digest of files together in this version; None: there is none."""
    try:
        data = store.fetch(_key_as_one(files, version)).read_bytes()
        return FileFingerprint.model_validate_json(data)
    except (NotInStore, ValueError):
        return None


def remember_as_one(files: Sequence[DataFile], version: str, sha256: str, store: Store) -> FileFingerprint:
    """Store the digest of files together, and return its record."""
    first = files[0].place
    found = FileFingerprint(
        path=first.found.url if isinstance(first, RemoteFile) else str(first.absolute()),
        size_bytes=sum(file.size_bytes for file in files),
        mtime_ns=max(
            (file.place.stat().st_mtime_ns for file in files if isinstance(file.place, Path)), default=0
        ),
        sha256=sha256,
        read_at=datetime.now(UTC),
    )
    store.put(_key_as_one(files, version), record_bytes(found))
    return found


def _key_as_one(files: Sequence[DataFile], version: str) -> str:
    paths = [str(file.place.absolute()) for file in files if isinstance(file.place, Path)]
    return store_layout.fingerprint(digest("\n".join([*paths, version]).encode()))
