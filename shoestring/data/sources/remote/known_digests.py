"""The digests of remote files, which the store remembers by server, URL, version and size."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import AwareDatetime, Field

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import RemoteObject, Store
from shoestring.core.record import StoredRecord, record_bytes


class RemoteFingerprint(StoredRecord):
    """The stored digest of one version of a remote file."""

    url: str
    version: str
    size_bytes: int
    sha256: str
    read_at: AwareDatetime | None = Field(None, description="null: an earlier version wrote it")


def known_fingerprint(store: Store, found: RemoteObject) -> RemoteFingerprint | None:
    """Return the record of a file that was fetched before in this version; None: there is none."""
    try:
        data = store.fetch(store_layout.fingerprint(found.identity)).read_bytes()
        return RemoteFingerprint.model_validate_json(data)
    except (NotInStore, ValueError):
        return None


def known_digest(store: Store, found: RemoteObject) -> str | None:
    """Return the SHA-256 of a file that was fetched before in this version; None: it is not known."""
    known = known_fingerprint(store, found)
    return known.sha256 if known else None


def remember_digest(store: Store, found: RemoteObject, sha256: str) -> None:
    """Store the digest of a file that was fetched."""
    record = RemoteFingerprint(
        url=found.url,
        version=found.version,
        size_bytes=found.size_bytes,
        sha256=sha256,
        read_at=datetime.now(UTC),
    )
    store.put(store_layout.fingerprint(found.identity), record_bytes(record))
