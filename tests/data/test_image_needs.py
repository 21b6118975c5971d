"""The needs of a recipe with images grow with the files, and with the size that is stored."""

from __future__ import annotations

from pathlib import Path

from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.stages import ingest, predict, preprocess, train
from shoestring.training.families.recipe_needs import RecipeNeeds


def image_recipe(folder: Path, size: int) -> Recipe:
    image = {"size": [size, size], "channels": 3}
    source = {"t": {"path": folder, "image": image}}
    return Recipe.model_validate(
        {"name": "a", "source": source, "target": {"column": "label"}, "train": {"family": "table_net"}}
    )


def needs(folder: Path, size: int, file_bytes: int) -> tuple[Need, Need, Need]:
    recipe = image_recipe(folder, size)
    found = [
        RecipeNeeds(recipe, row_bytes=file_bytes).of_stage(each.NEED) for each in (ingest, preprocess, train)
    ]
    return found[0], found[1], found[2]


def test_the_needs_of_images_count_the_bytes_that_are_read_decoded_and_stored(tmp_path: Path) -> None:
    read, decoded, trained = needs(tmp_path, 64, 10_000)
    assert read.cpu_us_per_row > 20 * ingest.NEED.cpu_us_per_row
    assert 500 < decoded.cpu_us_per_row < 2000
    assert 10_000 < read.writes_bytes_per_row < 11_000
    assert 3 * 64 * 64 < decoded.writes_bytes_per_row < 3 * 64 * 64 + 500
    assert trained.cpu_us_per_row > 5 * train.NEED.cpu_us_per_row
    larger_read, larger_decoded, larger_trained = needs(tmp_path, 128, 10_000)
    assert larger_read == read
    assert 3 * trained.cpu_us_per_row < larger_trained.cpu_us_per_row < 4 * trained.cpu_us_per_row
    assert larger_decoded.writes_bytes_per_row - decoded.writes_bytes_per_row == 3 * (128**2 - 64**2)
    assert needs(tmp_path, 64, 100_000)[1].cpu_us_per_row > 5 * decoded.cpu_us_per_row


def test_a_prediction_of_images_decodes_them(tmp_path: Path) -> None:
    _, decoded, _ = needs(tmp_path, 64, 10_000)
    predicted = RecipeNeeds(image_recipe(tmp_path, 64), row_bytes=10_000).of_stage(predict.NEED)
    assert predicted.cpu_us_per_row == decoded.cpu_us_per_row + predict.NEED.cpu_us_per_row
