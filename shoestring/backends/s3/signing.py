"""The signature of a request in its headers, for one whose storage class must be signed, too."""

from __future__ import annotations

from urllib.parse import urlsplit

from minio.credentials.credentials import Credentials as MinioCredentials
from minio.signer import sign_v4_s3
from minio.time import to_amz_date, utcnow

from shoestring.backends.s3.location import Credentials

STORAGE_CLASS_HEADER, UNSIGNED = "x-amz-storage-class", "UNSIGNED-PAYLOAD"


def sign_headers(
    verb: str, url: str, headers: dict[str, str], region: str, credentials: Credentials
) -> tuple[str, dict[str, str]]:
    """Return the same request with its signature in its headers instead of its URL."""
    target, now = urlsplit(url)._replace(query=""), utcnow()
    token = {"x-amz-security-token": credentials.session_token} if credentials.session_token else {}
    signed_headers = {
        "Host": target.netloc,
        "x-amz-date": to_amz_date(now),
        "x-amz-content-sha256": UNSIGNED,
    } | token
    signed = sign_v4_s3(
        method=verb,
        url=target,
        region=region,
        headers={**signed_headers, STORAGE_CLASS_HEADER: headers[STORAGE_CLASS_HEADER]},
        credentials=MinioCredentials(credentials.access_key, credentials.secret_key),
        content_sha256=UNSIGNED,
        date=now,
    )
    return target.geturl(), headers | signed_headers | {"Authorization": str(signed["Authorization"])}
