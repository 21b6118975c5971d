"""Obstore's errors, renamed for what their reader must do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from obstore.exceptions import BaseError, NotSupportedError, PreconditionError

from shoestring.backends.sources.data_variables import (
    DATA_ENDPOINT_VARIABLE,
    DATA_SECRET,
    KEY_VARIABLE,
    SECRET_KEY_VARIABLE,
    SERVICE_ACCOUNT_VARIABLE,
    SESSION_TOKEN_VARIABLE,
    URLS_VARIABLE,
)
from shoestring.core.errors import DataError, RecipeError, ShoestringError, SourceUnreachable, UsageError

EXPIRED_CODES = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
REFUSED_CODES = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidTokenId"}
SET_CREDENTIALS = {
    "s3": f"set {KEY_VARIABLE} and {SECRET_KEY_VARIABLE}, {SESSION_TOKEN_VARIABLE} if they have a token, and "
    f"{DATA_ENDPOINT_VARIABLE} if it is another server (on a cluster: in Secret {DATA_SECRET}); or "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file, or (on a cluster: in Secret "
    f"{DATA_SECRET}) {SERVICE_ACCOUNT_VARIABLE} to its text",
}
RIGHTS = {"s3": "s3:GetObject and s3:ListBucket", "gs": "storage.objects.get and storage.objects.list"}
CAUSES = {
    "InvalidCertificate": "its certificate is not trusted: name its authority's file in AWS_CA_BUNDLE, or "
    "all that are trusted in SSL_CERT_FILE",
    "ConnectionRefused": "connection refused",
    "dns error": "its name does not resolve",
    "TimedOut": "it did not answer in time, or a network policy closes its port",
    "Body": "it ended the response before all bytes were sent",
}
"""What a request without a response failed on, by a word in obstore's description of it."""

QUERY = re.compile(r"(https?://[^\s?\"')>,]*)\?[^\s\"')>,]*")
"""A URL with a query, in obstore's descriptions: of this source, or where it is redirected."""


@contextmanager
def explain_source_errors(url: str, endpoint: str, *, has_credentials: bool) -> Iterator[None]:
    """Rename the errors of requests for the source at `url`. `endpoint`: the server, as messages name it.
    `has_credentials`: some were sent, or a query.

    Raises:
        UsageError: credentials are missing, expired, not accepted, or lack a right.
        RecipeError: there is no such bucket or file, or it cannot be read in parts.
        DataError: it is another version now.
        SourceUnreachable: no answer.
    """
    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        raise _renamed(error, url, endpoint, has_credentials) from None


def changed(url: str) -> DataError:
    return DataError(
        f"{url} changed while it was read: run again, once nothing writes to it; what was fetched of the "
        "earlier version is not used"
    )


def _renamed(error: Exception, url: str, endpoint: str, has_credentials: bool) -> ShoestringError:
    text, _, debug = QUERY.sub(r"\1", str(error)).partition("\n\nDebug source")
    code, scheme = _tag("Code", text), urlsplit(url).scheme
    found = re.search(r"status code: (\d{3})", text)
    status = int(found[1]) if found else 0
    # A web server's own words could repeat the query of a URL.
    message = _tag("Message", text) if scheme in RIGHTS else ""
    described = " ".join(filter(None, (str(status or ""), code, message)))
    if isinstance(error, PreconditionError) or status in (412, 416):
        return changed(url)
    if code == "NoSuchBucket":
        return _missing(f"bucket {urlsplit(url).netloc}", endpoint, scheme)
    if isinstance(error, NotSupportedError) or "Content-Length Header missing" in text:
        return RecipeError(
            f"{endpoint} does not serve {url} in parts (no size, or no range requests): download it, and "
            "name its `path`"
        )
    if status in (301, 307) or "redirect" in text.lower():
        return _redirected(url, described, debug)
    if code in EXPIRED_CODES:
        return UsageError(f"the credentials for {url} have expired ({described}): {_renewal(scheme)}")
    if code in REFUSED_CODES or "token request" in text:
        return UsageError(
            f"{endpoint} does not accept the credentials for {url} ({described}): {_renewal(scheme)}"
        )
    if "service account file" in text or "token file" in text:
        reason = text.partition("error: ")[2]
        return UsageError(f"the credentials for {url} cannot be read ({reason}): {_renewal(scheme)}")
    if status in (401, 403):
        return _forbidden(url, endpoint, scheme, described, has_credentials)
    if isinstance(error, FileNotFoundError) or status == 404:
        return _missing(url, endpoint, scheme)
    cause = next((cause for word, cause in CAUSES.items() if word in debug), "")
    return SourceUnreachable(
        f"{url} cannot be read from {endpoint}: {described or cause or text.rpartition(' - ')[2].strip()}; "
        f"run again when the server is up{_elsewhere(scheme)}"
    )


def _missing(url: str, endpoint: str, scheme: str) -> RecipeError:
    return RecipeError(
        f"there is no {url} at {endpoint}: correct `url` in the recipe, or put it there{_elsewhere(scheme)}"
    )


def _elsewhere(scheme: str) -> str:
    if scheme != "s3":
        return ""
    return f", or name its server in {DATA_ENDPOINT_VARIABLE} (on a cluster: in Secret {DATA_SECRET})"


def _redirected(url: str, described: str, debug: str) -> RecipeError:
    if "BadScheme" in debug:
        target = re.search(r'url: "([^"?]*)', debug)
        return RecipeError(
            f"{url} redirects to {target[1] if target else 'an address'} without encryption: name a `url` "
            "that does not"
        )
    return RecipeError(
        f"{url} is redirected ({described or 'too often'}): the bucket may be in another region, set "
        "AWS_REGION; or correct `url`"
    )


def _forbidden(url: str, endpoint: str, scheme: str, described: str, has_credentials: bool) -> UsageError:
    if scheme not in RIGHTS and has_credentials:
        return UsageError(
            f"{endpoint} does not allow to read {url} ({described}) with its query in {URLS_VARIABLE}, which "
            f"may have expired: put a new URL there (on a cluster: into Secret {DATA_SECRET})"
        )
    if scheme not in RIGHTS:
        return UsageError(
            f"{endpoint} does not allow to read {url} ({described}), and Shoestring sends no password: if "
            f"its URL has a query, such as a signature, put it into {URLS_VARIABLE} (on a cluster: Secret "
            f"{DATA_SECRET}); or download it, and name its `path`"
        )
    if not has_credentials:
        return UsageError(
            f"{url} is not public ({described}), and no credentials are set: {SET_CREDENTIALS[scheme]}"
        )
    return UsageError(
        f"the credentials for {endpoint} may not read {url} ({described}): give them the rights "
        f"{RIGHTS[scheme]}, or {SET_CREDENTIALS[scheme]}"
    )


def _renewal(scheme: str) -> str:
    return SET_CREDENTIALS.get(scheme, "download the file, and name its `path`")


def _tag(name: str, text: str) -> str:
    found = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return found[1] if found else ""
