from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from data_files import ingested, quarantined_rows, recipe_of, table_of
from image_sources import idx_bytes, idx_files, image_folder, image_recipe, noise
from pydantic import ValidationError

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.types import Format
from shoestring.data.sources.files import estimate_size
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.transforms.image_field import decode_image


def path_table(folder: Path, rows: list[dict[str, object]], name: str = "labels.csv") -> Path:
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder / name


@pytest.mark.parametrize("format", Format)
def test_a_folder_of_images_is_a_table_of_their_files_whose_sub_folders_are_labels(
    tmp_path: Path, format: Format
) -> None:
    folder = image_folder(tmp_path / "photos", noise(8))
    (folder / "notes.md").write_text("no image")
    (folder / ".hidden.png").write_bytes(b"no image")
    recipe = image_recipe(folder)
    size = estimate_size(recipe)
    _, manifest, store = ingested(recipe, tmp_path, format)
    rows = table_of(store, manifest, "rows")
    assert size.rows_estimate == manifest.rows == 8
    assert rows["label"].to_pylist() == ["bright"] * 4 + ["dark"] * 4
    assert rows["path"][0].as_py() == "bright/0001.png"
    assert rows[IMAGE_COLUMN][0].as_py() == (folder / "bright" / "0001.png").read_bytes()
    assert manifest.columns == {"rows._image": "binary", "rows.label": "string", "rows.path": "string"}


def test_the_folder_that_holds_an_image_is_its_label_and_one_at_the_top_has_none(tmp_path: Path) -> None:
    image_folder(tmp_path / "photos" / "train", noise(2))
    image_folder(tmp_path / "photos", noise(1), labels=("",))
    _, manifest, store = ingested(image_recipe(tmp_path / "photos"), tmp_path)
    assert table_of(store, manifest, "rows")["label"].to_pylist() == [None, "bright", "dark"]


def test_idx_files_are_images_with_labels_and_are_decoded_to_the_same_pixels(tmp_path: Path) -> None:
    pixels = noise(12)
    idx_files(tmp_path / "idx", pixels[:8])
    idx_files(tmp_path / "idx", pixels[8:], "t10k")
    recipe = image_recipe(tmp_path / "idx")
    assert estimate_size(recipe).rows_estimate == 12
    _, manifest, store = ingested(recipe, tmp_path)
    rows = table_of(store, manifest, "rows")
    assert rows["label"].to_pylist() == [0, 1] * 6
    assert rows["path"][5].as_py() == "train-images-idx3-ubyte.gz#1"
    assert recipe.image is not None
    found = np.concatenate([decode_image(data.as_py(), recipe.image) for data in rows[IMAGE_COLUMN]])
    assert np.array_equal(found, np.concatenate([pixels[8:], pixels[:8]]))


def test_one_idx_file_can_be_named_and_its_labels_lie_beside_it(tmp_path: Path) -> None:
    idx_files(tmp_path / "idx", noise(8))
    idx_files(tmp_path / "idx", noise(4), "t10k")
    recipe = image_recipe(tmp_path / "idx" / "t10k-images-idx3-ubyte.gz")
    assert ingested(recipe, tmp_path)[1].rows == 4


def test_colour_images_in_idx_files_keep_their_channels(tmp_path: Path) -> None:
    idx_files(tmp_path, noise(2))
    values = np.random.default_rng(3).integers(0, 256, (2, 4, 6, 3), np.uint8)
    (tmp_path / "train-images-idx3-ubyte.gz").unlink()
    (tmp_path / "train-images-idx4-ubyte").write_bytes(idx_bytes(values))
    recipe = image_recipe(
        tmp_path, source={"rows": {"path": tmp_path, "image": {"size": [4, 6], "channels": 3}}}
    )
    _, manifest, store = ingested(recipe, tmp_path / "made")
    rows = table_of(store, manifest, "rows")
    assert recipe.image is not None
    found = decode_image(rows[IMAGE_COLUMN][1].as_py(), recipe.image)
    assert np.array_equal(found, values[1].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("train-images-idx3-ubyte", idx_bytes(noise(8))[:-30], "truncated.*promises 8 rows.*after row 6"),
        ("train-images-idx3-ubyte", idx_bytes(noise(8)) + b"more", "has more bytes after the 8 rows"),
        ("train-images-idx3-ubyte", b"\0\0\x0d\x03" + bytes(12), "no IDX file of whole numbers"),
        ("train-images-idx3-ubyte", idx_bytes(noise(8).reshape(8, 24)), "of shape"),
        ("train-images-idx3-ubyte", idx_bytes(noise(9)), "holds 9 images, and .* labels"),
        ("train-labels-idx1-ubyte", None, "no file of labels.*train-labels-idx1-ubyte.gz"),
    ],
)
def test_idx_files_that_do_not_fit_are_refused_with_their_name(
    tmp_path: Path, name: str, data: bytes | None, error: str
) -> None:
    folder = idx_files(tmp_path / "idx", noise(8))
    (folder / f"{name}.gz").unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises((DataError, RecipeError), match=error):
        ingested(image_recipe(folder), tmp_path)


