"""Requests to one bucket: signed, over kept connections, asked again while the server is away, their errors renamed.

minio-py sends no condition with an upload, so a request is signed as a URL, and what is sent with it is ours. A storage class has to be
among what is signed: that request carries its signature in its headers.
"""

from __future__ import annotations

import base64
import hashlib
import html
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials as MinioCredentials
from minio.error import InvalidResponseError, S3Error, ServerError
from minio.signer import sign_v4_s3
from minio.time import to_amz_date, utcnow
from pydantic import Field
from urllib3.exceptions import HTTPError, NameResolutionError, NewConnectionError, SSLError

from shoestring.core.errors import StoreError, StoreFull, UsageError
from shoestring.core.interfaces import Clock
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS

# How long a server may be away before it is an error, and how long a name that nobody knows may stay unknown.
PATIENCE_S, NAME_PATIENCE_S = 120.0, 15.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 5.0
CONNECT_S, READ_S = 5.0, 60.0
SIGNED_FOR = timedelta(hours=1)
CHUNK_BYTES = 1 << 20
MOST_BYTES = 5 << 30
# 409: AWS's word for two conditional writes at once, "try again".
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
AGAIN = {408, 409, 429, 500, 502, 503, 504}
AGAIN_CODES = {"BadDigest", "IncompleteBody", "RequestTimeout"}
STORAGE_CLASS, UNSIGNED = "x-amz-storage-class", "UNSIGNED-PAYLOAD"
ANSWERS = {"GET": {200, 404}, "HEAD": {200, 404}, "PUT": {200, 412}, "LIST": {200}}
NO_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"}
FULL = {"InsufficientStorage", "XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"}


