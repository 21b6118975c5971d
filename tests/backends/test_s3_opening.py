"""A place on S3 is refused at the door if it is not there, does not know us, or would let two runs spend the same dollar."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError
from s3_server import STAGE, S3Server, environment
from small_s3 import QuickClock, SmallS3, small_s3

from shoestring.backends.local import WallClock
from shoestring.backends.s3.store import PROVEN_FOR, S3Place, open_s3_store
from shoestring.core.errors import StoreError, UsageError

pytestmark = pytest.mark.usefixtures("credentials")


def test_a_server_that_ignores_the_condition_is_refused(tmp_path: Path) -> None:
    with small_s3("ignored") as small:
        for _ in range(2):
            with pytest.raises(
                StoreError,
                match=r"let 4 of 4 writers write one new object.*two runs could spend the same dollar",
            ):
                open_s3_store(small.place(), tmp_path, WallClock())


def test_a_server_that_looks_first_and_writes_later_is_refused(tmp_path: Path) -> None:
    with small_s3("looked at") as small, pytest.raises(StoreError, match=r"let \d of 4 writers"):
        open_s3_store(small.place(), tmp_path, WallClock())


def test_a_server_is_put_to_the_proof_once_a_day(small: SmallS3, tmp_path: Path, clock: QuickClock) -> None:
    def requests() -> int:
        small.asked.clear()
        open_s3_store(small.place(), tmp_path / "scratch", clock)
        return len(small.asked)

    assert (requests(), requests()) == (6, 1)
    clock.sleep(PROVEN_FOR.total_seconds())
    assert (requests(), requests()) == (6, 1)
    # A bucket that came here from another server.
    proof = small.objects["learned/probes/if-none-match.json"]
    small.objects["learned/probes/if-none-match.json"] = proof.replace(b"127.0.0.1", b"10.0.0.1")
    assert requests() == 6


def test_without_credentials_nothing_is_asked(
    small: SmallS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError, match=r"AWS_SECRET_ACCESS_KEY is not set.*shoestring-s3"):
        open_s3_store(small.place(), tmp_path, WallClock())
    assert small.asked == []


@pytest.mark.parametrize("identity", [("admin", "wrong"), ("nobody", "wrong")])
def test_wrong_credentials_are_said_at_once(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: tuple[str, str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", identity[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", identity[1])
    with pytest.raises(
        UsageError,
        match=rf"does not know the credentials of access key '{identity[0]}'.*correct AWS_ACCESS_KEY_ID",
    ):
        open_s3_store(s3_server.place(), tmp_path, WallClock())


def test_a_missing_bucket_is_not_made_but_named_with_the_command_that_makes_it(
    s3_server: S3Server, tmp_path: Path
) -> None:
    with pytest.raises(
        UsageError,
        match=r"no bucket elsewhere.*`aws --endpoint-url http://127.0.0.1:\d+ s3 mb s3://elsewhere`",
    ):
        open_s3_store(s3_server.place(bucket="elsewhere"), tmp_path, WallClock())
    assert not s3_server.minio().bucket_exists("elsewhere")


def test_what_the_credentials_may_not_do_is_named(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(STAGE).items():
        monkeypatch.setenv(name, value)
    s3_server.minio().make_bucket("not-theirs")
    with pytest.raises(
        StoreError,
        match=r"GET not-theirs/learned/\S+ at http://\S+: access key 'stage' may not \(403 AccessDenied",
    ):
        open_s3_store(s3_server.place(bucket="not-theirs"), tmp_path, WallClock())


def test_a_server_that_does_not_come_back_is_named_with_how_long_it_was_waited_for(
    tmp_path: Path, clock: QuickClock
) -> None:
    with small_s3() as small:
        place = small.place()
    with pytest.raises(
        StoreError,
        match=rf"at http://{place.endpoint}: no answer after \d+ tries in 1[12]\d s.*Connection refused",
    ):
        open_s3_store(place, tmp_path, clock)
    assert clock.slept_s < 120


def test_a_host_that_nobody_knows_is_not_waited_for_as_long(tmp_path: Path, clock: QuickClock) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.invalid.* tries in 1\d s"):
        open_s3_store(S3Place(endpoint="nowhere.invalid", bucket="shoestring"), tmp_path, clock)


def test_https_to_a_server_without_is_said_so(small: SmallS3, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is `secure` right"):
        open_s3_store(small.place().model_copy(update={"secure": True}), tmp_path, WallClock())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of this machine, signed by itself, with its key in the same file."""
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
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


def test_a_certificate_is_trusted_if_its_authority_is_named(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_s3(certificate=certificate) as small:
        place = small.place().model_copy(update={"secure": True})
        with pytest.raises(
            StoreError,
            match=r"GET shoestring/learned/\S+ at https://.*CERTIFICATE_VERIFY_FAILED.*is `secure` right",
        ):
            open_s3_store(place, tmp_path / "scratch", WallClock())
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "public.pem"))
        assert open_s3_store(place, tmp_path / "scratch", WallClock()).put("a/b", b"")


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
def test_what_cannot_be_a_place_is_refused_at_the_door(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        S3Place(**{"endpoint": "here:9000", "bucket": "shoestring"} | wrong)  # type: ignore[arg-type]
