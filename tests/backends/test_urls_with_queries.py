"""URLs with a query, such as a signature: the environment holds it, requests send it, nothing stores it."""

from __future__ import annotations

import gzip
import time
from datetime import timedelta
from pathlib import Path

import pytest
from commands import RECIPE, flights_lines, shoestring
from s3_objects import ROWS, put, recipe_at
from s3_server import BUCKET, S3Server
from web_files import WebFiles, web_files

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.errors import DataError, RecipeError, SourceUnreachable, UsageError
from shoestring.core.types import Format
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.transforms.ingest import ingest

URLS = "SHOESTRING_DATA_URLS"
SIGNATURE, REDIRECTED = "sig=4f1d%2Fverysecret&raw=true", "token=alsosecret77"
SECRETS = ("verysecret", "alsosecret77", "raw=true")


@pytest.fixture
def web() -> WebFiles:
    with web_files() as found:
        found.headers = {"ETag": '"first"'}
        found.files[f"/rows.csv?{SIGNATURE}"] = ROWS
        yield found  # type: ignore[misc]


def bytes_below(folder: Path) -> bytes:
    """Return the names and contents of all files, compressed ones as they are and unpacked."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in found]
    unpacked = [gzip.decompress(each) for each in contents if each[:2] == b"\x1f\x8b"]
    return b"\n".join([*(str(path).encode() for path in found), *contents, *unpacked])


@pytest.mark.slow
def test_nothing_that_a_run_stores_or_prints_holds_the_query_of_its_data_or_of_a_redirect(
    web: WebFiles, tmp_path: Path
) -> None:
    recipe, world = tmp_path / "mine.yaml", tmp_path / "world.yaml"
    with web_files() as other:
        other.headers, other.files[f"/there?{REDIRECTED}"] = web.headers, b"".join(flights_lines(20_000))
        web.redirects[f"/flights.csv?{SIGNATURE}"] = f"{other.url}/there?{REDIRECTED}"
        assert "{path: flights.csv}" in RECIPE
        recipe.write_text(RECIPE.replace("{path: flights.csv}", f"{{url: '{web.url}/flights.csv'}}"))
        assert shoestring("world", "init", "--out", world).code == 0
        store, out = tmp_path / "store", tmp_path / "out"
        place = ["--world", world, "--store", store]
        # A signature of its own for each time, as a signer gives it: the data is the same.
        again = SIGNATURE.replace("4f1d", "77ab")
        web.redirects[f"/flights.csv?{again}"] = f"{other.url}/there?{REDIRECTED}"
        ran, hits = [], []
        for query in (SIGNATURE, again):
            given = {URLS: f"https://h/other?a=b\n{web.url}/flights.csv?{query}", "TMPDIR": str(tmp_path)}
            ran.append(shoestring("run", recipe, *place, "--out", out, "--json", env=given))
            assert ran[-1].code == 0, ran[-1].err
            hits.append({stage["name"]: stage["cache_hit"] for stage in ran[-1].json["stages"]})
        ran.append(shoestring("data", recipe, *place, env=given))
        ran.append(shoestring("runs", *place, "--json"))
    assert (set(hits[0].values()), set(hits[1].values())) == ({False}, {True})
    written = bytes_below(tmp_path) + b"".join(f"{each.out}{each.err}".encode() for each in ran)
    assert f"{web.url}/flights.csv".encode() in written
    assert [secret for secret in SECRETS if secret.encode() in written] == []


def test_a_url_that_was_signed_for_reading_is_read_and_one_that_expired_is_named(
    s3_server: S3Server, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3_server, f"{prefix}/rows.csv", ROWS)
    signed = s3_server.minio().presigned_get_object(
        BUCKET, f"{prefix}/rows.csv", expires=timedelta(seconds=3)
    )
    until_s = time.monotonic() + 4
    monkeypatch.setenv(URLS, signed)
    recipe, store = recipe_at(signed.partition("?")[0]), FolderStore(tmp_path / "store")
    sources = ObstoreSources()
    (found,) = sources.list(recipe.source["rows"].url or "")
    assert ingest(recipe, Format.ARROW, store, tmp_path, lambda *_: None, remote=sources)[1].rows == 1000
    assert fingerprint(recipe, store, sources) is not None
    time.sleep(max(0.0, until_s - time.monotonic()))
    for read in (lambda: sources.read(found, 0, 4), lambda: ObstoreSources().list(found.url)):
        with pytest.raises(UsageError, match=r"its query in SHOESTRING_DATA_URLS, which may have") as refused:
            read()
        assert "Signature" not in str(refused.value) and "?" not in str(refused.value)


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_no_error_repeats_a_query(
    web: WebFiles, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(URLS, f"{web.url}/rows.csv?{SIGNATURE}")
    sources = ObstoreSources()
    (found,) = sources.list(f"{web.url}/rows.csv")
    web.status, web.body = status, f"<Message>{web.url}/rows.csv?{SIGNATURE} {SIGNATURE}</Message>".encode()
    for read in (lambda: sources.list(found.url), lambda: sources.read(found, 0, 4)):
        with pytest.raises((UsageError, RecipeError, SourceUnreachable)) as refused:
            read()
        assert "secret" not in f"{refused.value!r}{refused.value.__cause__}"
    assert "secret" not in "".join(capfd.readouterr())


def test_no_error_without_an_answer_repeats_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URLS, f"http://127.0.0.1:1/rows.csv?{SIGNATURE}")
    with pytest.raises(SourceUnreachable) as refused:
        ObstoreSources().list("http://127.0.0.1:1/rows.csv")
    assert "rows.csv" in str(refused.value) and "secret" not in str(refused.value)


def test_without_its_query_a_url_is_refused_with_the_name_of_the_variable(web: WebFiles) -> None:
    web.status = 403
    with pytest.raises(UsageError, match=r"put it into SHOESTRING_DATA_URLS \(on a cluster: Secret shoest"):
        ObstoreSources().list(f"{web.url}/rows.csv")


def test_a_query_in_a_recipe_is_refused_and_not_repeated(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    url = f"https://127.0.0.1/rows.csv?{SIGNATURE}"
    recipe.write_text(f"name: mine\nsource: {{rows: {{url: '{url}'}}}}\ntarget: {{column: y}}\n")
    for ran in (
        shoestring("plan", recipe),
        shoestring("data", recipe),
        shoestring("init", url, "--out", tmp_path / "made.yaml"),
        shoestring("init", "https://ann:verysecret@127.0.0.1/rows.csv", "--out", tmp_path / "made.yaml"),
    ):
        assert ran.code == 2 and "a URL with its query into SHOESTRING_DATA_URLS" in ran.err
        assert "secret" not in ran.err + ran.out


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("{url}?a=secret {url}?b=secret", r"has http.*rows.csv with 2 queries"),
        ("{url}?a=secret secret", r"number 2 is none: correct it"),
        ("{url}", r"number 1 is none"),
        ("s3://b/c?secret", r"number 1 is none"),
    ],
)
def test_urls_that_cannot_be_told_apart_are_refused(
    web: WebFiles, listed: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URLS, listed.format(url=f"{web.url}/rows.csv"))
    with pytest.raises(UsageError, match=message) as refused:
        ObstoreSources().list(f"{web.url}/rows.csv")
    assert "secret" not in str(refused.value)


def test_an_empty_file_on_a_web_server_is_named(web: WebFiles) -> None:
    web.files["/rows.csv"] = b""
    with pytest.raises(DataError, match=r"/rows.csv is empty: correct `url`, or put the data there"):
        ObstoreSources().list(f"{web.url}/rows.csv")
