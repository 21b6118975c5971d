"""Sources on a real web server: what it serves, what it does wrong, and where it leads."""

import subprocess
from pathlib import Path

import pytest
from web_files import WebFiles, web_files

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.errors import DataError, RecipeError, SourceUnreachable, UsageError
from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.transforms.ingest import ingest

ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (row, row % 2) for row in range(1000))
TAGGED = {"ETag": '"first"'}


@pytest.fixture
def web() -> WebFiles:
    with web_files() as found:
        found.files["/rows.csv"] = ROWS
        found.headers = dict(TAGGED)
        yield found  # type: ignore[misc]


def recipe_at(url: str) -> Recipe:
    return Recipe.model_validate(
        {"name": "mine", "source": {"rows": {"url": url}}, "target": {"column": "y"}}
    )


def rows_from(url: str, tmp_path: Path) -> int:
    (tmp_path / "scratch").mkdir(exist_ok=True)
    store = FolderStore(tmp_path / "store")
    return ingest(
        recipe_at(url), Format.ARROW, store, tmp_path / "scratch", lambda *_: None, remote=ObstoreSources()
    )[1].rows


@pytest.mark.parametrize(
    "headers",
    [TAGGED, {"ETag": 'W/"weak"'}, {"Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT"}],
)
def test_a_file_is_remembered_by_the_version_that_its_server_names(
    web: WebFiles, tmp_path: Path, headers: dict[str, str]
) -> None:
    web.headers = headers
    recipe, store = recipe_at(f"{web.url}/rows.csv"), FolderStore(tmp_path / "store")
    assert estimate_size(recipe, ObstoreSources()).rows_estimate == 1000
    assert rows_from(f"{web.url}/rows.csv", tmp_path) == 1000
    assert fingerprint(recipe, store, ObstoreSources()) is not None
    web.headers = {"ETag": '"second"'}
    assert fingerprint(recipe, store, ObstoreSources()) is None


@pytest.mark.parametrize("honours_conditions", [True, False])
def test_a_file_that_changes_between_two_reads_is_named(
    web: WebFiles, tmp_path: Path, honours_conditions: bool
) -> None:
    sources, web.honours_conditions = ObstoreSources(), honours_conditions
    (found,) = sources.list(f"{web.url}/rows.csv")
    assert sources.read(found, 0, 4) == ROWS[:4]
    web.headers = {"ETag": '"second"'}
    with pytest.raises(DataError, match=f"{web.url}/rows.csv changed while it was read: run again"):
        sources.read(found, 4, 8)


def test_a_file_that_became_shorter_under_the_same_version_is_named(web: WebFiles) -> None:
    sources = ObstoreSources()
    (found,) = sources.list(f"{web.url}/rows.csv")
    web.files["/rows.csv"] = ROWS[:-2]
    with pytest.raises(DataError, match="changed while it was read"):
        sources.read(found, 0, 4)


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (404, RecipeError, "there is no http://.*rows.csv at http://127.0.0.1:.*: correct `url`"),
        (403, UsageError, "does not allow to read .*rows.csv.*download it, and name its `path`"),
        (401, UsageError, "does not allow to read .*rows.csv.*download it, and name its `path`"),
        (501, SourceUnreachable, "cannot be read from http://127.0.0.1.*501.*run again"),
    ],
)
def test_an_answer_that_is_an_error_says_what_to_do(
    web: WebFiles, status: int, error: type[Exception], message: str
) -> None:
    web.status = status
    with pytest.raises(error, match=message):
        ObstoreSources().list(f"{web.url}/rows.csv")


def test_a_server_that_names_no_version_is_refused(web: WebFiles) -> None:
    web.headers = {}
    with pytest.raises(RecipeError, match=r"names no version of .*rows.csv .*download it"):
        ObstoreSources().list(f"{web.url}/rows.csv")


def test_a_server_without_ranges_is_refused_at_the_first_look(web: WebFiles) -> None:
    web.ranges = False
    with pytest.raises(RecipeError, match=r"does not serve .*rows.csv in parts.*download it"):
        estimate_size(recipe_at(f"{web.url}/rows.csv"), ObstoreSources())


def test_an_answer_that_ends_early_is_continued_and_never_taken_for_the_whole(web: WebFiles) -> None:
    sources = ObstoreSources()
    (found,) = sources.list(f"{web.url}/rows.csv")
    web.cut = 2
    assert sources.read(found, 0, 64) == ROWS[:64]
    assert [request.partition("bytes=")[2] for request in web.requests[-3:]] == ["0-63", "32-63", "48-63"]
    web.cut = 1000
    with pytest.raises(SourceUnreachable, match=r"ended the response before all bytes were sent; run again"):
        sources.read(found, 0, 64)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ftp://127.0.0.1/rows.csv", r"redirects to ftp://127.0.0.1/rows.csv, which is not encrypted or not"),
        ("http://169.254.1.1/rows.csv?key=secret", r"redirects to http://169.254.1.1/rows.csv, an address of "
         "the link-local network: name that address"),
    ],
)  # fmt: skip
def test_a_redirect_to_another_scheme_or_network_is_refused(web: WebFiles, target: str, message: str) -> None:
    web.redirects["/moved.csv"] = target
    with pytest.raises(RecipeError, match=message) as refused:
        ObstoreSources().list(f"{web.url}/moved.csv")
    assert "secret" not in str(refused.value)


def test_a_redirect_on_the_same_network_is_followed(web: WebFiles, tmp_path: Path) -> None:
    web.redirects["/moved.csv"] = "/rows.csv"
    assert rows_from(f"{web.url}/moved.csv", tmp_path) == 1000


def test_https_needs_a_trusted_certificate_and_never_leads_to_http(
    web: WebFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "server.pem"
    parts = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "certificate.pem"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    end = ["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2", "-newkey", "rsa:2048", "-nodes"]
    subprocess.run(["openssl", "req", "-x509", *parts, *name, *end], check=True, capture_output=True)
    certificate.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "certificate.pem").read_bytes())
    with web_files(certificate) as secure:
        secure.files, secure.headers = web.files, web.headers
        secure.redirects["/moved.csv"] = f"{web.url}/rows.csv"
        with pytest.raises(SourceUnreachable, match=r"its certificate is not trusted.*SSL_CERT_FILE"):
            ObstoreSources().list(f"{secure.url}/rows.csv")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        assert rows_from(f"{secure.url}/rows.csv", tmp_path) == 1000
        with pytest.raises(RecipeError, match=r"redirects to http://127.0.0.1:.*not encrypted"):
            ObstoreSources().list(f"{secure.url}/moved.csv")
        # The address that was checked may lead elsewhere later.
        (found,) = ObstoreSources().list(f"{secure.url}/rows.csv")
        secure.redirects["/rows.csv"] = f"{web.url}/rows.csv"
        with pytest.raises(RecipeError, match=r"redirects to http://127.0.0.1:.*without encryption"):
            ObstoreSources().read(found, 0, 4)


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (400, b"<Error><Code>ExpiredToken</Code><Message>old</Message></Error>", UsageError,
         r"credentials for s3://bucket/rows.csv have expired \(400 ExpiredToken old\): set SHOESTRING_DATA"),
        (301, b"<Error><Code>PermanentRedirect</Code></Error>", RecipeError, "region, set AWS_REGION"),
    ],
)  # fmt: skip
def test_what_an_s3_server_answers_says_what_to_do(
    web: WebFiles,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes,
    error: type[Exception],
    message: str,
) -> None:
    web.status, web.body = status, body
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", web.url)
    with pytest.raises(error, match=message):
        ObstoreSources().list("s3://bucket/rows.csv")
