"""The servers and credentials of sources that the environment names, apart from those of the store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shoestring.backends.s3.location import CREDENTIAL_VARIABLES, Credentials
from shoestring.core.errors import UsageError

DATA_SECRET = "shoestring-data"
"""The Secret of a cluster's namespace that holds DATA_VARIABLES, under these names."""

KEY_VARIABLE = "SHOESTRING_DATA_AWS_ACCESS_KEY_ID"
SECRET_KEY_VARIABLE = "SHOESTRING_DATA_AWS_SECRET_ACCESS_KEY"
SESSION_TOKEN_VARIABLE = "SHOESTRING_DATA_AWS_SESSION_TOKEN"
DATA_ENDPOINT_VARIABLE = "SHOESTRING_DATA_AWS_ENDPOINT_URL"
DATA_REGION_VARIABLE = "SHOESTRING_DATA_AWS_REGION"
SERVICE_ACCOUNT_VARIABLE = "SHOESTRING_DATA_GOOGLE_SERVICE_ACCOUNT"
URLS_VARIABLE = "SHOESTRING_DATA_URLS"

DATA_VARIABLES = (
    KEY_VARIABLE,
    SECRET_KEY_VARIABLE,
    SESSION_TOKEN_VARIABLE,
    DATA_ENDPOINT_VARIABLE,
    DATA_REGION_VARIABLE,
    SERVICE_ACCOUNT_VARIABLE,
    URLS_VARIABLE,
)

ENDPOINT_VARIABLES = (DATA_ENDPOINT_VARIABLE, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = (DATA_REGION_VARIABLE, "AWS_REGION", "AWS_DEFAULT_REGION")

TOKEN_VARIABLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Where a cluster gives a pod an identity of its own, which obstore renews."""

CA_VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
"""Files of certificate authorities that are trusted too. Obstore and Python read SSL_CERT_FILE themselves."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """The S3 server that is read where the environment names none."""

    url: str
    region: str
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True)
class S3Reading:
    """How sources on S3 are read. `url`: empty: AWS. `credentials`: None: obstore's own search of the
    environment if requests are signed.
    """

    url: str
    region: str
    credentials: Credentials | None
    is_signed: bool


def s3_reading(store: S3Server | None) -> S3Reading:
    """Return how sources on S3 are read. `store`: the server of a cluster's store.

    A server that only the data's variables name gets no other credentials: without them it is read as public.
    Raises UsageError if a variable is malformed.
    """
    endpoint, region = _endpoint(), next(filter(None, map(os.environ.get, REGION_VARIABLES)), "")
    region = region or (store.region if store else "us-east-1")
    url = endpoint or (store.url if store else "")
    if credentials := _data_credentials():
        return S3Reading(url, region, credentials, is_signed=True)
    if os.environ.get(DATA_ENDPOINT_VARIABLE):
        return S3Reading(url, region, None, is_signed=False)
    if store and store.credentials and not endpoint:
        return S3Reading(url, region, store.credentials, is_signed=True)
    has_keys = all(os.environ.get(name) for name in CREDENTIAL_VARIABLES)
    has_token = any(os.environ.get(name) for name in TOKEN_VARIABLES)
    return S3Reading(url, region, None, is_signed=has_keys or has_token)


def _data_credentials() -> Credentials | None:
    """Return the keys of the data's own variables; None: they are not set. Raises UsageError."""
    key, secret, token = map(os.environ.get, (KEY_VARIABLE, SECRET_KEY_VARIABLE, SESSION_TOKEN_VARIABLE))
    if not (key or secret or token):
        return None
    if not key or not secret:
        lacking = SECRET_KEY_VARIABLE if key else KEY_VARIABLE
        raise UsageError(
            f"{lacking} is not set, and another variable of these credentials is: set both "
            f"{KEY_VARIABLE} and {SECRET_KEY_VARIABLE}, or none"
        )
    return Credentials(key, secret, token or None)


def _endpoint() -> str:
    """Return the URL of the S3 server in the environment; empty: none. Raises UsageError if it is not one."""
    for name in ENDPOINT_VARIABLES:
        if url := os.environ.get(name):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise UsageError(f"{name} is {url!r}: write it as https://HOST or https://HOST:PORT")
            return url
    return ""


def full_url(url: str) -> str:
    """Return the URL with its query, if SHOESTRING_DATA_URLS names one. A recipe holds no query, because it
    may be a credential, and every run stores its recipe.

    Raises UsageError, which does not hold a query.
    """
    found: set[str] = set()
    for number, listed in enumerate(os.environ.get(URLS_VARIABLE, "").split(), start=1):
        place, _, query = listed.partition("?")
        if not query or not place.startswith(("https://", "http://")):
            raise UsageError(
                f"{URLS_VARIABLE} lists URLs with a query, https://HOST/FILE?QUERY, apart by spaces or line "
                f"breaks, and number {number} is none: correct it"
            )
        if place == url:
            found.add(listed)
    if len(found) > 1:
        raise UsageError(
            f"{URLS_VARIABLE} has {url} with {len(found)} queries, and a recipe holds none: leave one, or "
            "download the others, and name their `path`"
        )
    return found.pop() if found else url


def trusted_authorities() -> str:
    """Return the certificate authorities, PEM, that are trusted besides those of this machine; empty: none.

    Raises UsageError if their file cannot be read, or holds no certificates.
    """
    import ssl

    name = next(filter(os.environ.get, CA_VARIABLES), "")
    if not name:
        return ""
    path = Path(os.environ[name])
    try:
        # Comments may hold other letters.
        text = path.read_bytes().decode("ascii", "ignore")
        ssl.create_default_context(cadata=text or " ")
    except OSError as error:
        reason = "it holds no valid certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise UsageError(f"{name} is {path}, which cannot be read: {reason}") from None
    return text
