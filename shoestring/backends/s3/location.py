"""The location of a store on S3, and the credentials that open it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from shoestring.core.record import Record

CREDENTIAL_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
CREDENTIALS_SECRET = "shoestring-s3"
"""The Secret of a cluster's namespace that holds them, under these names."""


class S3Location(Record):
    """The endpoint, bucket and folder of a store on S3."""

    endpoint: str = Field(
        pattern=r"^[A-Za-z0-9._-]+(:\d{1,5})?$",
        description="HOST or HOST:PORT, without http:// (set `secure: false` instead)",
    )
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    prefix: str = Field(
        "",
        pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?$",
        description="folder in the bucket",
    )
    secure: bool = Field(
        True,
        description="https; the certificate is checked against SSL_CERT_FILE or the system's authorities",
    )
    region: str = Field(
        "us-east-1", min_length=1, description="part of every signature; most servers other than AWS take any"
    )

    @property
    def root(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""

    @property
    def place(self) -> str:
        """The URL of bucket and prefix, and the server."""
        return f"s3://{self.bucket}/{self.root} at {self.url}"

    @property
    def host(self) -> str:
        return self.endpoint.partition(":")[0]

    @property
    def port(self) -> int:
        return int(self.endpoint.partition(":")[2] or (443 if self.secure else 80))

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.endpoint}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of an S3 account."""

    access_key: str
    secret_key: str
    session_token: str | None = None
