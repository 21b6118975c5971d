"""Models of images predict images; models of texts say that they predict no rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import shoestring
from PIL import Image
from trained_models import trained_on

import shoestring as package
from shoestring.core.errors import DataError, UsageError
from shoestring.data.recipe import Recipe
from shoestring.models.data_files import open_rows
from shoestring.models.model import model_at
from shoestring.models.onnx_file import write_onnx


def image_folder(folder: Path, count: int) -> Path:
    """Write images of 4 x 6 pixels; the left half of each one in `bright` is bright."""
    pixels = np.random.default_rng(0).integers(0, 100, (count, 4, 6), np.uint8)
    pixels[1::2, :, :3] += 150
    for number, each in enumerate(pixels):
        path = folder / ("dark", "bright")[number % 2] / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(each).save(path)
    return folder


def recipe_of(folder: Path, **keys: object) -> Recipe:
    source = {"path": folder, **keys.pop("source", {})}  # type: ignore[dict-item]
    return Recipe.model_validate({"name": "mine", "source": {"rows": source}, **keys})


@pytest.mark.parametrize("family", ["table_net", "image_net"])
def test_images_are_predicted_from_a_folder_and_from_a_frame(family: str, tmp_path: Path) -> None:
    images = image_folder(tmp_path / "images", 120)
    recipe = recipe_of(
        images,
        source={"image": {"size": [4, 6], "channels": 1}},
        target={"column": "label"},
        train={"family": family, "max_epochs": 4, "hidden": [8]},
        split={"train": 0.5, "val": 0.25, "test": 0.25},
    )
    rows = pa.concat_tables([*open_rows(images, recipe.image).batches])
    made = trained_on(tmp_path, recipe, rows)
    model = package.load(tmp_path / "model")
    found = model.predict(made.sealed, keep=["path"])
    assert found["probability_bright"].to_numpy() == pytest.approx(made.predicted[:, 0], abs=1e-5)
    write_onnx(model_at(tmp_path / "model"), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (inputs,) = session.get_inputs()
    assert (inputs.name, inputs.shape) == ("image", ["rows", 1, 4, 6])
    assert session.run(["probabilities"], model.encode(made.sealed))[0] == pytest.approx(
        made.predicted, abs=1e-5
    )
    ran = shoestring(
        *("predict", tmp_path / "model", images, "--out", tmp_path / "out.csv", "--keep", "path", "--json")
    )
    assert (ran.code, ran.json["rows"]) == (0, 120)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 121
    (images / "bright" / "0001.png").write_bytes(b"no image")
    ran = shoestring("predict", tmp_path / "model", images, "--out", tmp_path / "other.csv")
    assert (ran.code, (tmp_path / "other.csv").exists()) == (1, False)
    assert "bright/0001.png is not an image of a known format, so nothing is predicted" in ran.err
    with pytest.raises(DataError, match="has no column _image: it holds the bytes of the image files"):
        model.predict(made.sealed.drop_columns(["_image"]))


def test_images_in_a_column_are_predicted_with_the_names_of_their_classes(tmp_path: Path) -> None:
    files = sorted(image_folder(tmp_path / "images", 120).rglob("*.png"))
    labels = [int(file.parent.name == "bright") for file in files]
    images = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
    features = {"label": {"_type": "ClassLabel", "names": ["dark", "bright"]}}
    table = pa.table({"image": images, "label": labels}).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    pq.write_table(table, tmp_path / "train.parquet", row_group_size=50)
    recipe = recipe_of(
        tmp_path / "train.parquet",
        source={"image": {"size": [4, 6], "channels": 1, "column": "image"}},
        target={"column": "label"},
        train={"family": "table_net", "max_epochs": 40, "hidden": [8]},
        split={"train": 0.5, "val": 0.25, "test": 0.25},
    )
    rows = pa.concat_tables([*open_rows(tmp_path / "train.parquet", recipe.image).batches])
    trained_on(tmp_path, recipe, rows)
    pq.write_table(table.select(["image"]), tmp_path / "new.parquet")
    ran = shoestring(
        *("predict", tmp_path / "model", tmp_path / "new.parquet", "--out", tmp_path / "out.csv"),
        *("--keep", "image", "--json"),
    )
    assert (ran.code, ran.json["rows"]) == (0, 120)
    found = pa.csv.read_csv(tmp_path / "out.csv")
    assert found["image"].to_pylist() == [file.name for file in files]
    names = found["prediction"].to_pylist()
    right = [file.parent.name == name for file, name in zip(files, names, strict=True)]
    assert sum(right) > 110
    pq.write_table(pa.table({"image": [{"bytes": None, "path": "none.png"}]}), tmp_path / "bad.parquet")
    ran = shoestring("predict", tmp_path / "model", tmp_path / "bad.parquet", "--out", tmp_path / "bad.csv")
    assert (ran.code, (tmp_path / "bad.csv").exists()) == (1, False)
    assert "so nothing is predicted" in ran.err and "none.png" in ran.err
    pq.write_table(table.select(["label"]), tmp_path / "other.parquet")
    ran = shoestring("predict", tmp_path / "model", tmp_path / "other.parquet", "--out", tmp_path / "bad.csv")
    assert (ran.code, (tmp_path / "bad.csv").exists()) == (1, False)
    assert "other.parquet has no column 'image' with images or their paths: it has label" in ran.err


@pytest.mark.parametrize(
    "keys", [{"family": "text_net", "hidden": [8]}, {"family": "transformer", "width": 8}]
)
def test_a_model_of_texts_has_a_folder_and_predicts_no_rows(tmp_path: Path, keys: dict[str, object]) -> None:
    for number in range(60):
        path = tmp_path / "texts" / f"{number:02}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number} of the stones went down the river into the sea number {number * number}")
    train = {"max_epochs": 1, **keys}
    recipe = recipe_of(tmp_path / "texts", source={"text": {"row_tokens": 32}}, train=train)
    trained_on(tmp_path, recipe, pa.table({}))
    assert (tmp_path / "model" / "weights" / "weights.safetensors").stat().st_size > 1000
    with pytest.raises(UsageError, match="is a model of texts, which predicts the next token"):
        package.load(tmp_path / "model")
