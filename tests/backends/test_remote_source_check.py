"""Source files on servers are read again: on a real web server, a real S3 server, and one that gives changed
images their old versions."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from counting_sources import CountingSources
from PIL import Image
from s3_objects import put, recipe_at
from s3_server import BUCKET, S3Server
from web_files import WebFiles, web_files

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.interfaces import RemoteObject, RemoteSources
from shoestring.core.record import digest
from shoestring.core.types import Format
from shoestring.data.lineage.file_states import SourceCheck
from shoestring.data.lineage.source_check import check_sources, list_tables
from shoestring.data.recipe import Recipe
from shoestring.data.source_files import read_sources
from shoestring.data.sources.fingerprint import fingerprint, list_contents
from shoestring.data.storage.blobs import put_blob
from shoestring.data.transforms.ingest import ingest

ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (row, row % 2) for row in range(1000))


@pytest.fixture
def web() -> Iterator[WebFiles]:
    with web_files() as found:
        found.files["/rows.csv"], found.headers = ROWS, {"ETag": '"first"'}
        yield found


@dataclass
class FixedVersions:
    """A server whose objects keep their version, whatever becomes of their bytes."""

    objects: dict[str, bytes]

    def list(self, url: str) -> tuple[RemoteObject, ...]:
        return tuple(
            RemoteObject(f"{url}{name}", name, len(data), "1", digest(f"{url}{name}".encode()))
            for name, data in self.objects.items()
        )

    def read(self, found: RemoteObject, start: int, end: int) -> bytes:
        return self.objects[found.name][start:end]


class Ingested:
    """A data set from a server, and the check of its files."""

    def __init__(self, recipe: Recipe, remote: RemoteSources, folder: Path) -> None:
        self.recipe, self.remote, self.store = recipe, remote, FolderStore(folder / "store")
        self.key, _ = ingest(recipe, Format.ARROW, self.store, folder, lambda *_: None, remote=remote)
        listed = list_contents(recipe, self.store, remote)
        assert listed is not None
        put_blob(self.store, listed.encode())

    def check(self) -> SourceCheck:
        tables = list_tables(self.recipe, self.remote)
        return check_sources(self.recipe, tables, self.store, self.key, self.remote, lambda read: None)

    @property
    def fingerprint(self) -> str | None:
        return fingerprint(self.recipe, self.store, self.remote)


def test_a_file_that_changes_under_its_tag_is_found_and_the_next_run_knows(
    web: WebFiles, tmp_path: Path
) -> None:
    url = f"{web.url}/rows.csv"
    found = Ingested(recipe_at(url), ObstoreSources(), tmp_path)
    record = read_sources(found.store, found.key)
    assert record is not None
    (file,) = record.files
    assert (file.place, file.version, file.size_bytes) == (url, "first", len(ROWS))
    assert file.read_at is not None
    assert found.check().counts == {"unchanged": 1}
    before = found.fingerprint
    web.files["/rows.csv"] = ROWS.replace(b"999,1", b"998,1")
    assert found.fingerprint == before
    assert found.check().counts == {"rewritten": 1}
    assert found.fingerprint not in (before, None)
    web.headers = {"ETag": '"second"'}
    assert found.check().counts == {"changed": 1}


def test_objects_in_a_bucket(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    for number in range(3):
        put(s3_server, f"{prefix}/{number}.csv", ROWS)
    found = Ingested(recipe_at(f"s3://{BUCKET}/{prefix}/"), sources, tmp_path)
    sources.reads.clear()
    assert found.check().counts == {"unchanged": 3}
    assert sources.read_bytes == 3 * len(ROWS)
    put(s3_server, f"{prefix}/1.csv", ROWS.replace(b"999,1", b"998,1"))
    put(s3_server, f"{prefix}/3.csv", ROWS)
    check = found.check()
    assert {each.name: each.state for each in check.files if each.state != "unchanged"} == {
        "rows/1.csv": "changed",
        "rows/3.csv": "added",
    }


def png(value: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (6, 4), value).save(stream, "PNG")
    return stream.getvalue()


def test_images_that_change_under_their_versions_are_found_and_the_next_run_knows(tmp_path: Path) -> None:
    server = FixedVersions({f"{'ab'[number % 2]}/{number}.png": png(number) for number in range(6)})
    url = f"s3://{BUCKET}/images/"
    source = {"url": url, "image": {"size": [4, 6], "channels": 1}}
    recipe = recipe_at(url, source={"rows": source}, target={"column": "label"})
    found = Ingested(recipe, server, tmp_path)
    before = found.fingerprint
    assert found.check().counts == {"unchanged": 1} and found.fingerprint == before
    server.objects["a/0.png"] = png(9)
    assert found.fingerprint == before
    assert found.check().counts == {"rewritten": 1}
    assert found.fingerprint != before
