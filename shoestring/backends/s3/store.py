"""The store on S3. What it promises is what the folder promises: whole or not there, and only one writer where nothing was."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from shoestring.backends.s3.wire import CHUNK_BYTES, Credentials, Wire
from shoestring.backends.s3.wire import S3Place as S3Place
from shoestring.core.errors import NotInStore, StoreError, StoreFull, UsageError
from shoestring.core.interfaces import Clock
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.core.types import STANDARD_CLASS

PROOF_KEY = "learned/probes/if-none-match.json"
PROVEN_FOR = timedelta(days=1)
PROBERS = 4
# Named by their content, so a copy that was fetched once stays right.
NAMED_BY_CONTENT = ("blobs/", "datasets/")
# From here on, asking whether an object is there is cheaper than sending it to be told.
ASK_FIRST_BYTES = 4 << 20


class Proof(StoredRecord):
    """That this server, under this name, lets one of several conditional writers win."""

    endpoint: str
    bucket: str
    proven_at: AwareDatetime


class S3Store:
    """Objects in a bucket; what is fetched lies in a scratch folder.

    Two writers of the same bytes under one new key may both be told that they wrote them, when an answer to one was lost: whoever must be
    the only one has something of its own in its bytes, as a ledger's entry and a start of a run do.
    """

    def __init__(self, wire: Wire, scratch: Path) -> None:
        self._wire, self._scratch = wire, scratch
        self._fetched: set[str] = set()

    def fetch(self, key: str) -> Path:
        path = self._scratch / _checked(key)
        if key in self._fetched and path.exists():
            return path
        temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
        try:
            if self._wire.get(key, temporary).status == 404:
                raise NotInStore(key)
            temporary.replace(path)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            words = f"cannot keep {key} in {self._scratch}: {error.strerror or error}"
            raise (
                StoreFull(f"{words}; give the pod more ephemeral storage") if full else StoreError(words)
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        if key.startswith(NAMED_BY_CONTENT):
            self._fetched.add(key)
        return path

    def put(self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS) -> bool:
        _checked(key)
        self._fetched.discard(key)
        try:
            large = isinstance(data, Path) and data.stat().st_size >= ASK_FIRST_BYTES
            if if_absent and large and self._wire.head(key).status == 200:
                return False
            answer = self._wire.put(key, data, only_new=if_absent, storage_class=storage_class)
            # Refused after an answer was lost: it may be our own that is there.
            return answer.status == 200 or (answer.lost and _same(self.fetch(key), data))
        except OSError as error:
            raise StoreError(
                f"cannot read {data!r} to put it under {key}: {error.strerror or error}"
            ) from error

    def list(self, prefix: str) -> Iterator[str]:
        # Sorted here: a server that keeps folders lists "a/b" before "a-b". A key that ends in "/" is a console's idea of a folder.
        yield from sorted(
            key for key in self._wire.keys(prefix) if "/." not in f"/{key}" and not key.endswith("/")
        )


def open_s3_store(place: S3Place, scratch: Path, clock: Clock) -> S3Store:
    """The store at `place`, proven to let only one writer win where nothing was. One request where that is known, a few once a day.

    `scratch`: a folder for what is fetched. Credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if set, AWS_SESSION_TOKEN.

    Raises:
        UsageError: no credentials, or the server does not know them; no such bucket.
        StoreError: the server is not there, or ignores the condition of a write.
    """
    if missing := [
        name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not os.environ.get(name)
    ]:
        raise UsageError(
            f"the store is on S3 at {place.endpoint}, and {' and '.join(missing)} is not set (on a cluster: Secret shoestring-s3)"
        )
    credentials = Credentials(
        os.environ["AWS_ACCESS_KEY_ID"],
        os.environ["AWS_SECRET_ACCESS_KEY"],
        os.environ.get("AWS_SESSION_TOKEN") or None,
    )
    store = S3Store(Wire(place, credentials, clock), scratch)
    if not _proven(store, place, clock):
        _prove(store, place)
        store.put(
            PROOF_KEY, record_bytes(Proof(endpoint=place.endpoint, bucket=place.bucket, proven_at=clock.now()))
        )
    return store


def _proven(store: S3Store, place: S3Place, clock: Clock) -> bool:
    try:
        proof = Proof.model_validate_json(store.fetch(PROOF_KEY).read_bytes())
    except (NotInStore, ValidationError):
        return False
    # A bucket may have been copied here from elsewhere, and a server replaced.
    here = (proof.endpoint, proof.bucket) == (place.endpoint, place.bucket)
    return here and timedelta(0) <= clock.now() - proof.proven_at < PROVEN_FOR


def _prove(store: S3Store, place: S3Place) -> None:
    key = f"learned/probes/if-none-match/{uuid.uuid4().hex}"
    with ThreadPoolExecutor(PROBERS) as writers:
        wins = sum(
            writers.map(lambda writer: store.put(key, f"{writer}".encode(), if_absent=True), range(PROBERS))
        )
    if wins != 1:
        raise StoreError(
            f"the S3 server at {place.endpoint} let {wins} of {PROBERS} writers write one new object: it does not honour If-None-Match: *, "
            "so two runs could spend the same dollar there; use a server that does (AWS S3, SeaweedFS 4, MinIO, Ceph 20)"
        )


def _checked(key: str) -> str:
    """Keys become paths of files here, and some servers take a backslash for a slash."""
    if "\\" in key or not key.isprintable() or any(part in ("", ".", "..") for part in key.split("/")):
        raise StoreError(
            f"{key!r} cannot name an object: parts between single slashes, without backslashes or control characters"
        )
    return key


def _same(path: Path, data: bytes | Path) -> bool:
    if isinstance(data, bytes):
        return path.read_bytes() == data
    if path.stat().st_size != data.stat().st_size:
        return False
    with path.open("rb") as one, data.open("rb") as other:
        return all(chunk == other.read(CHUNK_BYTES) for chunk in iter(lambda: one.read(CHUNK_BYTES), b""))
