"""The store on S3, with the same guarantees as a folder: objects are complete or absent, and only one writer
creates a new object.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from shoestring.backends.s3.client import CHUNK_BYTES, S3Client
from shoestring.backends.s3.location import CREDENTIAL_VARIABLES, Credentials, S3Location
from shoestring.core.errors import NO_SPACE, NotInStore, StoreError, StoreFull, UsageError
from shoestring.core.interfaces import Clock, ListedObject
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.core.store_layout import (
    CONDITIONAL_WRITE_PROOF,
    IMMUTABLE,
    check_key,
    check_prefix,
    conditional_write_probe,
)
from shoestring.core.types import STANDARD_CLASS

SESSION_VARIABLE = "AWS_SESSION_TOKEN"
PROOF_VALID_FOR = timedelta(days=1)
PROBE_WRITERS = 4
# From this size on, asking whether an object exists is cheaper than sending it and having it refused.
HEAD_FIRST_BYTES = 4 << 20


class ConditionalWriteProof(StoredRecord):
    """Evidence that this server, under this name, lets exactly one of several conditional writers succeed."""

    endpoint: str
    bucket: str
    proven_at: AwareDatetime


class S3Store:
    """A store whose objects are in a bucket. Fetched objects are files below `scratch`.

    When a response is lost, two writers of equal bytes under one new key may both get the answer that they
    created the object. A writer that must be the only one therefore puts something unique into its bytes, as
    ledger entries and starts of runs do.
    """

    def __init__(self, client: S3Client, scratch: Path) -> None:
        self._client, self._scratch = client, scratch
        self.place = client.location.place
        self._fetched: set[str] = set()

    def fetch(self, key: str) -> Path:
        path = self._scratch / check_key(key)
        if key in self._fetched and path.exists():
            return path
        temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
        try:
            if self._client.get(key, temporary).status == 404:
                raise NotInStore(key)
            temporary.replace(path)
        except OSError as error:
            is_full = error.errno in NO_SPACE
            message = f"cannot write {key} to {self._scratch}: {error.strerror or error}"
            raise (
                StoreFull(f"{message}; give the pod more ephemeral storage")
                if is_full
                else StoreError(message)
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        if key.startswith(IMMUTABLE):
            self._fetched.add(key)
        return path

    def read(self, key: str, start: int, stop: int) -> bytes:
        data = self._client.get_range(check_key(key), start, stop)
        if data is None:
            raise NotInStore(key)
        return data

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        check_key(key)
        self._fetched.discard(key)
        try:
            is_large = isinstance(data, Path) and data.stat().st_size >= HEAD_FIRST_BYTES
            if if_absent and is_large and self._client.head(key).status == 200:
                return False
            response = self._client.put(key, data, if_absent=if_absent, storage_class=storage_class)
            # After a lost response, the object that is in the way may be this writer's own.
            return response.status == 200 or (response.reply_lost and _has_content(self.fetch(key), data))
        except OSError as error:
            raise StoreError(
                f"cannot read {data!r} to put it under {key}: {error.strerror or error}"
            ) from error

    def list(self, prefix: str) -> Iterator[str]:
        yield from self.objects(prefix)

    def objects(self, prefix: str) -> Mapping[str, ListedObject]:
        check_prefix(prefix)
        # Sorted here: a server that keeps folders lists "a/b" before "a-b". A key that ends in "/" is a
        # folder that a web console made.
        return {
            key: found
            for key, found in sorted(self._client.objects(prefix).items())
            if "/." not in f"/{key}" and not key.endswith("/")
        }

    def modified(self, prefix: str) -> Mapping[str, datetime]:
        return {key: found.modified_at for key, found in self.objects(prefix).items()}

    def delete(self, key: str, written_before: datetime | None = None) -> bool:
        check_key(key)
        if written_before is not None:
            found = self._client.objects(key).get(key)
            if found is not None and found.modified_at >= written_before:
                return False
        self._client.delete(key)
        self.drop_copy(key)
        return True

    def drop_copy(self, key: str) -> None:
        self._fetched.discard(key)
        (self._scratch / check_key(key)).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class S3Access:
    """How a store on S3 is opened from this process.

    `credentials`: None: those of the environment. `address`: HOST:PORT where its endpoint is reached from
    here; empty: at its own name. `reads_only`: nothing is written, so no test of writes is needed.
    """

    credentials: Credentials | None = None
    address: str = ""
    reads_only: bool = False


OWN_ACCESS = S3Access()
"""That of a pod: credentials of its environment, the endpoint's own name, the right to write."""


