"""The net for tables learns from pixels, that for images from patterns at any place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from image_nets import ENCODING, Array, encoding_for, image_learner, images, learned, squares, with_images
from training_bench import TrainingBench, same_weights, stop_after

from shoestring.core.datasets import IMAGE_COLUMN, Encoding, Feature, Loss
from shoestring.core.errors import StageStopped
from shoestring.data.loading.samples import Samples
from shoestring.training.contracts import Weights
from shoestring.training.families.image_net.family import ImageNetFamily
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.families.table_net.predictor import table_inputs
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.train_family import train_family
from shoestring.training.frameworks.torch_.net_learner import NetLearner


def test_the_net_for_tables_learns_from_pixels_alone() -> None:
    torch.manual_seed(0)
    samples = images(256)
    learner = NetLearner(TableNetKind(ENCODING, TableNetSettings(hidden=(16,))), samples, len(samples))
    assert learner.net.hidden[0].in_features == 24
    before = learner.loss([samples], learner.net)
    for _ in range(60):
        learner.step(learner.prepare(samples), 0.01)
    assert before > 0.69 and learner.loss([samples], learner.net) < 0.1


def test_pixels_are_scaled_to_1_in_the_order_of_the_field() -> None:
    samples = images(3)
    *_, pixels_BV = table_inputs(samples)
    assert pixels_BV.dtype == np.float32 and pixels_BV.shape == (3, 24)
    expected = samples["image"].reshape(3, 24) / 255
    assert np.allclose(pixels_BV, expected, atol=1e-6)


def test_a_pattern_is_found_at_places_where_train_did_not_have_it() -> None:
    train, unseen = squares(800, 0), squares(400, 1)
    learner = learned(train, 90)
    flat = NetLearner(TableNetKind(encoding_for(train), TableNetSettings()), train, len(train))
    for _ in range(60):
        flat.step(flat.prepare(train), 0.003)
    assert learner.loss([unseen], learner.average) < 0.3 < 0.5 < flat.loss([unseen], flat.net)


@pytest.mark.parametrize("shape", [(1, 1, 9), (1, 4, 6), (3, 33, 17), (3, 100, 130)])
@pytest.mark.parametrize("convolutions", [1, 2])
@pytest.mark.parametrize("weights", ["last", "averaged"])
def test_numpy_predicts_what_the_trained_net_does(
    shape: tuple[int, ...], convolutions: int, weights: Weights
) -> None:
    generator = np.random.default_rng(0)
    pixels, target = generator.integers(0, 100, (24, *shape), np.uint8), np.arange(24, dtype=np.int32) % 3
    pixels[::3] += 100
    codes, numbers = generator.integers(0, 5, (24, 1), np.int32), generator.normal(size=(24, 2))
    samples = with_images(pixels, target, codes, numbers.astype(np.float32))
    features = (
        Feature(name="c", kind="categorical", cardinality=5),
        *(Feature(name=name, kind="numeric") for name in "mn"),
    )
    encoding = encoding_for(
        samples, features=features, task="multiclass", classes=("a", "b", "c"), train_prior=(1 / 3,) * 3
    )
    learner = learned(samples, 10, encoding, rate=0.003, convolutions=convolutions)
    net = learner.average if weights == "averaged" else learner.net
    with torch.no_grad():
        expected = net.eval()(*learner.kind.inputs(samples)).softmax(1).numpy()
    stored, family = learner.export(weights).data, ImageNetFamily(learner.kind.settings)
    assert family.predictor(encoding, stored).predict(samples) == pytest.approx(expected, abs=1e-5)
    assert np.ptp(expected, axis=0).min() > 0.001


def test_the_average_of_the_weights_has_the_average_of_the_normalisation() -> None:
    samples = squares(400, 0)
    learner = learned(samples, 60)
    average = learner.loss([samples], learner.average)
    with torch.no_grad():
        for each in learner.average.convolutions:
            each.norm.mean.zero_()
            each.norm.variance.fill_(1)
    assert average < 0.3 < 0.5 < learner.loss([samples], learner.average)


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        ({}, [(8, 6, 6), (8, 6, 6), (16, 3, 3)]),
        ({"stride": 1}, [(8, 12, 12), (8, 12, 12), (16, 6, 6)]),
        ({"stride": 99}, [(8, 1, 1), (8, 1, 1), (16, 1, 1)]),
        ({"convolutions": 2}, [(8, 6, 6), (8, 6, 6), (8, 6, 6), (16, 3, 3), (16, 3, 3)]),
        ({"hidden": (4,)}, [(4, 6, 6), (4, 6, 6)]),
    ],
)
def test_the_settings_make_the_layers(settings: dict[str, object], shapes: list[tuple[int, ...]]) -> None:
    samples = squares(8, 0)
    learner, found = image_learner(samples, **settings), []
    for each in learner.net.convolutions:
        each.register_forward_hook(lambda _module, _inputs, out: found.append(tuple(out.shape[1:])))
    learner.step(learner.prepare(samples), 0.01)
    assert found == shapes


def test_a_large_image_is_read_in_larger_steps() -> None:
    sides = {side: ImageNetSettings().stride_for(side, side) for side in (1, 28, 64, 65, 224)}
    assert sides == {1: 1, 28: 2, 64: 2, 65: 3, 224: 7}


def test_numbers_and_categories_are_read_with_the_image() -> None:
    """The class is that of the image, unless a number and a category turn it around."""
    generator, pixels = np.random.default_rng(0), np.zeros((800, 1, 4, 6), np.uint8)
    pixels[1::2, :, :, :3] = 200
    codes, numbers = generator.integers(1, 4, (800, 1), np.int32), generator.normal(size=(800, 1))
    is_turned = (codes[:, 0] == 2) & (numbers[:, 0] > -1)
    target = (np.arange(800) % 2 ^ is_turned).astype(np.int32)
    features = (
        Feature(name="c", kind="categorical", cardinality=4),
        Feature(name="n", kind="numeric"),
    )
    rows = with_images(pixels, target, codes, numbers.astype(np.float32))
    train, unseen = rows.part(0, 600), rows.part(600, 800)
    learner = learned(train, 100, encoding_for(rows, features=features))
    alone = learned(train, 100)
    assert learner.loss([unseen], learner.net) < 0.3 < 0.5 < alone.loss([unseen], alone.net)
    before = image_learner(rows, encoding_for(rows, features=features)).net.embeddings[0].weight[0]
    assert not torch.equal(learner.net.embeddings[0].weight[0], before), "the unknown category is trained"


def stored(samples: Samples) -> Array:
    """Return samples as records that a training reads."""
    pixels, target = samples["image"].reshape(len(samples), -1), samples["target"]
    rows = np.empty(len(samples), [(IMAGE_COLUMN, "u1", pixels.shape[1:]), ("y", target.dtype)])
    rows[IMAGE_COLUMN], rows["y"] = pixels, target
    return rows


def bench_of(folder: Path, encoding: Encoding, samples: Samples, **settings: object) -> TrainingBench:
    rows = stored(samples)
    chosen = ImageNetSettings.model_validate({"hidden": (8, 16), "batch_rows": 32, **settings})
    return TrainingBench(
        folder, train=rows[:-200], validation=rows[-200:], encoding=encoding, settings=chosen
    )


def brightness(rows: int, loss: Loss) -> tuple[Encoding, Samples]:
    """Return images with a target of a long tail that their brightness moves."""
    generator = np.random.default_rng(0)
    level = generator.integers(0, 100, rows)
    pixels = (level[:, None, None, None] + generator.integers(0, 100, (rows, 1, 6, 6))).astype(np.uint8)
    target = (1000 + level + generator.exponential(20, rows)).astype(np.float32)
    samples, prior = with_images(pixels, target), (float(target.mean()), float(target.std()))
    return encoding_for(samples, task="regression", classes=(), train_prior=prior, loss=loss), samples


@pytest.mark.parametrize(("quantile", "below"), [(None, 0.63), (0.5, 0.5), (0.9, 0.9)])
def test_a_regression_learns_the_mean_or_the_quantile_in_the_unit_of_the_target(
    tmp_path: Path, quantile: float | None, below: float
) -> None:
    encoding, samples = brightness(1400, Loss(quantile=quantile))
    bench = bench_of(tmp_path, encoding, samples, max_epochs=8)
    trained = train_family(bench.task())
    found = ImageNetFamily(bench.settings).predictor(encoding, trained.weights).predict(samples)
    assert np.mean(samples["target"] <= found) == pytest.approx(below, abs=0.08)
    assert np.corrcoef(found, samples["target"])[0, 1] > 0.75
    assert trained.val_loss is not None and trained.val_loss < 25


def test_a_balanced_loss_counts_a_rare_class_like_the_other() -> None:
    samples = squares(400, 0)
    rows = np.flatnonzero((np.arange(400) % 2 == 0) | (np.arange(400) % 20 == 1))
    rare = with_images(samples["image"][rows], samples["target"][rows])
    share = float(rare["target"].mean())
    for loss, expected in (
        (Loss(balanced=True), np.log(2)),
        (Loss(), -share * np.log(share) - (1 - share) * np.log(1 - share)),
    ):
        encoding = encoding_for(rare, train_prior=(1 - share, share), loss=loss)
        learner = image_learner(rare, encoding)
        assert learner.loss([rare], learner.net) == pytest.approx(expected, abs=1e-3)


def test_a_training_that_is_stopped_at_any_step_ends_with_the_same_weights(tmp_path: Path) -> None:
    samples = squares(600, 0)
    settings = {"max_epochs": 3, "shift": 1, "flip": True, "dropout": 0.3}
    whole = bench_of(tmp_path / "whole", encoding_for(samples), samples, **settings).training().run()
    bench = bench_of(tmp_path / "stopped", encoding_for(samples), samples, **settings)
    for steps in (1, 9, 5):
        with pytest.raises(StageStopped, match="the checkpoint is written"):
            replace(bench, should_stop=stop_after(steps)).training().run()
    assert same_weights(bench.training().run().weights, whole.weights)
    other = bench_of(tmp_path / "other", encoding_for(samples), samples, **{**settings, "weight_decay": 0.9})
    assert not same_weights(other.training().run().weights, whole.weights)
