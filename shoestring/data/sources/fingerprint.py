"""The digest of a recipe's source data, part of the cache key of what is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import NO_REMOTE_SOURCES, RemoteSources, Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.recipe import Recipe
from shoestring.data.source import Source
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.remote.known_digests import known_digest
from shoestring.data.sources.remote.remote_file import RemoteFile
from shoestring.data.storage.blobs import file_digest


class SourceDigests(StoredRecord):
    """The stored digests of the files of a source, in one object. Each holds for one version of its file."""

    place: str
    files: dict[str, tuple[str, str]] = Field(
        description="name -> version and SHA-256; the version of a local file is its size and time of change"
    )


class FileFingerprint(StoredRecord):
    """The stored digest of a folder of images or texts, valid until a size or a time of change differs."""

    path: str
    size_bytes: int
    mtime_ns: int
    sha256: str


def fingerprint(recipe: Recipe, store: Store, remote: RemoteSources = NO_REMOTE_SOURCES) -> str | None:
    """Return the SHA-256 of the content of all source files. Raises RecipeError, DataError.

    The store caches the digests of files by path, size and modification time, or by URL, size and version,
    so that later runs need not read them. None: no run has fetched a remote file in its version yet, so
    nothing can have been made from it.
    """
    contents = list_contents(recipe, store, remote)
    return None if contents is None else digest(contents.encode())


def list_contents(recipe: Recipe, store: Store, remote: RemoteSources = NO_REMOTE_SOURCES) -> str | None:
    """Return a line for each source file: its table and name, and the SHA-256 of its bytes. The fingerprint
    is the digest of these lines; None where it is.
    """
    found: dict[str, str | None] = {}
    for name, source in sorted(recipe.source.items()):
        found |= table_contents(name, source, list_data_files(source, remote), store)
    known = [f"{path} {sha256}" for path, sha256 in found.items() if sha256 is not None]
    return "\n".join(known) if len(known) == len(found) else None


def table_contents(
    name: str, source: Source, files: Sequence[DataFile], store: Store
) -> dict[str, str | None]:
    """Return TABLE/FILE -> the SHA-256 of each file of a table; TABLE -> that of images or texts together.

    None: no run has fetched this version of a remote file yet.
    """
    if source.image is not None or source.text is not None:
        return {name: _folder_digest(files, store)}
    digests = _file_digests(source, files, store)
    return {f"{name}/{file.name}": digests.get(file.name) for file in files}


def _file_digests(source: Source, files: Sequence[DataFile], store: Store) -> dict[str, str]:
    """Return the digests of all files whose content is known. Files on this machine that are new, or have
    another version, are read."""
    place = source.url or str(source.locate().absolute())
    key = store_layout.fingerprint(digest(place.encode()))
    known, found = _stored_digests(key, store), dict[str, tuple[str, str]]()
    for file in files:
        version = _version(file)
        before, sha256 = known.get(file.name, ("", ""))
        if before == version:
            found[file.name] = version, sha256
        elif (now := _content_digest(file, store)) is not None:
            found[file.name] = version, now
    if found != known:
        store.put(key, record_bytes(SourceDigests(place=place, files=found)))
    return {name: sha256 for name, (_, sha256) in found.items()}


def _stored_digests(key: str, store: Store) -> dict[str, tuple[str, str]]:
    try:
        return SourceDigests.model_validate_json(store.fetch(key).read_bytes()).files
    except (NotInStore, ValueError):
        return {}


def _version(file: DataFile) -> str:
    if isinstance(file.place, RemoteFile):
        return file.place.found.identity
    stat = file.place.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _content_digest(file: DataFile, store: Store) -> str | None:
    if isinstance(file.place, RemoteFile):
        return known_digest(store, file.place.found)
    return file_digest(file.place)


def _folder_digest(files: Sequence[DataFile], store: Store) -> str:
    """Return the digest of many small files: of their content, which one object caches for all of them; on a
    server of their versions, since ingest need not fetch each."""
    paths = [file.place for file in files if isinstance(file.place, Path)]
    if not paths:
        versions = [file.place.found.identity for file in files if isinstance(file.place, RemoteFile)]
        return digest("\n".join(versions).encode())
    folder, stats = str(paths[0].absolute()), [path.stat() for path in paths]
    listed = [
        f"{file.name} {path.absolute()} {stat.st_size} {stat.st_mtime_ns}"
        for file, path, stat in zip(files, paths, stats, strict=True)
    ]
    size_bytes, mtime_ns = sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
    key = store_layout.fingerprint(digest("\n".join(listed).encode()))
    if (known := _known_digest(key, store)) is not None:
        return known
    contents = [f"{file.name} {file_digest(path)}" for file, path in zip(files, paths, strict=True)]
    sha256 = digest("\n".join(contents).encode())
    found = FileFingerprint(path=folder, size_bytes=size_bytes, mtime_ns=mtime_ns, sha256=sha256)
    store.put(key, record_bytes(found))
    return sha256


def _known_digest(key: str, store: Store) -> str | None:
    try:
        return FileFingerprint.model_validate_json(store.fetch(key).read_bytes()).sha256
    except (NotInStore, ValueError):
        return None
