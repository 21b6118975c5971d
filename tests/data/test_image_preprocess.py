from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from data_files import ingested, preprocessed, quarantined_rows, quiet, samples_of, table_of
from image_sources import idx_files, image_folder, image_recipe, noise

from shoestring.core.datasets import IMAGE_COLUMN, StoredField
from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.loading.open_split import open_split
from shoestring.data.split_settings import SPLITS
from shoestring.data.transforms.preprocess import preprocess


@pytest.mark.parametrize("format", Format)
def test_images_are_one_field_of_the_record_and_a_batch_is_a_view_of_it(
    tmp_path: Path, format: Format
) -> None:
    pixels = noise(200)
    recipe = image_recipe(idx_files(tmp_path / "idx", pixels))
    _, manifest, store = preprocessed(recipe, tmp_path, format)
    assert manifest.row_bytes == 32 and manifest.rows == 200
    assert manifest.encoding is not None and not manifest.encoding.features
    assert manifest.encoding.fields == (
        StoredField(name="y", dtype="int32", use="target"),
        StoredField(name=IMAGE_COLUMN, dtype="uint8", shape=(1, 4, 6), use="image"),
        StoredField(name="_group", dtype="int32", use="group"),
    )
    found = {}
    for split in SPLITS:
        samples = samples_of(store, manifest, split)
        assert samples["image"].base is not None
        assert samples["image"].shape == (len(samples), 1, 4, 6) and samples["image"].dtype == np.uint8
        assert samples["image"].strides[0] == 32
        for image, target in zip(samples["image"], samples["target"], strict=True):
            found[image.tobytes()] = int(target)
    assert found == {image.tobytes(): number % 2 for number, image in enumerate(pixels)}
    part = open_split(store, manifest, "train").take(np.array([3, 1])).part(1, 2)
    assert part["image"].shape == (1, 1, 4, 6)


def test_rows_whose_image_cannot_be_decoded_are_set_aside_by_name(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(60))
    whole = (folder / "dark" / "0000.png").read_bytes()
    (folder / "dark" / "0002.png").write_bytes(whole[: len(whole) // 2])
    (folder / "bright" / "0001.png").write_bytes(b"a text")
    (folder / "bright" / "0003.png").write_bytes(b"")
    key, manifest, store = preprocessed(image_recipe(folder), tmp_path)
    assert manifest.rows == 57
    assert manifest.quarantined == {
        "rows: a damaged or truncated image": 1,
        "rows: not an image of a known format": 2,
    }
    found = {row["file"]: (row["row"], row["reason"]) for row in quarantined_rows(store, manifest)}
    assert found == {
        "bright/0001.png": (1, "not an image of a known format"),
        "bright/0003.png": (2, "not an image of a known format"),
        "dark/0002.png": (32, "a damaged or truncated image"),
    }
    raw_key = manifest.parents[0]
    again = preprocess(image_recipe(folder), raw_key, Format.ARROW, store, tmp_path / "scratch", quiet)
    assert again == (key, manifest)


def test_too_many_images_that_cannot_be_decoded_are_refused(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(20))
    for path in sorted(folder.rglob("*.png"))[:3]:
        path.write_bytes(b"a text")
    with pytest.raises(DataError, match=r"3 of 20 rows.*cannot be used(?s:.*)bright/0001.png, row 1: not an"):
        preprocessed(image_recipe(folder), tmp_path)


def test_equal_images_are_in_one_split_whatever_their_names(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(120))
    for path in sorted(folder.rglob("*.png")):
        shutil.copy(path, path.with_name(f"copy-of-{path.name}"))
    _, manifest, store = preprocessed(image_recipe(folder), tmp_path)
    by_split = [
        {row.tobytes() for row in images}
        for split in SPLITS
        if (images := samples_of(store, manifest, split).fields.get("image")) is not None
    ]
    assert manifest.rows == 240 and sum(map(len, by_split)) == 120


def test_a_table_of_paths_has_its_other_columns_as_features_and_its_groups(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(200))
    with (folder / "labels.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["file", "age", "person", "sick"])
        for number, path in enumerate(sorted(folder.rglob("*.png"))):
            lines.writerow([path.relative_to(folder), number * 1.5, number // 4, number % 2])
    recipe = image_recipe(folder / "labels.csv", "sick", "file", split={"by": ["person"]})
    _, manifest, store = preprocessed(recipe, tmp_path)
    assert manifest.encoding is not None
    assert [feature.name for feature in manifest.encoding.features] == ["age"]
    samples = samples_of(store, manifest, "train")
    assert samples["number"].shape == (len(samples), 1)
    found = [samples_of(store, manifest, split)["group"] for split in SPLITS]
    groups = [{*each.tolist()} for each in found if each is not None]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 50


def test_another_size_is_another_data_set_made_from_the_same_raw_one(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "photos", noise(60))
    small = image_recipe(folder)
    large = image_recipe(folder, source={"rows": {"path": folder, "image": {"size": [8, 12], "channels": 3}}})
    raw_key, _, store = ingested(small, tmp_path)
    assert ingested(large, tmp_path)[0] == raw_key
    _, manifest, _ = preprocessed(large, tmp_path)
    assert manifest.encoding is not None and manifest.encoding.of_use("image")[0].shape == (3, 8, 12)
    assert table_of(store, manifest, "test").num_rows
    of_small = preprocessed(small, tmp_path)[1]
    assert [len(samples_of(store, each, "test")) for each in (manifest, of_small)] == [
        manifest.splits["test"][0].rows
    ] * 2
