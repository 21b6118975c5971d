"""Sources in Google Cloud Storage, on an emulator of it."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from gs_server import gs_server
from gs_server import put_in_gs as put
from proxy_process import proxy

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.errors import DataError, RecipeError, UsageError
from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.transforms.ingest import ingest

ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (row, row % 2) for row in range(1000))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the emulator; return its URL."""
    with gs_server() as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield url


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


def test_requests_are_signed_with_the_service_account_in_the_environment(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "private_key": pem.decode(),
        "private_key_id": "one",
        "client_email": "reader@acme.iam",
        "client_id": "1",
    }
    put(server, "rows.csv", ROWS)
    monkeypatch.setenv("SHOESTRING_DATA_GOOGLE_SERVICE_ACCOUNT", json.dumps(account))
    with proxy(tmp_path) as between:
        monkeypatch.setenv("HTTP_PROXY", between.url)
        sources = ObstoreSources()
        (found,) = sources.list("gs://acme/rows.csv")
        assert sources.read(found, 0, 4) == ROWS[:4]
        tokens = [request.split()[2:] for request in between.requests]
    for kind, token in tokens:
        signed, _, signature = token.rpartition(".")
        assert kind == "Bearer"
        key.public_key().verify(decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        assert json.loads(decoded(signed.partition(".")[2]))["iss"] == "reader@acme.iam"
    assert len(tokens) >= 2
    monkeypatch.setenv("SHOESTRING_DATA_GOOGLE_SERVICE_ACCOUNT", "{")
    with pytest.raises(UsageError, match=r"credentials for gs://acme/rows.csv cannot be read") as refused:
        ObstoreSources().list("gs://acme/rows.csv")
    assert "SHOESTRING_DATA_GOOGLE_SERVICE_ACCOUNT" in str(refused.value)


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
