"""Recipes and objects for tests of sources on an S3 server."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from s3_server import BUCKET, S3Server

from shoestring.core.interfaces import RemoteSources
from shoestring.data.recipe import Recipe
from shoestring.data.sources.remote.fetch import PART_BYTES, fetch_folder

ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (row, row % 2) for row in range(1000))
LARGE = b"a,y\n" + b"123456,1\n1234567,0\n" * (3 * PART_BYTES // 19)


def put(server: S3Server, key: str, data: bytes) -> None:
    server.minio().put_object(BUCKET, key, io.BytesIO(data), len(data))


def recipe_at(url: str, **changes: Any) -> Recipe:
    return Recipe.model_validate(
        {"name": "mine", "source": {"rows": {"url": url}}, "target": {"column": "y"}} | changes
    )


def leftovers(url: str, sources: RemoteSources) -> list[Path]:
    return [
        path
        for found in sources.list(url)
        for path in fetch_folder().glob("*")
        if path.name.startswith(found.identity)
    ]
