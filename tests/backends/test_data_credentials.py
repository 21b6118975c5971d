"""Data on another S3 server than the store's, read with credentials of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from argo_by_hand import ArgoByHand
from counting_sources import CountingSources
from kube_server import CONTEXT, KubeServer
from s3_objects import LARGE, ROWS, put, recipe_at
from s3_server import ADMIN, BUCKET, DATA_KEYS, STAGE, S3Server, environment
from store_locations import StoreLocation
from web_files import web_files
from world_folder import write

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.s3.location import Credentials
from shoestring.backends.sources.data_variables import S3Server as NamedServer
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.errors import UsageError
from shoestring.core.receipt import Receipt
from shoestring.data.sources.remote.fetch import PART_BYTES, FetchFolder
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.train import train_pipeline

STORE_SECRET = {"shoestring-s3": environment(ADMIN)}


def data_variables(keys: tuple[str, str], server: str = "", **others: str) -> dict[str, str]:
    named = environment(keys) | ({"AWS_ENDPOINT_URL": server} if server else {}) | others
    return {f"SHOESTRING_DATA_{name}": value for name, value in named.items()}


@pytest.fixture
def hand(
    kube: KubeServer, s3_location: StoreLocation, data_server: S3Server, prefix: str, tmp_path: Path
) -> ArgoByHand:
    """Return a run on Argo of data on the other server, in a cluster whose store is on the first."""
    assert s3_location.s3
    put(data_server, f"{prefix}/rows.csv", ROWS)
    store = s3_location.s3.model_dump(mode="json")
    world = write(tmp_path / "lab", world=yaml.safe_dump({"name": "lab", "store": store}))
    recipe = recipe_at(f"s3://{BUCKET}/{prefix}/rows.csv", budget_usd="0.05")
    parameters = {"recipe": recipe.model_dump_json()}
    return ArgoByHand(workflow_template(train_pipeline), world, "run-1", tmp_path, parameters)


def test_pods_read_data_on_another_server_than_the_stores_with_the_data_secret(
    hand: ArgoByHand,
    kube: KubeServer,
    s3_location: StoreLocation,
    data_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubeconfig = kube.kubeconfig(tmp_path / "kubeconfig")
    kubeconfig.write_text(f"{kubeconfig.read_text()}current-context: {CONTEXT}\n")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    hand.secrets = STORE_SECRET
    lacking = hand.route("ingest")
    assert lacking.code == 2 and "there is no s3://" in lacking.err
    assert "or name its server in SHOESTRING_DATA_AWS_ENDPOINT_URL" in lacking.err

    url = f"http://{data_server.endpoint}"
    hand.secrets = STORE_SECRET | {"shoestring-data": data_variables(DATA_KEYS, url)}
    assert (ran := hand.route("ingest")).code == 0, ran.err
    assert (ran := hand.run(hand.own_stage_line("ingest"))).code == 0, ran.err
    store = s3_location.open()
    receipts = [Receipt.model_validate_json(store.fetch(key).read_bytes())
                for key in store.list("runs/run-1/") if "/receipts/" in key]  # fmt: skip
    assert [receipt.outcome and receipt.outcome.rows for receipt in receipts] == [1000]
    stored = b"".join(store.fetch(key).read_bytes() for key in store.list(""))
    for secret in (*DATA_KEYS, data_server.endpoint):
        assert secret.encode() not in stored


def test_variables_of_the_data_go_before_those_of_aws_and_never_open_the_store(
    s3_server: S3Server, data_server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(data_server, f"{prefix}/rows.csv", ROWS)
    mine = data_variables(DATA_KEYS, f"http://{data_server.endpoint}")
    other = {"AWS_ENDPOINT_URL": f"http://{s3_server.endpoint}", "AWS_SESSION_TOKEN": "of other keys"}
    for name, value in (environment(STAGE) | other | mine).items():
        monkeypatch.setenv(name, value)
    store = NamedServer("http://127.0.0.1:1", "us-east-1", Credentials(*ADMIN))
    for sources in (ObstoreSources(), ObstoreSources(store)):
        (found,) = sources.list(f"s3://{BUCKET}/{prefix}/rows.csv")
        assert sources.read(found, 0, 4) == ROWS[:4]
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    assert StoreLocation(Path("/tmp"), s3_server.location(prefix)).open().put("a/b", b"1")


def test_other_keys_for_the_same_server_need_no_address(
    data_server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(data_server, f"{prefix}/rows.csv", ROWS)
    for name, value in data_variables(DATA_KEYS).items():
        monkeypatch.setenv(name, value)
    store = NamedServer(f"http://{data_server.endpoint}", "us-east-1", Credentials("nobody", "x"))
    assert len(ObstoreSources(store).list(f"s3://{BUCKET}/{prefix}/rows.csv")) == 1


def test_a_server_that_only_the_data_names_gets_no_credentials_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with web_files() as web:
        web.files["/public/rows.csv"], web.headers = ROWS, {"ETag": '"first"'}
        web.files["/public?list-type=2&prefix=rows.csv%2F"] = b"<ListBucketResult></ListBucketResult>"
        for name, value in environment(ADMIN).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SHOESTRING_DATA_AWS_ENDPOINT_URL", web.url)
        store = NamedServer("http://127.0.0.1:1", "us-east-1", Credentials(*ADMIN))
        (found,) = ObstoreSources(store).list("s3://public/rows.csv")
        assert ObstoreSources(store).read(found, 0, 4) == ROWS[:4]
        assert {*web.authorizations} == {""}
        for name, value in data_variables(DATA_KEYS, web.url, AWS_REGION="mars-1").items():
            monkeypatch.setenv(name, value)
        ObstoreSources(store).list("s3://public/rows.csv")
        assert f"Credential={DATA_KEYS[0]}/" in web.authorizations[-1]
        assert "/mars-1/s3/" in web.authorizations[-1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"AWS_ACCESS_KEY_ID": "a"}, r"^SHOESTRING_DATA_AWS_SECRET_ACCESS_KEY is not set"),
        ({"AWS_SESSION_TOKEN": "a"}, r"^SHOESTRING_DATA_AWS_ACCESS_KEY_ID is not set"),
        ({"AWS_ENDPOINT_URL": "here"}, r"^SHOESTRING_DATA_AWS_ENDPOINT_URL is 'here': write it as https"),
    ],
)
def test_half_of_the_datas_credentials_are_refused(
    given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (environment(ADMIN) | {f"SHOESTRING_DATA_{n}": v for n, v in given.items()}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        ObstoreSources().list("s3://any/rows.csv")


def test_a_fetch_whose_credentials_expire_midway_continues_with_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with web_files() as web:
        web.files["/acme/rows.csv"], web.headers = 2 * LARGE, {"ETag": '"first"'}
        web.files["/acme?list-type=2&prefix=rows.csv%2F"] = b"<ListBucketResult></ListBucketResult>"
        for name, value in data_variables(("old", "x"), web.url, AWS_SESSION_TOKEN="short").items():
            monkeypatch.setenv(name, value)
        sources, store = CountingSources(ObstoreSources()), FolderStore(tmp_path / "store")
        (found,) = sources.list("s3://acme/rows.csv")

        def expire(*_: object) -> None:
            web.body = b"<Error><Code>ExpiredToken</Code><Message>old</Message></Error>"
            web.status = 400

        with FetchFolder(sources, store, expire, tmp_path) as fetched:
            message = r"credentials for s3://acme/rows.csv have expired .*in Secret shoestring-data"
            with pytest.raises(UsageError, match=message):
                fetched.fetch(found)
        done = (tmp_path / f"{found.identity}.part").stat().st_size
        assert PART_BYTES <= done < 2 * len(LARGE)

        web.status = 0
        for name, value in data_variables(("new", "x"), web.url, AWS_SESSION_TOKEN="long").items():
            monkeypatch.setenv(name, value)
        again = CountingSources(ObstoreSources())
        with FetchFolder(again, store, lambda *_: None, tmp_path) as fetched:
            assert fetched.fetch(found).read_bytes() == 2 * LARGE
        assert again.read_bytes == 2 * len(LARGE) - done
        assert "Credential=new/" in web.authorizations[-1]
