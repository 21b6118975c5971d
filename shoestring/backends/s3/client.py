"""Requests to one bucket: signed, over connections that are kept open, retried while the server is down, with
renamed errors.

minio-py cannot send a condition with an upload. A request is therefore signed as a URL, and Shoestring sends
it itself. A storage class must be among the signed headers, so a request with one carries its signature in
its headers.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, S3Error, ServerError
from urllib3.exceptions import HTTPError, NameResolutionError, NewConnectionError, SSLError

from shoestring.backends.s3.backoff import Backoff
from shoestring.backends.s3.location import Credentials, S3Location
from shoestring.backends.s3.response import S3Response, describe, listed_object, parse_response
from shoestring.backends.s3.signing import STORAGE_CLASS_HEADER, sign_headers
from shoestring.core.errors import StoreError, StoreFull, UsageError
from shoestring.core.interfaces import Clock, ListedObject
from shoestring.core.types import STANDARD_CLASS

# How long requests are retried while the server is down, and while its name does not resolve.
RETRY_LIMIT_S, NAME_RETRY_LIMIT_S = 120.0, 15.0
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 60.0
# For the first try of a small write, such as a heartbeat: on a connection that died unnoticed, 60 s would
# make a stage look silent. A server that is only slow has them from the second try on.
FIRST_READ_TIMEOUT_S, SMALL_BYTES = 5.0, 1 << 16
SIGNATURE_LIFETIME = timedelta(hours=1)
CHUNK_BYTES = 1 << 20
MAX_OBJECT_BYTES = 5 << 30
# 409 is AWS's response to two conditional writes at once, with the advice to retry.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
RETRY_STATUSES = {408, 409, 429, 500, 502, 503, 504}
RETRY_CODES = {"BadDigest", "IncompleteBody", "RequestTimeout"}
EXPECTED_STATUSES = {
    "GET": {200, 404},
    "RANGE": {206, 404},
    "HEAD": {200, 404},
    "PUT": {200, 412},
    "LIST": {200},
    "DELETE": {200, 204, 404},
}
CREDENTIAL_ERRORS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"}
NO_SPACE_ERRORS = {
    "InsufficientStorage",
    "XMinioStorageFull",
    "QuotaExceeded",
    "XMinioAdminBucketQuotaExceeded",
}


class S3Client:
    """Requests to one bucket.

    All verbs raise UsageError (credentials, bucket), StoreFull, and StoreError with the verb, the key and the
    server's message. Threads may share a client. A forked process must make its own, or it would read
    responses to its parent.
    """

    def __init__(
        self, location: S3Location, credentials: Credentials, clock: Clock, address: str = ""
    ) -> None:
        """`address`: HOST:PORT where the endpoint is reached from here; empty: it is its own address."""
        self.location, self._credentials, self._clock = location, credentials, clock
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S)
        self._pool = urllib3.PoolManager(
            maxsize=16,
            retries=False,
            timeout=timeout,
            blocksize=CHUNK_BYTES,
            # The certificate is for the endpoint's name, wherever it is reached.
            server_hostname=location.host if address else None,
        )
        # Naming the region saves minio-py a request for it.
        self._minio = Minio(
            address or location.endpoint,
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            session_token=credentials.session_token,
            secure=location.secure,
            region=location.region,
            http_client=self._pool,
        )

    def get(self, key: str, into: Path) -> S3Response:
        """Write the object to the file `into` and make its folder: status 200, or 404 and no file.

        A truncated file is fetched again.
        """
        return self._request("GET", key, lambda: self._receive(key, into))

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        """Return the bytes from `start` up to `stop`, fewer where the object ends; None: there is none.

        A truncated answer is requested again.
        """
        received = b""

        def once() -> S3Response:
            nonlocal received
            # The range is no part of the signature.
            response = self._open("GET", key, None, {"Range": f"bytes={start}-{stop - 1}"})
            try:
                if response.status == 206:
                    received = response.read()
                return parse_response(response)
            except BaseException:
                response.close()
                raise
            finally:
                response.release_conn()

        return None if self._request("RANGE", key, once).status == 404 else received

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> S3Response:
        """Write an object: status 200, or 412 if `if_absent` and it exists."""
        is_small = isinstance(data, bytes) and len(data) <= SMALL_BYTES
        read_timeouts_s = iter((FIRST_READ_TIMEOUT_S,) if is_small else ())

        def once() -> S3Response:
            read_s = next(read_timeouts_s, READ_TIMEOUT_S)
            response = self._send(key, data, if_absent, storage_class, read_s)
            if response.code == "InvalidStorageClass":
                raise UsageError(
                    f"{self.location.endpoint} has no storage class {storage_class} ({describe(response)}): "
                    "correct its name in storage_classes of world.yaml, or remove it there"
                )
            return response

        return self._request("PUT", key, once)

    def head(self, key: str) -> S3Response:
        """Ask whether an object exists: status 200 or 404."""
        return self._request("HEAD", key, lambda: parse_response(self._open("HEAD", key, None, {})))

    def delete(self, key: str) -> S3Response:
        """Delete an object: status 204 or 200, also if there is none, or 404."""
        return self._request("DELETE", key, lambda: parse_response(self._open("DELETE", key, None, {})))

    def objects(self, prefix: str) -> Mapping[str, ListedObject]:
        """Return the objects whose keys start with `prefix`."""
        return self._request("LIST", prefix, lambda: self._list(prefix)).objects

    def _open(
        self,
        verb: str,
        key: str,
        body: bytes | BinaryIO | None,
        headers: dict[str, str],
        read_s: float = READ_TIMEOUT_S,
    ) -> urllib3.BaseHTTPResponse:
        url = self._minio.get_presigned_url(
            verb, self.location.bucket, self.location.root + key, expires=SIGNATURE_LIFETIME
        )
        if STORAGE_CLASS_HEADER in headers:
            url, headers = sign_headers(verb, url, headers, self.location.region, self._credentials)
        return self._pool.urlopen(
            verb,
            url,
            body=body,
            headers=headers,
            preload_content=verb != "GET",
            redirect=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_s),
        )

    def _receive(self, key: str, into: Path) -> S3Response:
        response = self._open("GET", key, None, {})
        try:
            if response.status == 200:
                into.parent.mkdir(parents=True, exist_ok=True)
                with into.open("wb") as file:
                    for chunk in response.stream(CHUNK_BYTES):
                        file.write(chunk)
            return parse_response(response)
        except BaseException:
            # The rest of this response must not be read as the next one.
            response.close()
            raise
        finally:
            response.release_conn()

    def _send(
        self, key: str, data: bytes | Path, if_absent: bool, storage_class: str, read_s: float
    ) -> S3Response:
        headers = {"If-None-Match": "*"} if if_absent else {}
        headers |= {STORAGE_CLASS_HEADER: storage_class} if storage_class != STANDARD_CLASS else {}
        if isinstance(data, bytes):
            # Files have no MD5: their bytes are checked when they are read, by the digest that names them.
            headers["Content-MD5"] = base64.b64encode(
                hashlib.md5(data, usedforsecurity=False).digest()
            ).decode()
            return parse_response(self._open("PUT", key, data, headers, read_s))
        size_bytes = data.stat().st_size
        if size_bytes > MAX_OBJECT_BYTES:
            raise StoreError(
                f"{self._target('PUT', key)}: {data} has {size_bytes} bytes, "
                f"and S3 takes {MAX_OBJECT_BYTES} bytes in one request: split it"
            )
        with data.open("rb") as file:
            headers["Content-Length"] = str(size_bytes)
            return parse_response(self._open("PUT", key, file, headers))

    def _list(self, prefix: str) -> S3Response:
        root = self.location.root
        try:
            found = self._minio.list_objects(self.location.bucket, root + prefix, recursive=True)
            return S3Response(
                200,
                objects={(item.object_name or "").removeprefix(root): listed_object(item) for item in found},
            )
        except S3Error as error:
            return S3Response(error.response.status, error.code or "", error.message or "")
        except ServerError as error:
            return S3Response(error.status_code, message=str(error))
        except InvalidResponseError as error:
            # The response is not XML, so it comes from a proxy in between.
            return S3Response(502, message=str(error))

    def _request(self, verb: str, key: str, once: Callable[[], S3Response]) -> S3Response:
        """Try until the response is one that a retry would not change."""
        backoff = Backoff(self._clock)
        reply_lost = False
        while True:
            limit_s = RETRY_LIMIT_S
            try:
                response = once()
                if response.status not in RETRY_STATUSES and response.code not in RETRY_CODES:
                    return self._checked(verb, key, replace(response, reply_lost=reply_lost))
                reason = describe(response)
            except SSLError as error:
                raise StoreError(
                    f"{self._target(verb, key)}: {error}; check `secure` and this machine's certificate "
                    "authorities"
                ) from error
            except HTTPError as error:
                reason = str(error).rpartition("): ")[2]
                limit_s = NAME_RETRY_LIMIT_S if isinstance(error, NameResolutionError) else RETRY_LIMIT_S
                reply_lost = reply_lost or not isinstance(error, NewConnectionError)
            else:
                reply_lost = True
            if not backoff.wait(limit_s):
                tries = f"{backoff.tries} tries in {backoff.waited_s:.0f} s"
                raise StoreError(
                    f"{self._target(verb, key)}: no answer after {tries} ({reason}); no object is half "
                    "written: "
                    "run again when the server is up"
                )

    def _checked(self, verb: str, key: str, response: S3Response) -> S3Response:
        """Return the response if its status is one that the verb expects; else raise the error that names the
        fix.
        """
        location, access_key, described = self.location, self._credentials.access_key, describe(response)
        if response.code == "NoSuchBucket":
            raise UsageError(
                f"there is no bucket {location.bucket} at {location.endpoint}: make it with "
                f"`aws --endpoint-url {location.url} s3 mb s3://{location.bucket}`, or name another in "
                "world.yaml"
            )
        if response.code in CREDENTIAL_ERRORS:
            raise UsageError(
                f"{location.endpoint} does not accept the credentials of access key {access_key!r} "
                f"({described}): "
                "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (on a cluster: the Secret shoestring-s3)"
            )
        if response.status == 507 or response.code in NO_SPACE_ERRORS:
            raise StoreFull(
                f"{self._target(verb, key)}: no space left ({described}); nothing of the object was written: "
                "free some space and run again"
            )
        if response.status == 403:
            raise StoreError(
                f"{self._target(verb, key)}: access key {access_key!r} has no permission ({described})"
            )
        if response.status not in EXPECTED_STATUSES[verb]:
            raise StoreError(f"{self._target(verb, key)}: {described}")
        return response

    def _target(self, verb: str, key: str) -> str:
        return f"{verb} {self.location.bucket}/{self.location.root}{key} at {self.location.url}"
