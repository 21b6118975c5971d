"""Images in a column of a table, as the Hugging Face Hub has them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_files import ingested, preprocessed, quarantined_rows, recipe_of, samples_of, table_of
from image_sources import encoded, hub_file, image_folder, image_recipe, noise

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.guess import guess_recipe
from shoestring.data.inspect.page import inspect_data
from shoestring.data.inspect.recipe_text import recipe_text
from shoestring.data.recipe_files import read_recipe
from shoestring.data.sources.files import estimate_size, list_data_files
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.sources.open_table import open_source
from shoestring.data.sources.quarantine import Quarantine
from shoestring.reporting.data_text import plain_lines


def pngs(count: int, seed: int = 0) -> list[bytes]:
    return [encoded(each) for each in noise(count, seed)]


def test_the_files_of_a_folder_have_their_images_in_a_column_and_labels_by_name(tmp_path: Path) -> None:
    data, images = tmp_path / "data", pngs(12)
    hub_file(data / "train-00000-of-00002.parquet", images[:5], paths=["a.png", None, "c.png", None, None])
    hub_file(data / "train-00001-of-00002.parquet", images[5:], labels=[1, -1, 0, 1, 0, 1, 0])
    recipe = image_recipe(data, column="image")
    assert estimate_size(recipe).rows_estimate == 12
    _, manifest, store = ingested(recipe, tmp_path)
    rows = table_of(store, manifest, "rows")
    assert rows[IMAGE_COLUMN].to_pylist() == images
    dark, bright = "dark", "bright"
    assert rows["label"].to_pylist() == [dark, bright] * 2 + [dark, bright, None] + [dark, bright] * 2 + [
        dark
    ]
    first, second = "train-00000-of-00002.parquet", "train-00001-of-00002.parquet"
    assert rows["image"].to_pylist()[:6] == [
        "a.png",
        f"{first}#1",
        "c.png",
        f"{first}#3",
        f"{first}#4",
        f"{second}#0",
    ]
    assert manifest.columns == {"rows.label": "string", "rows.image": "string", "rows._image": "binary"}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(
    "kind",
    [None, pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())],
    ids=str,
)
def test_the_type_of_the_column_decides_and_all_types_of_bytes_are_read(
    tmp_path: Path, suffix: str, kind: pa.DataType | None
) -> None:
    images = pngs(9)
    path = hub_file(tmp_path / f"rows{suffix}", images, kind=kind, row_group=4)
    _, manifest, store = ingested(image_recipe(path, column="image"), tmp_path)
    assert table_of(store, manifest, "rows")[IMAGE_COLUMN].to_pylist() == images


def test_an_image_without_bytes_is_the_file_at_its_path_or_is_set_aside(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(4))
    images, paths = pngs(30, seed=5), [f"{row}.png" for row in range(30)]
    given: list[bytes | None] = [None, None, b"", *images[3:]]
    path = hub_file(folder / "rows.parquet", given, paths=["bright/0001.png", "no.png", None, *paths[3:]])
    recipe = image_recipe(path, column="image")
    _, manifest, store = ingested(recipe, tmp_path)
    rows = table_of(store, manifest, "rows")
    assert rows["image"].to_pylist() == ["bright/0001.png", *paths[3:]]
    assert rows[IMAGE_COLUMN][0].as_py() == (folder / "bright" / "0001.png").read_bytes()
    assert manifest.quarantined == {"rows: no bytes, and no image of this path in the folder of the table": 2}
    assert [(row["file"], row["row"]) for row in quarantined_rows(store, manifest)] == [
        ("no.png", 2),
        ("rows.parquet#2", 3),
    ]


def test_an_image_that_cannot_be_decoded_is_set_aside_by_its_name(tmp_path: Path) -> None:
    path = hub_file(tmp_path / "rows.parquet", [*pngs(19), b"a text"])
    _, manifest, store = preprocessed(image_recipe(path, column="image"), tmp_path)
    assert manifest.rows == 19
    assert [row["file"] for row in quarantined_rows(store, manifest)] == ["rows.parquet#19"]


def test_equal_bytes_are_in_one_split_and_other_columns_are_features(tmp_path: Path) -> None:
    images = pngs(100)
    age = pa.array([*range(100)] * 3)
    path = hub_file(tmp_path / "rows.parquet", images * 3, labels=[0, 1] * 150, age=age)
    recipe = image_recipe(path, column="image", split={"train": 0.5, "val": 0.25, "test": 0.25})
    _, manifest, store = preprocessed(recipe, tmp_path)
    found = [samples_of(store, manifest, split) for split in ("train", "val", "test")]
    assert sum(map(len, found)) == 300 and min(map(len, found)) > 0
    pixels = [{each.tobytes() for each in samples["image"]} for samples in found]
    assert sum(map(len, pixels)) == len(set.union(*pixels)) == 100
    assert [feature.name for feature in manifest.encoding.features] == ["age"]  # type: ignore[union-attr]


def test_a_batch_is_bounded_and_what_was_read_before_is_not_kept(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = hub_file(tmp_path / "rows.parquet", [random.bytes(1 << 18) for _ in range(512)], row_group=64)
    source = image_recipe(path, column="image").source["rows"]
    table, before, kept = open_source(source, list_data_files(source)), pa.total_allocated_bytes(), 0
    for batch in table.batches(Quarantine("rows", io.StringIO())):
        assert batch.nbytes < 20 << 20
        kept = max(kept, pa.total_allocated_bytes() - before)
    assert kept < 80 << 20


def test_the_page_shows_sizes_and_without_image_names_the_column_and_the_key(tmp_path: Path) -> None:
    path = hub_file(tmp_path / "rows.parquet", [*pngs(59), b"a text"], age=pa.array(range(60)), row_group=7)
    page = inspect_data(image_recipe(path, column="image"))
    assert (page.rows, page.refusal) == (60, "")
    assert page.images is not None and page.images.looked_at == 32
    assert page.images.sizes == {"4 x 6": 32 - sum(page.images.unusable.values())}
    assert {each.name: each.use for each in page.columns} == {
        "label": "target",
        "age": "numeric",
        "image": "not used",
    }
    advice = "if it holds images, add `image: {column: image, size: [HEIGHT, WIDTH]}` to the source"
    plain = inspect_data(recipe_of(path, target={"column": "label"}))
    assert not plain.refusal and advice in "\n".join(plain_lines(plain))
    alone = hub_file(tmp_path / "alone.parquet", pngs(60))
    assert advice in inspect_data(recipe_of(alone, target={"column": "label"})).refusal


def test_a_column_that_is_not_of_images_is_refused_with_those_that_are(tmp_path: Path) -> None:
    lists = pa.array([[1]] * 9)
    path = hub_file(tmp_path / "rows.parquet", pngs(9), boxes=lists)
    with pytest.raises(RecipeError, match=r"image.column: path is not a column.*which has label, image$"):
        estimate_size(image_recipe(path))
    for read in (estimate_size, inspect_data, lambda recipe: ingested(recipe, tmp_path)):
        with pytest.raises(RecipeError, match=r"image.column: the column boxes is of type list"):
            read(image_recipe(path, column="boxes"))
    hub_file(tmp_path / "data" / "a.parquet", pngs(9))
    (tmp_path / "data" / "b.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"b.parquet is empty"):
        estimate_size(image_recipe(tmp_path / "data", column="image"))


def test_init_finds_the_images_their_size_and_channels(tmp_path: Path) -> None:
    # A picture beside the tables, as the page of a data set on the Hub has, is no image of the data.
    image_folder(tmp_path / "digits" / "assets", noise(1))
    data = tmp_path / "digits" / "data" / "train.parquet"
    hub_file(data, pngs(60), thumb=pa.array([b"sound"] * 60))
    text = recipe_text(guess_recipe(str(tmp_path / "digits")), tmp_path)
    (tmp_path / "made.yaml").write_text(text)
    recipe = read_recipe(tmp_path / "made.yaml")
    assert "image: {size: [4, 6], channels: 1, column: image}  # guess: of 32 looked at: 4 x 6 (32)" in text
    assert recipe.target.column == "label"
    assert inspect_data(recipe).rows == 60


def test_init_shrinks_the_median_of_different_sizes_and_keeps_colours(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    images = [
        encoded(random.integers(0, 256, (100 + row, 200 + row, 3), np.uint8), "JPEG") for row in range(60)
    ]
    path = hub_file(tmp_path / "photos.parquet", images, kind=pa.binary())
    recipe = guess_recipe(str(path)).recipe
    assert recipe.image is not None
    assert (recipe.image.column, recipe.image.channels) == ("image", 3)
    height, width = recipe.image.size
    assert width == 64 and height == pytest.approx(64 * 115 / 215, abs=2)
    assert preprocessed(recipe, tmp_path)[1].rows == 60


def test_bytes_that_are_no_images_are_no_recipe_of_images(tmp_path: Path) -> None:
    path = hub_file(tmp_path / "rows.parquet", [b"sound"] * 60, age=pa.array(range(60)))
    assert guess_recipe(str(path)).recipe.image is None


def test_names_of_classes_hold_only_where_each_file_has_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    hub_file(data / "a.parquet", pngs(9))
    hub_file(data / "b.parquet", pngs(9, seed=1), metadata={"huggingface": "no JSON"})
    _, manifest, store = ingested(image_recipe(data, column="image"), tmp_path)
    assert table_of(store, manifest, "rows")["label"].to_pylist() == [0, 1, 0, 1, 0, 1, 0, 1, 0] * 2


def test_a_changed_image_changes_the_fingerprint(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    recipe = image_recipe(hub_file(tmp_path / "data" / "rows.parquet", pngs(9)), column="image")
    first = fingerprint(recipe, store)
    hub_file(tmp_path / "data" / "rows.parquet", pngs(9, seed=1))
    assert fingerprint(recipe, store) != first