class S3Place(Record):
    """Where a store lies on S3."""

    endpoint: str = Field(
        pattern=r"^[A-Za-z0-9._-]+(:\d{1,5})?$",
        description="HOST or HOST:PORT, without http:// (that is `secure: false`)",
    )
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    prefix: str = Field(
        "",
        pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?$",
        description="folder in the bucket",
    )
    secure: bool = Field(
        True, description="https, its certificate checked against SSL_CERT_FILE or the system's authorities"
    )
    region: str = Field(
        "us-east-1", min_length=1, description="part of every signature; most servers other than AWS take any"
    )

    @property
    def root(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str
    session_token: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said. `lost`: a try before this one may have done its work without our hearing of it."""

    status: int
    code: str = ""
    message: str = ""
    lost: bool = False
    keys: tuple[str, ...] = ()


class Wire:
    """All verbs raise UsageError (credentials, bucket), StoreFull, and StoreError with the verb, the key and the server's words.

    Threads may share one; a process that was forked makes its own, or it would read its parent's answers.
    """

    def __init__(self, place: S3Place, credentials: Credentials, clock: Clock) -> None:
        self.place, self._credentials, self._clock = place, credentials, clock
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        self._pool = urllib3.PoolManager(maxsize=16, retries=False, timeout=timeout, blocksize=CHUNK_BYTES)
        # A region that is named saves a request for it.
        self._minio = Minio(
            place.endpoint,
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            session_token=credentials.session_token,
            secure=place.secure,
            region=place.region,
            http_client=self._pool,
        )

    def get(self, key: str, into: Path) -> Answer:
        """Write the object to `into`, with its folder: 200, or 404 and no file. A file that is cut short is written again."""
        return self._ask("GET", key, lambda: self._receive(key, into))

    def put(self, key: str, data: bytes | Path, *, only_new: bool = False, storage_class: str = STANDARD_CLASS) -> Answer:
        """200, or 412 when `only_new` and it was there."""

        def once() -> Answer:
            answer = self._send(key, data, only_new, storage_class)
            if answer.code == "InvalidStorageClass":
                why = f"{self.place.endpoint} has no storage class {storage_class} ({_words(answer)})"
                raise UsageError(
                    f"{why}: correct that name in storage_classes of world.yaml, or leave it out there"
                )
            return answer

        return self._ask("PUT", key, once)

    def head(self, key: str) -> Answer:
        """200 or 404."""
        return self._ask("HEAD", key, lambda: _answer(self._open("HEAD", key, None, {})))

    def keys(self, prefix: str) -> tuple[str, ...]:
        return self._ask("LIST", prefix, lambda: self._list(prefix)).keys

    def _open(
        self, verb: str, key: str, body: bytes | BinaryIO | None, headers: dict[str, str]
    ) -> urllib3.BaseHTTPResponse:
        url = self._minio.get_presigned_url(
            verb, self.place.bucket, self.place.root + key, expires=SIGNED_FOR
        )
        if STORAGE_CLASS in headers:
            url, headers = self._signed(verb, url, headers)
        return self._pool.urlopen(
            verb, url, body=body, headers=headers, preload_content=verb != "GET", redirect=False
        )

    def _signed(self, verb: str, url: str, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
        """The same request with its signature in its headers."""
        place, known, now = urlsplit(url)._replace(query=""), self._credentials, utcnow()
        token = {"x-amz-security-token": known.session_token} if known.session_token else {}
        told = {
            "Host": place.netloc,
            "x-amz-date": to_amz_date(now),
            "x-amz-content-sha256": UNSIGNED,
        } | token
        signed = sign_v4_s3(
            method=verb,
            url=place,
            region=self.place.region,
            headers={**told, STORAGE_CLASS: headers[STORAGE_CLASS]},
            credentials=MinioCredentials(known.access_key, known.secret_key),
            content_sha256=UNSIGNED,
            date=now,
        )
        return place.geturl(), headers | told | {"Authorization": str(signed["Authorization"])}

    def _receive(self, key: str, into: Path) -> Answer:
        response = self._open("GET", key, None, {})
        try:
            if response.status == 200:
                into.parent.mkdir(parents=True, exist_ok=True)
                with into.open("wb") as file:
                    for chunk in response.stream(CHUNK_BYTES):
                        file.write(chunk)
            return _answer(response)
        except BaseException:
            # What is left of it must not be taken for the next answer.
            response.close()
            raise
        finally:
            response.release_conn()

    def _send(self, key: str, data: bytes | Path, only_new: bool, storage_class: str) -> Answer:
        headers = {"If-None-Match": "*"} if only_new else {}
        headers |= {STORAGE_CLASS: storage_class} if storage_class != STANDARD_CLASS else {}
        if isinstance(data, bytes):
            # A file's bytes are checked when they are read, by the digest that names them.
            headers["Content-MD5"] = base64.b64encode(
                hashlib.md5(data, usedforsecurity=False).digest()
            ).decode()
            return _answer(self._open("PUT", key, data, headers))
        size_bytes = data.stat().st_size
        if size_bytes > MOST_BYTES:
            raise StoreError(
                f"{self._to('PUT', key)}: {data} has {size_bytes} bytes, and S3 takes {MOST_BYTES} in one piece: cut it"
            )
        with data.open("rb") as file:
            headers["Content-Length"] = str(size_bytes)
            return _answer(self._open("PUT", key, file, headers))

    def _list(self, prefix: str) -> Answer:
        root = self.place.root
        try:
            found = self._minio.list_objects(self.place.bucket, root + prefix, recursive=True)
            return Answer(200, keys=tuple((item.object_name or "").removeprefix(root) for item in found))
        except S3Error as error:
            return Answer(error.response.status, error.code or "", error.message or "")
        except ServerError as error:
            return Answer(error.status_code, message=str(error))
        except InvalidResponseError as error:
            # No XML: the word of a proxy in between.
            return Answer(502, message=str(error))

    def _ask(self, verb: str, key: str, once: Callable[[], Answer]) -> Answer:
        """Ask until there is an answer that asking again does not change."""
        patience = Patience(self._clock)
        lost = False
        while True:
            limit_s = PATIENCE_S
            try:
                answer = once()
                if answer.status not in AGAIN and answer.code not in AGAIN_CODES:
                    return self._judged(verb, key, replace(answer, lost=lost))
                why = _words(answer)
            except SSLError as error:
                raise StoreError(
                    f"{self._to(verb, key)}: {error}; is `secure` right, and the certificate known here?"
                ) from error
            except HTTPError as error:
                why = str(error).rpartition("): ")[2]
                limit_s = NAME_PATIENCE_S if isinstance(error, NameResolutionError) else PATIENCE_S
                lost = lost or not isinstance(error, NewConnectionError)
            else:
                lost = True
            if not patience.wait(limit_s):
                tried = f"{patience.tries} tries in {patience.waited_s:.0f} s"
                raise StoreError(
                    f"{self._to(verb, key)}: no answer after {tried} ({why}); nothing is half written: run again when it is up"
                )

    def _judged(self, verb: str, key: str, answer: Answer) -> Answer:
        if answer.code == "NoSuchBucket":
            raise UsageError(
                f"there is no bucket {self.place.bucket} at {self.place.endpoint}: make it with "
                f"`aws --endpoint-url {self.url} s3 mb s3://{self.place.bucket}`, or name another in world.yaml"
            )
        if answer.code in NO_CREDENTIALS:
            raise UsageError(
                f"{self.place.endpoint} does not know the credentials of access key {self._credentials.access_key!r} ({_words(answer)}): "
                "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (on a cluster: the Secret shoestring-s3)"
            )
        if answer.status == 507 or answer.code in FULL:
            raise StoreFull(
                f"{self._to(verb, key)}: no space left ({_words(answer)}); nothing of it was written: free some and run again"
            )
        if answer.status == 403:
            raise StoreError(
                f"{self._to(verb, key)}: access key {self._credentials.access_key!r} may not ({_words(answer)})"
            )
        if answer.status not in ANSWERS[verb]:
            raise StoreError(f"{self._to(verb, key)}: {_words(answer)}")
        return answer

    @property
    def url(self) -> str:
        return f"{'https' if self.place.secure else 'http'}://{self.place.endpoint}"

    def _to(self, verb: str, key: str) -> str:
        return f"{verb} {self.place.bucket}/{self.place.root}{key} at {self.url}"


class Patience:
    """Longer and longer pauses, up to a limit counted from the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._began_s = clock, 0.0
        self.tries, self.waited_s = 0, 0.0

    def wait(self, limit_s: float) -> bool:
        """False, at once, when the limit would pass."""
        now_s = self._clock.monotonic_s()
        self._began_s = self._began_s if self.tries else now_s
        self.waited_s = now_s - self._began_s
        # At random, so that pods which lost the server together do not come back together.
        pause_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**self.tries) * random.uniform(0.5, 1.0)
        self.tries += 1
        if self.waited_s + pause_s > limit_s:
            return False
        self._clock.sleep(pause_s)
        return True


def _answer(response: urllib3.BaseHTTPResponse) -> Answer:
    if response.status < 300:
        return Answer(response.status)
    text = response.data.decode(errors="replace")
    found = {tag: html.unescape(words) for tag, words in re.findall(r"<(Code|Message)>([^<]*)</", text)}
    return Answer(response.status, found.get("Code", ""), found.get("Message", ""))


def _words(answer: Answer) -> str:
    # SeaweedFS says no more than 500 when its volumes are full.
    hint = "(is it full?)" if answer.status == 500 else ""
    return " ".join(f"{answer.status} {answer.code} {answer.message} {hint}".split())
