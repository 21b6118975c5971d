"""Content-addressed objects (blobs), and the manifests that list them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from shoestring.core import store_layout
from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject
from shoestring.core.interfaces import Store, VerifiedMarks
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import STANDARD_CLASS

_verified: set[tuple[str, str, str]] = set()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex, using constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put_blob(store: Store, data: bytes | Path, storage_class: str = STANDARD_CLASS) -> str:
    """Store the bytes under their digest, and return the digest. Raises StoreFull.

    A blob that exists is written again: no record may name it any longer, and `gc` deletes only what was not
    written for a while. It is then whole, and has this storage class.
    """
    sha256 = digest(data) if isinstance(data, bytes) else file_digest(data)
    store.put(store_layout.blob(sha256), data, storage_class=storage_class)
    return sha256


def file_version(path: Path) -> str:
    """Return the size and the times of a file. A program that changes the file changes one of them; a
    failing disk does not.
    """
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def open_blob(store: Store, sha256: str) -> Path:
    """Return a local file with the bytes of a digest. Raises NotInStore, CorruptObject.

    A file is read through once: by the first process that opens it where the store is a folder, by each
    process that fetches it elsewhere; and again when its size or its times have changed.
    """
    key = store_layout.blob(sha256)
    path = store.fetch(key)
    version = file_version(path)
    seen = (sha256, str(path), version)
    if seen not in _verified:
        marks = store if isinstance(store, VerifiedMarks) else None
        if marks is None or marks.verified_version(key) != version:
            if (found := file_digest(path)) != sha256:
                raise CorruptObject(key, found)
            if marks is not None:
                marks.mark_verified(key, version)
        _verified.add(seen)
    return path


def save_manifest(store: Store, manifest: Manifest) -> str:
    """Store a manifest under its digest, and return its key. Equal manifests have equal keys. Raises
    StoreFull."""
    data = record_bytes(manifest)
    key = store_layout.manifest(manifest.name, digest(data))
    store.put(key, data)
    return key


def load_manifest(store: Store, key: str) -> Manifest:
    """Return the manifest under a key. Raises NotInStore; CorruptObject when its bytes do not match the
    key."""
    data = store.fetch(key).read_bytes()
    if (found := digest(data)) != Path(key).stem:
        raise CorruptObject(key, found)
    try:
        return Manifest.model_validate_json(data)
    except ValidationError:
        raise CorruptObject(key, found) from None
