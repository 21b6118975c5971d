"""Of a folder on a real S3 server, ingest fetches the objects that are new or have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting_sources import CountingSources
from s3_objects import ROWS, leftovers, put, recipe_at
from s3_server import BUCKET, S3Server

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.transforms.ingest import ingest


def ingest_from(url: str, sources: CountingSources, folder: Path, store: str) -> Manifest:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    store_of = FolderStore(folder / store)
    return ingest(recipe_at(url), Format.PACKED, store_of, scratch, lambda *_: None, remote=sources)[1]


def test_only_new_and_changed_objects_are_fetched(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{prefix}/"
    for name in ("a.csv", "b.csv", "c.csv"):
        put(s3_server, f"{prefix}/{name}", ROWS + name.encode()[:1].hex().encode() + b",1\n")
    ingest_from(url, sources, tmp_path, "store")
    put(s3_server, f"{prefix}/b.csv", ROWS.replace(b"999,1", b"999,0"))
    put(s3_server, f"{prefix}/d.csv", ROWS)
    s3_server.minio().remove_object(BUCKET, f"{prefix}/c.csv")
    sources.reads.clear()
    found = ingest_from(url, sources, tmp_path, "store")
    assert {name for name, _, _ in sources.reads} == {"b.csv", "d.csv"}
    sources.reads.clear()
    put(s3_server, f"{prefix}/e.csv", ROWS)
    later = ingest_from(url, sources, tmp_path, "store")
    assert {name for name, _, _ in sources.reads} == {"e.csv"}
    assert later == ingest_from(url, sources, tmp_path, "cold")
    assert found.rows + 1000 == later.rows
    assert leftovers(url, sources) == []


def test_an_object_that_changes_while_others_are_read_is_refused(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{prefix}/"
    for name in ("a.csv", "b.csv"):
        put(s3_server, f"{prefix}/{name}", ROWS)
    ingest_from(url, sources, tmp_path, "store")
    put(s3_server, f"{prefix}/c.csv", ROWS)
    # a.csv is not read: it is known in the version that is gone now.
    changed = ROWS.replace(b"999,1", b"999,0")
    sources.after_read = lambda: put(s3_server, f"{prefix}/a.csv", changed)
    with pytest.raises(DataError, match=r"changed while it was read.* run again"):
        ingest_from(url, sources, tmp_path, "store")
    sources.after_read = lambda: None
    assert ingest_from(url, sources, tmp_path, "store") == ingest_from(url, sources, tmp_path, "cold")