def test_a_table_of_paths_has_the_images_beside_it_and_its_own_columns(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(30))
    files = sorted(folder.rglob("*.png"))
    rows: list[dict[str, object]] = [
        {"file": path.relative_to(folder).as_posix(), "age": number, "sick": number % 2}
        for number, path in enumerate(files)
    ]
    rows[0]["file"] = "bright/missing.png"
    rows[1]["file"] = "../photos/bright/0003.png"
    rows[2]["file"] = f"./{rows[2]['file']}"
    recipe = image_recipe(path_table(folder, rows), "sick", "file")
    assert estimate_size(recipe).rows_estimate == 30
    _, manifest, store = ingested(recipe, tmp_path)
    found = table_of(store, manifest, "rows")
    assert found["age"].to_pylist() == [*range(2, 30)]
    assert found[IMAGE_COLUMN][0].as_py() == files[2].read_bytes()
    assert manifest.quarantined == {"rows: no image of this path in the folder of the table": 2}
    assert [(row["file"], row["row"]) for row in quarantined_rows(store, manifest)] == [
        ("bright/missing.png", 1),
        ("../photos/bright/0003.png", 2),
    ]


def test_what_is_no_source_of_images_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no file or folder"):
        estimate_size(image_recipe(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match=r"is no folder of images .*or remove `image`"):
        estimate_size(image_recipe(tmp_path / "empty"))
    folder = image_folder(tmp_path / "photos", noise(4))
    table = path_table(folder, [{"file": "bright/0001.png", "y": number} for number in range(9)])
    with pytest.raises(RecipeError, match=r"image.column: path is not a column.*which has file, y"):
        estimate_size(image_recipe(table, "y"))


def test_only_the_main_table_has_images(tmp_path: Path) -> None:
    image = {"path": tmp_path, "image": {"size": [4, 6]}}
    with pytest.raises(ValidationError, match=r"`image` belongs to the main table"):
        recipe_of(tmp_path, main="a", source={"a": {"path": tmp_path}, "b": image})
    with pytest.raises(ValidationError, match=r"image.size"):
        recipe_of(tmp_path, source={"rows": {"path": tmp_path, "image": {"size": [0, 6]}}})


def test_the_fingerprint_is_that_of_the_files_and_follows_each_change(tmp_path: Path) -> None:
    folder, store = image_folder(tmp_path / "photos", noise(6)), FolderStore(tmp_path / "store")
    recipe = image_recipe(folder)
    first = fingerprint(recipe, store)
    assert fingerprint(recipe, store) == first
    moved = image_recipe(folder.rename(tmp_path / "moved"))
    assert fingerprint(moved, store) == first
    (tmp_path / "moved" / "dark" / "0000.png").rename(tmp_path / "moved" / "bright" / "0000.png")
    changed = fingerprint(moved, store)
    (tmp_path / "moved" / "bright" / "0000.png").write_bytes(b"another image")
    assert len({first, changed, fingerprint(moved, store)}) == 3


def test_a_web_server_lists_no_files_so_it_has_no_images(tmp_path: Path) -> None:
    source = {"url": "https://host/labels.csv", "image": {"size": [4, 6]}}
    with pytest.raises(RecipeError, match="does not list its files"):
        estimate_size(recipe_of(tmp_path, source={"rows": source}))
