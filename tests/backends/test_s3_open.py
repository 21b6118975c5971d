"""Opening a store on S3 fails if it is missing, denies access, or ignores conditional writes, on which the
ledger depends.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError
from s3_server import STAGE, S3Server, environment
from small_s3 import QuickClock, SmallS3, small_s3

from shoestring.backends.local import WallClock
from shoestring.backends.s3.location import Credentials, S3Location
from shoestring.backends.s3.store import PROOF_VALID_FOR, S3Access, open_s3_store
from shoestring.core.errors import StoreError, UsageError

pytestmark = pytest.mark.usefixtures("credentials")


def test_a_server_that_ignores_the_condition_is_refused(tmp_path: Path) -> None:
    with small_s3("ignored") as small:
        for _ in range(2):
            with pytest.raises(
                StoreError,
                match=r"let 4 of 4 writers create one new object.*two runs could spend the same dollar",
            ):
                open_s3_store(small.location(), tmp_path, WallClock())


def test_a_server_that_checks_first_and_writes_later_is_refused(tmp_path: Path) -> None:
    with small_s3("looked at") as small, pytest.raises(StoreError, match=r"let \d of 4 writers"):
        open_s3_store(small.location(), tmp_path, WallClock())


def test_a_server_is_probed_once_a_day(small: SmallS3, tmp_path: Path, clock: QuickClock) -> None:
    def requests() -> int:
        small.requests.clear()
        open_s3_store(small.location(), tmp_path / "scratch", clock)
        return len(small.requests)

    assert (requests(), requests()) == (6, 1)
    clock.sleep(PROOF_VALID_FOR.total_seconds())
    assert (requests(), requests()) == (6, 1)
    # The bucket was copied from another server.
    proof = small.objects["learned/probes/if-none-match.json"]
    small.objects["learned/probes/if-none-match.json"] = proof.replace(b"127.0.0.1", b"10.0.0.1")
    assert requests() == 6


def test_without_credentials_no_request_is_sent(
    small: SmallS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError, match=r"AWS_SECRET_ACCESS_KEY is not set.*shoestring-s3"):
        open_s3_store(small.location(), tmp_path, WallClock())
    assert small.requests == []


@pytest.mark.parametrize("identity", [("admin", "wrong"), ("nobody", "wrong")])
def test_wrong_credentials_are_reported_without_retries(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: tuple[str, str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", identity[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", identity[1])
    with pytest.raises(
        UsageError,
        match=rf"does not accept the credentials of access key '{identity[0]}'.*correct AWS_ACCESS_KEY_ID",
    ):
        open_s3_store(s3_server.location(), tmp_path, WallClock())


def test_a_missing_bucket_is_reported_with_the_command_that_makes_it(
    s3_server: S3Server, tmp_path: Path
) -> None:
    with pytest.raises(
        UsageError,
        match=r"no bucket elsewhere.*`aws --endpoint-url http://127.0.0.1:\d+ s3 mb s3://elsewhere`",
    ):
        open_s3_store(s3_server.location(bucket="elsewhere"), tmp_path, WallClock())
    assert not s3_server.minio().bucket_exists("elsewhere")


def test_a_missing_permission_is_reported(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(STAGE).items():
        monkeypatch.setenv(name, value)
    s3_server.minio().make_bucket("not-theirs")
    with pytest.raises(
        StoreError,
        match=r"GET not-theirs/learned/\S+ at http://\S+: "
        r"access key 'stage' has no permission \(403 AccessDenied",
    ):
        open_s3_store(s3_server.location(bucket="not-theirs"), tmp_path, WallClock())


def test_a_server_that_stays_down_is_reported_with_the_time_waited(tmp_path: Path, clock: QuickClock) -> None:
    with small_s3() as small:
        location = small.location()
    with pytest.raises(
        StoreError,
        match=rf"at http://{location.endpoint}: no answer after \d+ tries in 1[12]\d s.*Connection refused",
    ):
        open_s3_store(location, tmp_path, clock)
    assert clock.slept_s < 120


def test_an_unresolved_host_is_retried_for_a_shorter_time(tmp_path: Path, clock: QuickClock) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.invalid.* tries in 1\d s"):
        open_s3_store(S3Location(endpoint="nowhere.invalid", bucket="shoestring"), tmp_path, clock)


def test_https_to_a_plain_http_server_is_reported(small: SmallS3, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check `secure`"):
        open_s3_store(small.location().model_copy(update={"secure": True}), tmp_path, WallClock())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path, "IP:127.0.0.1")


def self_signed(tmp_path: Path, name: str) -> Path:
    """Make a self-signed certificate for a name, with its key in the same file."""
    subject = ["-subj", "/CN=127.0.0.1", "-addext", f"subjectAltName={name}"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
        *subject,
    ]
    subprocess.run(
        [*command, "-keyout", tmp_path / "key.pem", "-out", tmp_path / "public.pem"],
        check=True,
        capture_output=True,
    )
    (tmp_path / "own.pem").write_bytes(
        (tmp_path / "key.pem").read_bytes() + (tmp_path / "public.pem").read_bytes()
    )
    return tmp_path / "own.pem"


def test_a_certificate_is_trusted_if_its_authority_is_configured(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_s3(certificate=certificate) as small:
        location = small.location().model_copy(update={"secure": True})
        with pytest.raises(
            StoreError,
            match=r"GET shoestring/learned/\S+ at https://.*CERTIFICATE_VERIFY_FAILED.*check `secure`",
        ):
            open_s3_store(location, tmp_path / "scratch", WallClock())
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "public.pem"))
        assert open_s3_store(location, tmp_path / "scratch", WallClock()).put("a/b", b"")


def test_a_store_that_is_reached_at_another_address_has_the_certificate_of_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = S3Location(endpoint="s3.storage.svc:9000", bucket="shoestring")
    with small_s3(certificate=self_signed(tmp_path, "DNS:s3.storage.svc")) as small:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "public.pem"))
        access = S3Access(address=f"127.0.0.1:{small.port}")
        store = open_s3_store(location, tmp_path / "scratch", WallClock(), access)
        assert store.put("a/b", b"1")
        assert small.objects["a/b"] == b"1"


def test_a_store_that_is_only_read_is_opened_without_a_request(small: SmallS3, tmp_path: Path) -> None:
    open_s3_store(small.location(), tmp_path / "scratch", WallClock(), S3Access(reads_only=True))
    assert small.requests == []


def test_credentials_that_are_given_go_before_those_of_the_environment(
    s3_server: S3Server, tmp_path: Path
) -> None:
    access = S3Access(Credentials("nobody", "nothing"), reads_only=True)
    store = open_s3_store(s3_server.location(), tmp_path / "scratch", WallClock(), access)
    with pytest.raises(UsageError, match="does not accept the credentials of access key 'nobody'"):
        store.fetch("a/b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "http://here:9000"},
        {"bucket": "No"},
        {"prefix": "/a"},
        {"prefix": "a/../b"},
        {"region": ""},
    ],
)
def test_a_malformed_location_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        S3Location(**{"endpoint": "here:9000", "bucket": "shoestring"} | wrong)  # type: ignore[arg-type]
