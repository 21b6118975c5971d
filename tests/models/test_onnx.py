"""Files of ONNX predict encoded rows as their models do, single rows and those on a threshold included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import onnxruntime
import pytest
from commands import shoestring
from threshold_rows import threshold_rows
from trained_models import FAMILIES, trained

import shoestring as package
from shoestring.core.datasets import Encoding, Feature
from shoestring.data.loading.samples import Samples
from shoestring.models.model import model_at
from shoestring.models.onnx_file import random_samples, write_onnx
from shoestring.training.families.boosted.features import CategoryTables
from shoestring.training.families.boosted.forest import BoostedPredictor, forest_bytes
from shoestring.training.families.boosted.onnx_forest import add_forest, float32_threshold
from shoestring.training.families.onnx_graph import OnnxGraph

TARGETS: dict[str, dict[str, object]] = {
    "grade": {"column": "grade"},
    "price": {"column": "price"},
    "dear": {"column": "price", "target": {"column": "price", "above": 8500}},
    "balanced": {"column": "grade", "metric": "balanced_accuracy"},
}


def outputs(path: Path, samples: Samples) -> list[Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, {each.name: samples[each.name] for each in session.get_inputs()})
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_predicts_as_the_model(family: str, target: str, tmp_path: Path) -> None:
    made = trained(tmp_path, family, **TARGETS[target])  # type: ignore[arg-type]
    model = model_at(tmp_path / "model")
    file = write_onnx(model, tmp_path / "model.onnx")
    assert file.size_bytes == (tmp_path / "model.onnx").stat().st_size
    samples = random_samples(model.encoding, 300)
    expected, scale = model.predict_samples(samples), 1.0
    if target == "price":
        scale = made.model.encoding.train_prior[1]
    prediction, *more = outputs(tmp_path / "model.onnx", samples)
    found = more[0] if more else prediction
    assert np.abs(found - expected).max() < 1e-5 * scale
    assert np.ptp(expected, axis=0).min() > 0.01 * scale
    alone = [outputs(tmp_path / "model.onnx", samples.part(row, row + 1))[-1][0] for row in range(3)]
    assert np.abs(alone - expected[:3]).max() < 1e-5 * scale
    if more:
        columns = model.as_columns(expected)
        assert [made.model.encoding.classes[at] for at in prediction] == [
            str(each).lower() for each in columns["prediction"].to_pylist()
        ]


def test_rows_on_a_threshold_take_the_branch_that_the_forest_takes(tmp_path: Path) -> None:
    """Each threshold is tried with the nearest float32 at either side of it."""
    trained(tmp_path, "boosted", "price")
    model = model_at(tmp_path / "model")
    write_onnx(model, tmp_path / "model.onnx")
    samples = threshold_rows(model)
    assert len(samples) > 20
    found, expected = outputs(tmp_path / "model.onnx", samples)[0], model.predict_samples(samples)
    assert np.abs(found - expected).max() < 1e-5 * model.encoding.train_prior[1]


@pytest.mark.parametrize("threshold", [0.1, -0.1, 0.5, 3e38, -1e300, 1e-30])
def test_a_float32_is_at_most_a_threshold_if_it_is_at_most_the_rounded_one(threshold: float) -> None:
    rounded = float32_threshold(threshold)
    assert rounded <= threshold
    assert float(np.nextafter(np.float32(rounded), np.float32(np.inf))) > threshold


def test_numbers_around_zero_take_the_branch_that_lightgbm_takes() -> None:
    """It splits at -1e-35 and 1e-35, and reads the numbers between as 0."""
    values = np.repeat([-1.0, 0.0, 1.0], 40)[:, None]
    data = lightgbm.Dataset(values, np.repeat([10.0, 20.0, 50.0], 40))
    booster = lightgbm.train({"objective": "l2", "verbose": -1}, data, 20)
    zero = np.float32(1e-35)
    thresholds = {abs(each) for each in booster.trees_to_dataframe()["threshold"].dropna()}
    assert thresholds == {float(zero)}
    sides = [np.nextafter(each, np.float32(end)) for each in (-zero, zero) for end in (-9, 9)]
    near = np.array([-1, -zero, 0, zero, 1e-36, -1e-36, *sides, 1], np.float32)[:, None]
    encoding = Encoding(
        features=(Feature(name="x", kind="numeric"),), task="regression", train_prior=(25.0, 17.0)
    )
    graph = OnnxGraph()
    name = add_forest(graph, encoding, forest_bytes(booster.model_to_string(), CategoryTables([])))
    model = graph.model(encoding, {graph.named(name, "y"): ("float64", ())}, {})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert session.run(None, {"number": near})[0] == pytest.approx(booster.predict(near), rel=1e-6)


def test_a_code_takes_the_branch_of_the_set_that_has_it() -> None:
    draw = np.random.default_rng(0)
    codes, numbers = draw.integers(0, 12, (4000, 2), np.int32), draw.standard_normal((4000, 1), np.float32)
    effects = draw.normal(size=(2, 13))
    # An order of the codes that a node finds: it is another for numbers above 0.
    target = np.where(numbers[:, 0] > 0, effects[0, codes[:, 0]], effects[1, codes[:, 0]]) + codes[:, 1]
    features = [Feature(name=name, kind="categorical", cardinality=13) for name in "ab"]
    encoding = Encoding(
        features=(*features, Feature(name="x", kind="numeric")),
        task="regression",
        train_prior=(float(target.mean()), float(target.std())),
    )
    tables = CategoryTables.fitted(encoding, codes, target[:, None])
    samples = Samples({"code": codes, "number": numbers})
    read = tables.features(samples)
    data = lightgbm.Dataset(read, target, categorical_feature=tables.code_columns(read))
    booster = lightgbm.train({"objective": "l2", "verbose": -1}, data, 30)
    assert (booster.trees_to_dataframe()["decision_type"] == "==").sum() > 20
    stored = forest_bytes(booster.model_to_string(), tables)
    graph = OnnxGraph()
    name = add_forest(graph, encoding, stored)
    model = graph.model(encoding, {graph.named(name, "y"): ("float64", ())}, {})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    codes[:100] = 12
    found = session.run(None, {"code": codes, "number": numbers})[0]
    assert found == pytest.approx(BoostedPredictor(encoding, stored).predict(samples), abs=1e-4)


def test_raw_rows_are_encoded_for_the_graph(tmp_path: Path) -> None:
    made = trained(tmp_path, "blend")
    write_onnx(model_at(tmp_path / "model"), tmp_path / "model.onnx")
    inputs = package.load(tmp_path / "model").encode(made.sealed.to_pandas())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert {name: (each.dtype, each.shape[1:]) for name, each in inputs.items()} == {
        "code": (np.int32, (8,)),
        "number": (np.float32, (75,)),
    }
    assert session.run(["probabilities"], inputs)[0] == pytest.approx(made.predicted, abs=1e-5)


def test_the_file_says_how_its_inputs_are_computed(tmp_path: Path) -> None:
    made = trained(tmp_path, "linear")
    write_onnx(model_at(tmp_path / "model"), tmp_path / "model.onnx")
    inputs = package.load(tmp_path / "model").encode(made.sealed)
    properties = {each.key: each.value for each in onnx.load(tmp_path / "model.onnx").metadata_props}
    features = json.loads(properties["features"])
    assert json.loads(properties["classes"]) == [*made.model.encoding.classes]
    city, rows = next(each for each in features["code"] if each["column"] == "city"), made.sealed
    at = features["code"].index(city)
    assert [city["codes"].get(name, 0) for name in rows["city"].to_pylist()] == inputs["code"][:, at].tolist()
    size = next(each for each in features["number"] if each["column"] == "size" and not each["marks_missing"])
    values = np.array([np.nan if each is None else each for each in rows["size"].to_pylist()])
    computed = np.nan_to_num((values - size["mean"]) / size["sd"])
    assert inputs["number"][:, features["number"].index(size)] == pytest.approx(computed, abs=1e-5)


def test_the_command_writes_the_file_and_says_what_it_measured(tmp_path: Path) -> None:
    trained(tmp_path, "table_net")
    ran = shoestring("export", "onnx", tmp_path / "model", "--out", tmp_path / "new" / "net.onnx", "--json")
    found = json.loads(ran.out)
    assert found["size_bytes"] == (tmp_path / "new" / "net.onnx").stat().st_size
    assert found["largest_difference"] < 1e-5
    assert found["row_ms"] > 0 < found["rows_us"]
    ran = shoestring("export", "onnx", tmp_path / "model", "--out", tmp_path / "new" / "net.onnx")
    assert "for a row alone" in ran.out


WITHOUT_ONNX = """
import sys

class NoOnnx:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "onnxruntime":
            raise ModuleNotFoundError("there is no onnxruntime", name="onnxruntime")

sys.meta_path.insert(0, NoOnnx())
from shoestring.cli import main
sys.argv[1:] = ["export", "onnx", sys.argv[1], "--out", sys.argv[2]]
main()
"""


def test_without_the_library_a_sentence_names_the_extra(tmp_path: Path) -> None:
    trained(tmp_path, "linear")
    command = [sys.executable, "-c", WITHOUT_ONNX, str(tmp_path / "model"), str(tmp_path / "x.onnx")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "needs onnxruntime: pip install 'shoestring[onnx]'" in ran.stderr
    assert not (tmp_path / "x.onnx").exists()
