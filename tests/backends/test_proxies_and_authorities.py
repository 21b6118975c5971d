"""Sources of every kind behind a proxy, and on servers whose certificate is of an authority of one's own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gs_server import gs_server, put_in_gs
from proxy_process import Proxy, proxy
from s3_objects import ROWS, put
from s3_server import ADMIN, BUCKET, environment, start_server
from web_files import web_files

from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.errors import RecipeError, SourceUnreachable, UsageError

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class SecureServers:
    """The same rows at a URL of each scheme, over TLS. `port`: that of each. `authority`: who signed them."""

    urls: dict[str, str]
    ports: dict[str, str]
    variables: dict[str, str]
    authority: Path


def signed(folder: Path) -> tuple[Path, Path]:
    """Make an authority, and a certificate of it for 127.0.0.1; return its file, and that of the latter with
    its key.
    """
    now, name = datetime.now(UTC), x509.NameOID.COMMON_NAME
    keys = {each: ec.generate_private_key(ec.SECP256R1()) for each in ("authority", "server")}
    issuer = x509.Name([x509.NameAttribute(name, "authority")])
    made = {}
    for each, key in keys.items():
        builder = x509.CertificateBuilder(issuer, x509.Name([x509.NameAttribute(name, each)]))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(each == "authority", None), critical=True)
        if each == "server":
            names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(keys["authority"], hashes.SHA256())
        made[each] = certificate.public_bytes(serialization.Encoding.PEM)
    key_pem = keys["server"].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "authority.pem").write_bytes(made["authority"])
    (folder / "server.pem").write_bytes(key_pem + made["server"])
    return folder / "authority.pem", folder / "server.pem"


@pytest.fixture(scope="module")
def servers() -> Iterator[SecureServers]:
    with tempfile.TemporaryDirectory() as folder:
        authority, certificate = signed(Path(folder))
        s3 = start_server(Path(folder) / "s3", certificate=certificate)
        try:
            put(s3, "data/rows.csv", ROWS)
            with web_files(certificate) as web, gs_server(certificate) as gs:
                web.files["/rows.csv"], web.headers = ROWS, {"ETag": '"first"'}
                web.redirects["/metadata.csv"] = "https://169.254.1.1/rows.csv"
                put_in_gs(gs, "rows.csv", ROWS)
                yield SecureServers(
                    {"https": f"{web.url}/rows.csv", "s3": f"s3://{BUCKET}/data", "gs": "gs://acme/rows.csv"},
                    {"https": web.url[-5:], "s3": f"{s3.ports[4]}", "gs": gs[-5:]},
                    {"AWS_ENDPOINT_URL": f"https://127.0.0.1:{s3.ports[4]}", "STORAGE_EMULATOR_HOST": gs}
                    | environment(ADMIN),
                    authority,
                )
        finally:
            s3.kill()


@pytest.fixture
def between(tmp_path: Path) -> Iterator[Proxy]:
    with proxy(tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def variables(servers: SecureServers, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in servers.variables.items():
        monkeypatch.setenv(name, value)


def read_at(url: str) -> bytes:
    sources = ObstoreSources()
    (found,) = sources.list(url)
    return sources.read(found, 0, found.size_bytes)


@pytest.mark.parametrize("scheme", ["https", "s3", "gs"])
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_an_authority_of_ones_own_is_trusted_for_every_kind_of_source(
    servers: SecureServers, scheme: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = servers.urls[scheme]
    if variable == "SSL_CERT_FILE":
        with pytest.raises(SourceUnreachable, match=r"certificate is not trusted: name its .*AWS_CA_BUNDLE"):
            ObstoreSources().list(url)
    monkeypatch.setenv(variable, str(servers.authority))
    assert read_at(url) == ROWS


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_redirect_of_a_server_with_such_a_certificate_is_checked(
    servers: SecureServers, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(servers.authority))
    with pytest.raises(RecipeError, match="an address of the link-local network"):
        ObstoreSources().list(servers.urls["https"].replace("rows", "metadata"))


@pytest.mark.parametrize(
    ("file", "message"),
    [("none.pem", "AWS_CA_BUNDLE is .*none.pem, which cannot be read: No such"),
     ("empty.pem", "AWS_CA_BUNDLE is .*empty.pem, which cannot be read: it holds no")],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["https", "s3", "gs"])
def test_a_file_of_authorities_that_cannot_be_read_is_named(
    servers: SecureServers, scheme: str, file: str, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "empty.pem").write_text("nothing\n")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / file))
    with pytest.raises(UsageError, match=message):
        ObstoreSources().list(servers.urls[scheme])


@pytest.mark.parametrize("scheme", ["https", "s3", "gs"])
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_sources_of_every_kind_are_read_through_the_proxy_of_the_environment(
    servers: SecureServers, between: Proxy, scheme: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(servers.authority))
    monkeypatch.setenv(variable, between.url)
    assert read_at(servers.urls[scheme]) == ROWS
    assert {*between.requests} == {f"CONNECT 127.0.0.1:{servers.ports[scheme]}"}
    count = len(between.requests)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert read_at(servers.urls[scheme]) == ROWS
    assert len(between.requests) == count


def test_plain_http_goes_through_its_own_proxy(
    servers: SecureServers, between: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", between.url)
    with web_files() as web:
        web.files["/rows.csv"], web.headers = ROWS, {"ETag": '"first"'}
        assert read_at(f"{web.url}/rows.csv") == ROWS
        assert {*between.requests} == {f"GET {web.url}/rows.csv"}


@pytest.mark.parametrize("scheme", ["https", "s3", "gs"])
def test_a_proxy_that_is_down_is_not_passed_by(
    servers: SecureServers, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(servers.authority))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(SourceUnreachable, match=r"connection refused; run again"):
        ObstoreSources().list(servers.urls[scheme])
