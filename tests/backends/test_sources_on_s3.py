"""Sources on a real S3 server: listed, looked at in ranges, fetched part by part, and remembered."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import shoestring
from counting_sources import CountingSources
from s3_objects import LARGE, ROWS, leftovers, put, recipe_at
from s3_server import ADMIN, BUCKET, STAGE, VISION, S3Server, environment

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import open_local_world
from shoestring.backends.s3.location import Credentials
from shoestring.backends.sources.data_variables import S3Server as NamedServer
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError, RecipeError, SourceUnreachable, UsageError
from shoestring.core.interfaces import RemoteSources, Store
from shoestring.core.types import Format
from shoestring.data.inspect.page import inspect_data
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size, list_data_files
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.sources.remote.fetch import fetch_folder
from shoestring.data.transforms.ingest import ingest
from shoestring.runtime.admission.result_keys import StageInputs, StageWork, lookup_keys, saving_key


def ingest_from(recipe: Recipe, remote: RemoteSources, store: Store, tmp_path: Path) -> Manifest:
    return ingest(recipe, Format.ARROW, store, tmp_path, lambda *_: None, remote=remote)[1]


def test_a_folder_of_objects_is_read_as_a_local_folder_is(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    url, store = f"s3://{BUCKET}/{prefix}", FolderStore(tmp_path / "store")
    local = tmp_path / "data"
    (local / "more").mkdir(parents=True)
    for name in ("b.csv", "more/a.csv"):
        (local / name).write_bytes(ROWS)
        put(s3_server, f"{prefix}/{name}", ROWS)
    for hidden in ("_SUCCESS", "notes.md", "more/.a.csv"):
        put(s3_server, f"{prefix}/{hidden}", b"")
    put(s3_server, f"{prefix}-other/c.csv", ROWS)

    files = list_data_files(recipe_at(url).source["rows"], sources)
    assert [(file.name, file.size_bytes) for file in files] == [
        ("b.csv", len(ROWS)),
        ("more/a.csv", len(ROWS)),
    ]
    manifest = ingest_from(recipe_at(url), sources, store, tmp_path)
    assert manifest.rows == 2000
    # The same content under the same names: results are shared with those of local files.
    same = Recipe.model_validate(recipe_at(url).model_dump() | {"source": {"rows": {"path": local}}})
    assert manifest.parents == (fingerprint(same, store),)
    assert leftovers(url, sources) == []


def test_keys_in_the_names_of_objects_are_columns_and_hidden_folders_are_skipped(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    for name in ("region=north/0.csv", "region=a%2Fb/0.csv", "_temporary/0/1.csv", ".tmp/2.csv"):
        put(s3_server, f"{prefix}/year=2024/{name}", ROWS)
    recipe = recipe_at(f"s3://{BUCKET}/{prefix}", categorical=["region"])
    assert estimate_size(recipe, sources).rows_estimate == 2000
    store = FolderStore(tmp_path / "store")
    manifest = ingest_from(recipe, sources, store, tmp_path)
    assert manifest.rows == 2000
    assert manifest.columns["rows.region"] == "string"
    assert manifest.columns["rows.year"] == "int64"
    # Above the source, a folder is no column.
    below = inspect_data(recipe_at(f"s3://{BUCKET}/{prefix}/year=2024/region=north"), sources)
    assert [each.name for each in below.columns] == ["a", "y"]


def test_a_spreadsheet_on_a_server_is_refused_with_its_sheets(
    s3_server: S3Server, sources: CountingSources, prefix: str
) -> None:
    with zipfile.ZipFile(data := io.BytesIO(), "w") as archive:
        archive.writestr("xl/workbook.xml", '<workbook><sheets><sheet name="Jan"/></sheets></workbook>')
    put(s3_server, f"{prefix}/a.xlsx", data.getvalue())
    with pytest.raises(RecipeError, match=r"a\.xlsx is a spreadsheet with the sheet 'Jan'"):
        estimate_size(recipe_at(f"s3://{BUCKET}/{prefix}"), sources)


def test_a_look_reads_the_start_of_a_large_text_file_and_the_end_of_a_typed_one(
    s3_server: S3Server, sources: CountingSources, prefix: str
) -> None:
    table = pa.table({"a": list(range(400_000)), "y": [row % 2 for row in range(400_000)]})
    pq.write_table(table, sink := pa.BufferOutputStream(), compression="none", use_dictionary=False)
    with pa.ipc.new_file(arrow := pa.BufferOutputStream(), table.schema) as writer:
        writer.write_table(table, max_chunksize=20_000)
    files = {"rows.csv": LARGE, "rows.parquet": sink.getvalue().to_pybytes()}
    for name, data in (files | {"rows.arrow": arrow.getvalue().to_pybytes()}).items():
        put(s3_server, f"{prefix}/{name}", data)
        sources.reads.clear()
        recipe = recipe_at(f"s3://{BUCKET}/{prefix}/{name}")
        size = estimate_size(recipe, sources)
        rows = LARGE.count(b"\n") - 1 if name == "rows.csv" else 400_000
        assert size.rows_estimate == pytest.approx(rows, rel=0.02)
        assert sources.read_bytes <= 3 << 20 < len(data), sources.reads
    assert "binary" in inspect_data(recipe_at(f"s3://{BUCKET}/{prefix}/rows.csv"), sources).prediction
    assert leftovers(f"s3://{BUCKET}/{prefix}", sources) == []


def test_an_unchanged_object_is_known_without_reading_it_and_a_changed_one_is_not(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    recipe, store = recipe_at(f"s3://{BUCKET}/{prefix}/rows.csv"), FolderStore(tmp_path / "store")
    put(s3_server, f"{prefix}/rows.csv", ROWS)
    assert fingerprint(recipe, store, sources) is None
    manifest = ingest_from(recipe, sources, store, tmp_path)
    sources.reads.clear()
    assert (fingerprint(recipe, store, sources),) == manifest.parents
    assert sources.reads == []
    put(s3_server, f"{prefix}/rows.csv", ROWS.replace(b"999,1", b"999,0"))
    assert fingerprint(recipe, store, sources) is None
    assert ingest_from(recipe, sources, store, tmp_path).parents != manifest.parents


def test_a_result_is_found_for_the_version_that_was_read_and_for_no_other(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    recipe, place = recipe_at(f"s3://{BUCKET}/{prefix}/rows.csv"), tmp_path / "world.yaml"
    assert shoestring("world", "init", "--out", place).code == 0
    world = replace(open_local_world(place, store=tmp_path / "store"), remote=sources)
    work = StageWork(recipe, 0, "run", "ingest", "", StageInputs())
    put(s3_server, f"{prefix}/rows.csv", ROWS)
    assert lookup_keys(world, work) == ()
    ingest_from(recipe, sources, world.store, tmp_path)
    before = lookup_keys(world, work)
    assert saving_key(world, work, only_its_run=False)[0] == before[0]
    # It changes between the last read and the moment at which the result is saved.
    put(s3_server, f"{prefix}/rows.csv", ROWS.replace(b"999,1", b"999,0"))
    saved, _ = saving_key(world, work, only_its_run=False)
    ingest_from(recipe, sources, world.store, tmp_path)
    assert saved not in (*before, *lookup_keys(world, work))


def test_an_object_that_changes_while_it_is_read_is_named(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{prefix}/rows.csv"
    put(s3_server, f"{prefix}/rows.csv", LARGE)
    (found,) = sources.list(url)
    sources.after_read = lambda: put(s3_server, f"{prefix}/rows.csv", ROWS)
    with pytest.raises(DataError, match=f"{url} changed while it was read: run again"):
        ingest_from(recipe_at(url), sources, FolderStore(tmp_path / "store"), tmp_path)
    assert not (fetch_folder() / f"{found.identity}.part").exists()


def test_a_file_that_was_added_while_others_were_read_refuses_the_result(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    put(s3_server, f"{prefix}/a.csv", ROWS)
    sources.after_read = lambda: put(s3_server, f"{prefix}/b.csv", ROWS)
    with pytest.raises(DataError, match="the source data changed while it was read"):
        ingest_from(recipe_at(f"s3://{BUCKET}/{prefix}"), sources, FolderStore(tmp_path / "store"), tmp_path)


@pytest.mark.parametrize(
    ("url", "identity", "error", "message"),
    [
        (f"s3://{BUCKET}/none.csv", STAGE, RecipeError, "there is no s3://shoestring/none.csv at http"),
        ("s3://no-such-bucket/a.csv", ADMIN, RecipeError, "no bucket no-such-bucket at http.*AWS_ENDP"),
        (
            f"s3://{BUCKET}/started",
            ("nobody", "x"),
            UsageError,
            "does not accept.*InvalidAccessKey.*set SHOESTRING_DATA_AWS",
        ),
        (f"s3://{BUCKET}/started", (STAGE[0], "x"), UsageError, "does not accept.*SignatureDoesNot.*set SH"),
        (
            f"s3://{BUCKET}/started",
            VISION,
            UsageError,
            "may not read.*rights s3:GetObject.*or set SHOESTRING_DATA_AWS_ACCESS_KEY_ID.*"
            "SHOESTRING_DATA_AWS_ENDPOINT_URL if it is another server.*in Secret shoestring-data",
        ),
        (f"s3://{BUCKET}/started", None, UsageError, "is not public.*no credentials are set: set SHOESTRING"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    identity: tuple[str, str] | None,
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_server.endpoint}")
    for name, value in environment(identity or ("", "")).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=message):
        list_data_files(recipe_at(url).source["rows"], ObstoreSources())


def test_a_server_that_is_down_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SourceUnreachable, match=r"from http://127.0.0.1:1: connection refused; run again"):
        ObstoreSources().list("s3://any/rows.csv")


@pytest.mark.parametrize(
    ("url", "variable", "value", "message"),
    [
        (
            "s3://any/rows.csv",
            "AWS_ENDPOINT_URL",
            "localhost:9000",
            r"'localhost:9000': write it as http",
        ),
        (
            "gs://any/rows.csv",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "/none.json",
            r"cannot be read .*none.json",
        ),
    ],
)
def test_a_malformed_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match=message):
        ObstoreSources().list(url)


def test_credentials_of_the_stores_secret_are_used_where_the_environment_names_no_server(
    s3_server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3_server, f"{prefix}/rows.csv", ROWS)
    for name in environment(STAGE):
        monkeypatch.delenv(name, raising=False)
    named = NamedServer(f"http://{s3_server.endpoint}", "us-east-1", Credentials(*STAGE))
    (found,) = ObstoreSources(named).list(f"s3://{BUCKET}/{prefix}/rows.csv")
    assert ObstoreSources(named).read(found, 0, 4) == ROWS[:4]


def test_plan_reads_a_recipe_whose_data_is_on_s3(s3_server: S3Server, prefix: str, tmp_path: Path) -> None:
    put(s3_server, f"{prefix}/rows.csv", ROWS)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"name: mine\nsource: {{rows: {{url: 's3://{BUCKET}/{prefix}/'}}}}\ntarget: {{column: y}}\n"
    )
    world = tmp_path / "world.yaml"
    assert shoestring("world", "init", "--out", world).code == 0
    secrets = environment(STAGE) | {"AWS_ENDPOINT_URL": f"http://{s3_server.endpoint}"}
    ran = shoestring("plan", recipe, "--world", world, "--store", tmp_path / "store", "--json", env=secrets)
    assert ran.code == 0, ran.err
    assert "target y: binary" in ran.out
    assert s3_server.endpoint not in ran.out and STAGE[1] not in ran.out


@pytest.mark.slow
def test_a_second_run_of_data_on_s3_pays_for_nothing(
    s3_server: S3Server, prefix: str, tmp_path: Path
) -> None:
    put(s3_server, f"{prefix}/rows.csv", ROWS)
    recipe, world = tmp_path / "mine.yaml", tmp_path / "world.yaml"
    recipe.write_text(
        f"name: mine\nsource: {{rows: {{url: 's3://{BUCKET}/{prefix}/rows.csv'}}}}\ntarget: {{column: y}}\n"
        "train: {max_epochs: 2}\n"
    )
    assert shoestring("world", "init", "--out", world).code == 0
    secrets = environment(STAGE) | {"AWS_ENDPOINT_URL": f"http://{s3_server.endpoint}"}
    place = ["--world", world, "--store", tmp_path / "store", "--out", tmp_path / "out"]
    hits = []
    for _ in range(2):
        ran = shoestring("run", recipe, *place, "--budget", "0.01", "--json", env=secrets)
        assert ran.code == 0, ran.err
        hits.append({stage["name"]: stage["cache_hit"] for stage in ran.json["stages"]})
    assert (set(hits[0].values()), set(hits[1].values())) == ({False}, {True})
    stored = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*.json"))
    assert STAGE[1].encode() not in stored and s3_server.endpoint.encode() not in stored