def open_s3_store(
    location: S3Location, scratch: Path, clock: Clock, access: S3Access = OWN_ACCESS
) -> S3Store:
    """Open the store at `location`, after a test that only one writer can create an object.

    The test's result is stored for a day: opening takes one request, or a few once a day; none for a store
    that is only read. `scratch` is a folder for fetched objects.

    Raises:
        UsageError: credentials are missing or not accepted; the bucket does not exist.
        StoreError: the server does not answer, or ignores the condition of a write.
    """
    credentials = access.credentials or environment_credentials()
    if credentials is None:
        missing = [name for name in CREDENTIAL_VARIABLES if not os.environ.get(name)]
        raise UsageError(
            f"the store is on S3 at {location.endpoint}, and {' and '.join(missing)} is not set "
            "(on a cluster: Secret shoestring-s3)"
        )
    store = S3Store(S3Client(location, credentials, clock, access.address), scratch)
    if not access.reads_only and not _is_proven(store, location, clock):
        _probe_conditional_writes(store, location)
        proof = ConditionalWriteProof(
            endpoint=location.endpoint, bucket=location.bucket, proven_at=clock.now()
        )
        store.put(CONDITIONAL_WRITE_PROOF, record_bytes(proof))
    return store


def environment_credentials() -> Credentials | None:
    """Return the credentials in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if set, AWS_SESSION_TOKEN; None
    unless the first two are set.
    """
    access_key, secret_key = (os.environ.get(name, "") for name in CREDENTIAL_VARIABLES)
    if not access_key or not secret_key:
        return None
    return Credentials(access_key, secret_key, os.environ.get(SESSION_VARIABLE) or None)


def _is_proven(store: S3Store, location: S3Location, clock: Clock) -> bool:
    try:
        proof = ConditionalWriteProof.model_validate_json(store.fetch(CONDITIONAL_WRITE_PROOF).read_bytes())
    except (NotInStore, ValidationError):
        return False
    # A bucket may be a copy from another server, and a server may have been replaced.
    is_same = (proof.endpoint, proof.bucket) == (location.endpoint, location.bucket)
    return is_same and timedelta(0) <= clock.now() - proof.proven_at < PROOF_VALID_FOR


def _probe_conditional_writes(store: S3Store, location: S3Location) -> None:
    """Let several writers create one object at once. Raises StoreError unless exactly one succeeds."""
    key = conditional_write_probe(uuid.uuid4().hex)
    with ThreadPoolExecutor(PROBE_WRITERS) as writers:
        successes = sum(
            writers.map(
                lambda writer: store.put(key, f"{writer}".encode(), if_absent=True), range(PROBE_WRITERS)
            )
        )
    if successes != 1:
        raise StoreError(
            f"the S3 server at {location.endpoint} let {successes} of {PROBE_WRITERS} writers create one new "
            "object: "
            "it does not honour If-None-Match: *, so two runs could spend the same dollar there; "
            "use a server that does (AWS S3, SeaweedFS 4, MinIO, Ceph 20)"
        )


def _has_content(path: Path, data: bytes | Path) -> bool:
    if isinstance(data, bytes):
        return path.read_bytes() == data
    if path.stat().st_size != data.stat().st_size:
        return False
    with path.open("rb") as one, data.open("rb") as other:
        return all(chunk == other.read(CHUNK_BYTES) for chunk in iter(lambda: one.read(CHUNK_BYTES), b""))
