"""Source files in S3, in Google Cloud Storage and on web servers, read with obstore."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shoestring.backends.sources.data_variables import (
    SERVICE_ACCOUNT_VARIABLE,
    S3Server,
    full_url,
    s3_reading,
    trusted_authorities,
)
from shoestring.core.errors import DataError, RecipeError, ShoestringError, UsageError
from shoestring.core.interfaces import RemoteObject
from shoestring.core.record import digest

if TYPE_CHECKING:
    # Imported where it is used: a run on local files need not load it.
    from obstore import GetOptions, ObjectMeta
    from obstore.store import (
        ClientConfig,
        GCSConfig,
        ObjectStore,
        RetryConfig,
        S3Config,
        S3Credential,
        S3CredentialProvider,
    )

    from shoestring.backends.s3.location import Credentials

CONNECT_TIMEOUT, REQUEST_TIMEOUT = timedelta(seconds=5), timedelta(seconds=60)
LIST_RETRIES, READ_RETRIES = 3, 9
"""With pauses that double from 0.1 s to 15 s: a listing gives up after 1 s, so that a wrong address is named
at once, and a read after 40 s."""

WEAK_TAG, MODIFIED = "W/", "modified "
"""How a version begins that is not the server's exact tag."""

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
"""Names a server that answers like Google Cloud Storage, as it does for Google's own clients."""


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A URL, by its parts, and the server that it is on. `endpoint`: as messages name it. `address`: that of
    requests to a web server, with the query; empty for a bucket.
    """

    url: str
    scheme: str
    bucket: str
    key: str
    endpoint: str
    has_credentials: bool
    address: str = field(default="", repr=False)

    @property
    def is_web(self) -> bool:
        return self.scheme in ("http", "https")

    def explained(self) -> AbstractContextManager[None]:
        from shoestring.backends.sources.source_errors import explain_source_errors

        return explain_source_errors(self.url, self.endpoint, has_credentials=self.has_credentials)


class ObstoreSources:
    """Source files on servers. Credentials come from the environment, in a pod from a cluster's Secrets."""

    def __init__(self, s3: S3Server | None = None) -> None:
        """`s3`: the server of a cluster's store."""
        self._s3 = s3
        self._opened: dict[tuple[str, str, int], ObjectStore] = {}

    def list(self, url: str) -> tuple[RemoteObject, ...]:
        """Return the file at a URL, or the files below it. A web server has one file at a URL.

        Raises UsageError, RecipeError, SourceUnreachable.
        """
        place = self._place(url)
        if place.is_web:
            from shoestring.backends.sources.redirects import check_redirects

            check_redirects(place.address, trusted_authorities())
            return (self._single(place),)
        try:
            below = self._below(place)
        except UsageError as error:
            # The right to list a bucket may be missing where that to read the file is there.
            try:
                return (self._single(place),)
            except ShoestringError:
                raise error from None
        return below or (self._single(place),)

    def read(self, found: RemoteObject, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end` of this version.

        Raises DataError if it is another version now; UsageError, RecipeError, SourceUnreachable.
        """
        import obstore

        from shoestring.backends.sources.source_errors import changed

        place = self._place(found.url)
        options: GetOptions = {"range": (start, end)}
        # A weak tag never matches (RFC 9110, 13.1.1).
        if not found.version.startswith((WEAK_TAG, MODIFIED)):
            options["if_match"] = f'"{found.version}"'
        with place.explained():
            store = self._open(place, READ_RETRIES)
            result = obstore.get(store, self._path(place), options=options)
            meta, data = result.meta, bytes(result.bytes())
        if _version(meta) != found.version or meta["size"] != found.size_bytes or len(data) != end - start:
            raise changed(found.url)
        return data

    def _below(self, place: RemotePlace) -> tuple[RemoteObject, ...]:
        import obstore

        folder = place.key.rstrip("/")
        with place.explained():
            store = self._open(place, LIST_RETRIES)
            found = [meta for batch in obstore.list(store, folder or None) for meta in batch]
        return tuple(
            self._object(
                place,
                meta,
                meta["path"].removeprefix(f"{folder}/"),
                f"{place.scheme}://{place.bucket}/{meta['path']}",
            )
            for meta in found
        )

    def _look(self, place: RemotePlace) -> ObjectMeta:
        import obstore

        store = self._open(place, LIST_RETRIES)
        if not place.is_web:
            return obstore.head(store, self._path(place))
        # The signature of a URL is that of one method, and its file is read with GET.
        return obstore.get(store, "", options={"range": (0, 1)}).meta

    def _single(self, place: RemotePlace) -> RemoteObject:
        if place.key.strip("/") == "":
            raise RecipeError(f"{place.url} names no file, and there is none below it: correct `url`")
        try:
            with place.explained():
                meta = self._look(place)
        except DataError:
            # There is no first byte.
            raise DataError(f"{place.url} is empty: correct `url`, or put the data there") from None
        return self._object(place, meta, place.key.rstrip("/").rpartition("/")[2], place.url)

    def _object(self, place: RemotePlace, meta: ObjectMeta, name: str, url: str) -> RemoteObject:
        version, size_bytes = _version(meta), meta["size"]
        if not version:
            raise RecipeError(
                f"{place.endpoint} names no version of {url} (no ETag, no Last-Modified), so it could change "
                "unnoticed while it is read: download it, and name its `path`"
            )
        identity = digest(f"{place.endpoint} {url} {size_bytes} {version}".encode())
        return RemoteObject(url, name, size_bytes, version, identity)

    def _place(self, url: str) -> RemotePlace:
        scheme, (bucket, _, key) = urlsplit(url).scheme, url.partition("://")[2].partition("/")
        if scheme == "s3":
            reading = s3_reading(self._s3)
            return RemotePlace(url, scheme, bucket, key, reading.url or "AWS S3", reading.is_signed)
        if scheme == "gs":
            emulator = os.environ.get(EMULATOR_VARIABLE)
            has_credentials = not emulator or bool(os.environ.get(SERVICE_ACCOUNT_VARIABLE))
            return RemotePlace(url, scheme, bucket, key, emulator or "Google Cloud Storage", has_credentials)
        address = full_url(url)
        return RemotePlace(url, scheme, bucket, key, f"{scheme}://{bucket}", address != url, address)

    def _path(self, place: RemotePlace) -> str:
        return "" if place.is_web else place.key.rstrip("/")

    def _open(self, place: RemotePlace, retries: int) -> ObjectStore:
        """Return obstore's client of a bucket, or of one web address."""
        from obstore.store import HTTPStore

        key = (place.scheme, place.address or place.bucket, retries)
        if key not in self._opened:
            client = _client(allow_http=place.endpoint.startswith("http://"))
            retry: RetryConfig = {"max_retries": retries, "retry_timeout": timedelta(minutes=3)}
            if place.is_web:
                self._opened[key] = HTTPStore.from_url(
                    place.address, client_options=client, retry_config=retry
                )
            elif place.scheme == "gs":
                self._opened[key] = _open_gs(place, client, retry)
            else:
                self._opened[key] = self._open_s3(place, client, retry)
        return self._opened[key]

    def _open_s3(self, place: RemotePlace, client: ClientConfig, retry: RetryConfig) -> ObjectStore:
        from obstore.store import S3Store

        reading = s3_reading(self._s3)
        config: S3Config = {"region": reading.region, "virtual_hosted_style_request": False}
        if reading.url:
            config["endpoint"] = reading.url
        if not reading.is_signed:
            config["skip_signature"] = True
        # A provider, because keys in `config` would be mixed with a session token in the environment.
        provider = _provider(reading.credentials) if reading.credentials else None
        return S3Store(
            place.bucket,
            config=config,
            client_options=client,
            retry_config=retry,
            credential_provider=provider,
        )


def _provider(credentials: Credentials) -> S3CredentialProvider:
    def provide() -> S3Credential:
        return {
            "access_key_id": credentials.access_key,
            "secret_access_key": credentials.secret_key,
            "token": credentials.session_token,
            "expires_at": None,
        }

    return provide


def _open_gs(place: RemotePlace, client: ClientConfig, retry: RetryConfig) -> ObjectStore:
    from obstore.store import GCSStore

    config: GCSConfig = {}
    if account := os.environ.get(SERVICE_ACCOUNT_VARIABLE):
        config["service_account_key"] = account
    if emulator := os.environ.get(EMULATOR_VARIABLE):
        config |= {"base_url": emulator, "skip_signature": not account}
    return GCSStore(place.bucket, config=config, client_options=client, retry_config=retry)


def _client(*, allow_http: bool) -> ClientConfig:
    client: ClientConfig = {
        "allow_http": allow_http,
        "connect_timeout": CONNECT_TIMEOUT,
        "timeout": REQUEST_TIMEOUT,
    }
    if authorities := trusted_authorities():
        client["root_certificate"] = authorities
    return client


def _version(meta: ObjectMeta) -> str:
    """Return the server's tag of the content, else the time of its last change; empty: it names neither."""
    if tag := meta["e_tag"]:
        # Some servers quote it in an answer and not in a list.
        return tag.strip('"') if not tag.startswith(WEAK_TAG) else tag
    modified = meta["last_modified"]
    # Obstore's substitute for a missing time.
    return "" if modified.timestamp() == 0 else f"{MODIFIED}{modified.isoformat()}"
