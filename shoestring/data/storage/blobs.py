"""Objects named by what they hold, and the manifests that list them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject
from shoestring.core.interfaces import Store
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import STANDARD_CLASS

_verified: set[tuple[str, str, int, int]] = set()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex, in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put_blob(store: Store, data: bytes | Path, storage_class: str = STANDARD_CLASS) -> str:
    """Keep the bytes under their own digest, and return it. Where it is there already, it stays on the storage class that it lies on; one
    that is damaged is put again. Raises StoreFull."""
    sha256 = digest(data) if isinstance(data, bytes) else file_digest(data)
    if not store.put(f"blobs/{sha256}", data, if_absent=True, storage_class=storage_class):
        try:
            open_blob(store, sha256)
        except CorruptObject:
            store.put(f"blobs/{sha256}", data, storage_class=storage_class)
    return sha256


def open_blob(store: Store, sha256: str) -> Path:
    """A local file with exactly the bytes the digest names, checked once a process. Raises NotInStore, CorruptObject."""
    path = store.fetch(f"blobs/{sha256}")
    stat = path.stat()
    seen = (sha256, str(path), stat.st_size, stat.st_mtime_ns)
    if seen not in _verified:
        if (found := file_digest(path)) != sha256:
            raise CorruptObject(f"blobs/{sha256}", found)
        _verified.add(seen)
    return path


def save_manifest(store: Store, manifest: Manifest) -> str:
    """Write a manifest under its own digest, and return its key. Equal manifests have equal keys."""
    data = record_bytes(manifest)
    key = f"datasets/{manifest.name}/{digest(data)}.json"
    store.put(key, data)
    return key


def load_manifest(store: Store, key: str) -> Manifest:
    """The manifest under a key. Raises NotInStore, CorruptObject when its bytes are not those the key names."""
    data = store.fetch(key).read_bytes()
    if (found := digest(data)) != Path(key).stem:
        raise CorruptObject(key, found)
    try:
        return Manifest.model_validate_json(data)
    except ValidationError:
        raise CorruptObject(key, found) from None
