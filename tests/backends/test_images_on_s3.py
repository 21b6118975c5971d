"""Images on a real S3 server: a folder of them, a table of their paths, and tables that have them."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counting_sources import CountingSources
from PIL import Image
from s3_objects import leftovers, put, recipe_at
from s3_server import BUCKET, S3Server
from web_files import web_files

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.core.errors import RecipeError
from shoestring.core.interfaces import RemoteSources
from shoestring.core.types import Format
from shoestring.data.inspect.guess import guess_recipe
from shoestring.data.inspect.page import inspect_data
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.ingest import ingest


def png(value: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (6, 4), value).save(stream, "PNG")
    return stream.getvalue()


def image_recipe_at(url: str, target: str, column: str = "path") -> Recipe:
    source = {"url": url, "image": {"size": [4, 6], "channels": 1, "column": column}}
    return recipe_at(url, source={"rows": source}, target={"column": target})


def test_a_folder_in_a_bucket_is_a_table_of_images(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    for number in range(6):
        put(s3_server, f"{prefix}/{'ab'[number % 2]}/{number}.png", png(number))
    url, store = f"s3://{BUCKET}/{prefix}", FolderStore(tmp_path / "store")
    recipe = image_recipe_at(url, "label")
    page = inspect_data(recipe, sources)
    assert page.rows == 6 and page.images is not None and page.images.sizes == {"4 x 6": 6}
    before = fingerprint(recipe, store, sources)
    _, manifest = ingest(recipe, Format.PACKED, store, tmp_path, lambda *_: None, remote=sources)
    rows = open_part(store, manifest, manifest.splits["rows"][0])
    assert rows["label"].to_pylist() == ["a"] * 3 + ["b"] * 3
    assert rows["_image"].to_pylist() == [png(number) for number in (0, 2, 4, 1, 3, 5)]
    assert manifest.parents == (before,)
    assert leftovers(url, sources) == []
    put(s3_server, f"{prefix}/a/0.png", png(99))
    assert fingerprint(recipe, store, sources) != before


def test_a_table_in_a_bucket_has_the_images_beside_it(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    for number in range(5):
        put(s3_server, f"{prefix}/images/{number}.png", png(number))
    lines = "".join(f"images/{number}.png,{number % 2}\n" for number in range(4))
    put(s3_server, f"{prefix}/labels.csv", f"file,y\n{lines}".encode())
    url, store = f"s3://{BUCKET}/{prefix}/labels.csv", FolderStore(tmp_path / "store")
    recipe = image_recipe_at(url, "y", "file")
    assert estimate_size(recipe, sources).rows_estimate == 4
    _, manifest = ingest(recipe, Format.ARROW, store, tmp_path, lambda *_: None, remote=sources)
    rows = open_part(store, manifest, manifest.splits["rows"][0])
    assert rows["_image"].to_pylist() == [png(number) for number in range(4)]
    assert manifest.parents == (fingerprint(recipe, store, sources),)


def hub_bytes(values: range) -> bytes:
    """Return a Parquet file with images in a column."""
    images = pa.StructArray.from_arrays(
        [pa.array([png(value) for value in values], pa.binary()), pa.nulls(len(values), pa.string())],
        ["bytes", "path"],
    )
    stream = io.BytesIO()
    table = pa.table({"image": images, "label": [value % 2 for value in values]})
    pq.write_table(table, stream, row_group_size=3)
    return stream.getvalue()


def ingested_images(recipe: Recipe, sources: RemoteSources, folder: Path) -> list[bytes]:
    """Ingest a recipe after its page and its size were looked at, and return its images."""
    store = FolderStore(folder / "store")
    page = inspect_data(recipe, sources)
    assert page.images is not None and [*page.images.sizes] == ["4 x 6"]
    _, manifest = ingest(recipe, Format.PACKED, store, folder, lambda *_: None, remote=sources)
    assert page.rows == manifest.rows == estimate_size(recipe, sources).rows_estimate
    assert manifest.parents == (fingerprint(recipe, store, sources),)
    rows = [open_part(store, manifest, part)["_image"] for part in manifest.splits["rows"]]
    return [each for column in rows for each in column.to_pylist()]


def test_parquet_files_in_a_bucket_have_the_images_in_a_column(
    s3_server: S3Server, sources: CountingSources, prefix: str, tmp_path: Path
) -> None:
    put(s3_server, f"{prefix}/train-00000-of-00002.parquet", hub_bytes(range(10)))
    put(s3_server, f"{prefix}/train-00001-of-00002.parquet", hub_bytes(range(10, 20)))
    recipe = image_recipe_at(f"s3://{BUCKET}/{prefix}", "label", "image")
    assert ingested_images(recipe, sources, tmp_path) == [png(value) for value in range(20)]
    guess = guess_recipe(f"s3://{BUCKET}/{prefix}", remote=sources).recipe
    assert guess.image is not None and (guess.image.size, guess.image.column) == ((4, 6), "image")


def test_a_parquet_file_on_a_web_server_needs_no_other_files(tmp_path: Path) -> None:
    with web_files() as web:
        web.files["/train.parquet"], web.headers = hub_bytes(range(9)), {"ETag": '"first"'}
        recipe = image_recipe_at(f"{web.url}/train.parquet", "label", "image")
        found = ingested_images(recipe, ObstoreSources(), tmp_path)
        with pytest.raises(RecipeError, match="a web server does not list its files"):
            estimate_size(image_recipe_at(f"{web.url}/train.parquet", "label", "label"), ObstoreSources())
    assert found == [png(value) for value in range(9)]
