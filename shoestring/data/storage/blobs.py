"""Content-addressed objects (blobs), and the manifests that list them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from shoestring.core import store_layout
from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject
from shoestring.core.interfaces import Store
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import STANDARD_CLASS

_verified: set[tuple[str, str, int, int]] = set()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex, using constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put_blob(store: Store, data: bytes | Path, storage_class: str = STANDARD_CLASS) -> str:
    """Store the bytes under their digest, and return the digest. Raises StoreFull.

    An intact blob is not written again and keeps its storage class; a damaged one is replaced.
    """
    sha256 = digest(data) if isinstance(data, bytes) else file_digest(data)
    key = store_layout.blob(sha256)
    if not store.put(key, data, if_absent=True, storage_class=storage_class):
        try:
            open_blob(store, sha256)
        except CorruptObject:
            store.put(key, data, storage_class=storage_class)
    return sha256


def open_blob(store: Store, sha256: str) -> Path:
    """Return a local file with the bytes of a digest. Each process verifies it once. Raises NotInStore,
    CorruptObject."""
    key = store_layout.blob(sha256)
    path = store.fetch(key)
    stat = path.stat()
    seen = (sha256, str(path), stat.st_size, stat.st_mtime_ns)
    if seen not in _verified:
        if (found := file_digest(path)) != sha256:
            raise CorruptObject(key, found)
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
