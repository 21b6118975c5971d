"""Training on rows with weights: weights of 1 change nothing, and a weight of k is the row k times."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import recfunctions
from sklearn.linear_model import Ridge
from small_dataset import CODE, NUMBER, reader
from training_bench import TINY, TrainingBench

from shoestring.core.datasets import WEIGHT_COLUMN, Encoding, Loss, RowWeight
from shoestring.data.families import FamilySettings
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.samples import Samples
from shoestring.data.loading.selection import ValidationShare
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.contracts import StepPlan
from shoestring.training.families.blend.settings import BlendSettings
from shoestring.training.families.boosted.settings import BoostedSettings
from shoestring.training.families.linear.learner import LinearLearner
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.families.registry import family_of
from shoestring.training.families.train_family import train_family
from shoestring.training.losses.combination import mean_loss
from shoestring.training.losses.fitting import fit_weights
from shoestring.training.losses.scores import sum_of_losses, total_weight, weighted_quantile
from shoestring.training.task import TrainedModel

Array = np.ndarray[Any, np.dtype[Any]]
BOOSTED = BoostedSettings(max_epochs=60, patience=60)
LINEAR = LinearSettings(max_epochs=15, patience=99)
NET = TINY.model_copy(update={"max_epochs": 20})
LOSSES = {
    "binary": Loss(),
    "balanced": Loss(balanced=True),
    "three": Loss(),
    "squares": Loss(),
    "quantile": Loss(quantile=0.7),
}


def rows_of(kind: str, seed: int = 0, rows: int = 900) -> Array:
    """Return rows whose target depends on `number`, with weights from 1 to 5 that depend on its noise."""
    rng = np.random.default_rng(seed)
    is_number = kind in ("squares", "quantile")
    found = np.zeros(rows, [("code", "i4"), ("number", "f4"), ("y", "f4" if is_number else "i4")])
    found["code"], found["number"] = rng.integers(1, 9, rows), rng.normal(size=rows)
    noise = rng.logistic(size=rows)
    raw = found["number"] + np.where(found["code"] % 2, 1.0, -1.0) + noise
    found["y"] = raw if is_number else (raw > 0).astype(int) + (raw > 1.5) * (kind == "three")
    weights = np.where(noise > 0, 4.0, 1.0) + (found["number"] > 1)
    return recfunctions.append_fields(found, WEIGHT_COLUMN, weights, usemask=False)


def repeated(rows: Array) -> Array:
    """Return each row as many times as its weight is, without weights."""
    again = rows[np.repeat(np.arange(len(rows)), rows[WEIGHT_COLUMN].astype(int))]
    return without_weight(again)


def without_weight(rows: Array) -> Array:
    return recfunctions.repack_fields(rows[["code", "number", "y"]])


def with_weights(rows: Array, weights: Array | float) -> Array:
    found = rows.copy()
    found[WEIGHT_COLUMN] = weights
    return found


def encoding_of(kind: str, rows: Array) -> Encoding:
    """Return the encoding with the statistics of train, as preprocess writes it."""
    names = rows.dtype.names or ()
    weights = rows[WEIGHT_COLUMN] if WEIGHT_COLUMN in names else np.ones(len(rows))
    y, fields = rows["y"], {"features": (CODE, NUMBER), "loss": LOSSES[kind]}
    weight = RowWeight(column="w", mean=float(weights.mean())) if WEIGHT_COLUMN in names else None
    if kind in ("squares", "quantile"):
        mean = float(np.average(y, weights=weights))
        sd = float(np.sqrt(np.average((y - mean) ** 2, weights=weights)))
        return Encoding(task="regression", train_prior=(mean, sd), weight=weight, **fields)
    prior = tuple((np.bincount(y, weights) / weights.sum()).tolist())
    task = "multiclass" if kind == "three" else "binary"
    return Encoding(
        task=task, classes=("a", "b", "c")[: len(prior)], train_prior=prior, weight=weight, **fields
    )


def bench_of(
    folder: Path, kind: str, settings: FamilySettings, change: Callable[[Array], Array]
) -> TrainingBench:
    train, validation = (change(rows_of(kind, seed)) for seed in (0, 1))
    bench = TrainingBench(folder, train, validation, settings=settings)
    bench.encoding = encoding_of(kind, train)
    return bench


def predictions(kind: str, settings: FamilySettings, model: TrainedModel, encoding: Encoding) -> Array:
    """Return what a model predicts for new rows; they have no weights."""
    samples = reader(without_weight(rows_of(kind, 2)), encoding).take(np.arange(900))
    return family_of(settings).predictor(encoding, model.weights).predict(samples)


SETTINGS = {
    "net": NET,
    "boosted": BOOSTED,
    "linear": LINEAR,
    "blend": BlendSettings(members=(LINEAR, BOOSTED)),
}


CHANGES: dict[str, Callable[[Array], Array]] = {
    "weighted": lambda rows: rows,
    "repeated": repeated,
    "plain": without_weight,
    "of 1": lambda rows: with_weights(rows, 1.0),
    "8 times": lambda rows: with_weights(rows, 8 * rows[WEIGHT_COLUMN]),
}
Trained = Callable[[str, str, str], tuple[TrainedModel, Encoding]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return a function of a family, a kind and a change of the rows; it trains each model once."""

    @cache
    def train(family: str, kind: str, change: str) -> tuple[TrainedModel, Encoding]:
        bench = bench_of(tmp_path_factory.mktemp("bench"), kind, SETTINGS[family], CHANGES[change])
        assert bench.encoding is not None
        return train_family(bench.task()), bench.encoding

    return train


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("family", ["net", "boosted", "linear", "blend"])
def test_weights_of_1_give_the_same_model_as_none(trained: Trained, family: str, kind: str) -> None:
    (ones, _), (none, _) = trained(family, kind, "of 1"), trained(family, kind, "plain")
    assert ones.weights == none.weights
    assert (ones.val_loss, ones.inverse_temperature) == (none.val_loss, none.inverse_temperature)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("family", ["net", "boosted", "linear", "blend"])
def test_a_common_factor_of_the_weights_changes_nothing(trained: Trained, family: str, kind: str) -> None:
    (once, _), (times, _) = trained(family, kind, "weighted"), trained(family, kind, "8 times")
    assert once.weights == times.weights and once.val_loss == times.val_loss


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("family", ["net", "boosted", "linear", "blend"])
def test_a_weight_of_k_trains_like_the_row_k_times(trained: Trained, family: str, kind: str) -> None:
    found, losses = {}, {}
    for name in ("weighted", "repeated", "plain"):
        model, encoding = trained(family, kind, name)
        found[name] = predictions(kind, SETTINGS[family], model, encoding)
        losses[name] = model.val_loss
    # The order of the rows, and leaves of few rows, which a repeated row fills alone, are others.
    distance, without = (
        float(np.abs(found[name] - found["repeated"]).mean()) for name in ("weighted", "plain")
    )
    assert distance < (0.8 if kind == "balanced" else 0.5) * without
    assert losses["weighted"] == pytest.approx(losses["repeated"], rel=0.05)


@pytest.mark.parametrize("kind", LOSSES)
def test_the_loss_of_validation_is_that_of_repeated_rows(tmp_path: Path, kind: str) -> None:
    rows, again = rows_of(kind), repeated(rows_of(kind))
    encoding, plain = encoding_of(kind, rows), encoding_of(kind, again)
    assert plain.train_prior == pytest.approx(encoding.train_prior)
    scores = np.random.default_rng(3).normal(size=(len(rows), 3 if kind == "three" else 1))
    times = np.repeat(np.arange(len(rows)), rows[WEIGHT_COLUMN].astype(int))
    weights = 0.3 * rows[WEIGHT_COLUMN]
    total = sum_of_losses(scores, rows["y"], encoding, weights) / total_weight(len(rows), weights)
    assert total == pytest.approx(sum_of_losses(scores[times], again["y"], plain) / len(again), rel=1e-9)
    for family in ("net", "boosted", "linear"):
        learner = family_of(SETTINGS[family]).learner(
            bench_of(tmp_path, kind, SETTINGS[family], lambda r: r).task()
        )
        weighted = learner.validate(ValidationShare(reader(rows, encoding), 0), "last")
        other = learner.validate(ValidationShare(reader(again, encoding), 0), "last")
        assert weighted == pytest.approx(other, rel=1e-5), family


@pytest.mark.parametrize("kind", LOSSES)
def test_the_weights_of_a_blend_are_fitted_to_repeated_rows(kind: str) -> None:
    rows, rng = rows_of(kind), np.random.default_rng(0)
    times = np.repeat(np.arange(len(rows)), rows[WEIGHT_COLUMN].astype(int))
    encoding, weights = encoding_of(kind, rows), rows[WEIGHT_COLUMN]
    if encoding.task == "regression":
        found = [rows["number"] + rng.normal(size=len(rows)) for _ in range(2)]
    else:
        found = [rng.dirichlet(np.ones(len(encoding.classes)), len(rows)) for _ in range(2)]
    one = fit_weights(found, rows["y"], encoding, 90, weights)
    other = fit_weights([each[times] for each in found], rows["y"][times], encoding, 90)
    assert one == pytest.approx(other, abs=1e-4)
    loss = mean_loss(found[0], rows["y"], encoding, weights)
    assert loss == pytest.approx(mean_loss(found[0][times], rows["y"][times], encoding), rel=1e-9)


def test_a_row_of_a_large_weight_does_not_make_a_linear_model_diverge() -> None:
    def heavy(rows: Array) -> Array:
        weights = np.ones(len(rows))
        weights[:5] = 5000
        return with_weights(rows, weights)

    rows = heavy(rows_of("squares"))
    encoding = encoding_of("squares", rows)
    learner = LinearLearner(encoding, LINEAR, 0, len(rows))
    with Loader(reader(rows, encoding), SampleCursor(seed=0), threads=1) as loader:
        for step in range(300):
            learner.advance(StepPlan(100, (1 - step / 300) ** 2), loader)
    samples = reader(rows, encoding).take(np.arange(len(rows)))
    found = family_of(LINEAR).predictor(encoding, learner.export("averaged").data).predict(samples)
    inputs = np.column_stack([np.eye(9)[rows["code"]], rows["number"]])
    best = Ridge(1e-3).fit(inputs, rows["y"], rows[WEIGHT_COLUMN]).predict(inputs)
    assert np.abs(found - best)[:5].mean() < 1.5


def test_a_batch_is_averaged_over_its_rows_so_that_gradients_are_unbiased() -> None:
    from shoestring.training.families.table_net.learner import TableNetKind

    rows = rows_of("binary")
    encoding = encoding_of("binary", rows)
    kind, train = TableNetKind(encoding, NET), reader(rows, encoding)
    net = kind.new(train.take(np.arange(len(rows))))

    def loss(samples: Samples) -> float:
        losses = kind.losses(net(*kind.inputs(samples)), kind.targets(samples))
        return float(losses.detach()) / kind.divisor(len(samples))

    whole = loss(train.take(np.arange(900)))
    parts = [loss(train.take(np.arange(start, start + 30))) for start in range(0, 900, 30)]
    assert np.mean(parts) == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.77])
def test_a_weighted_quantile_has_the_least_loss_of_any_constant(quantile: float) -> None:
    rows = rows_of("squares")
    y, weights = rows["y"].astype(float), rows[WEIGHT_COLUMN]
    found = weighted_quantile(y, quantile, weights)
    assert found == weighted_quantile(np.repeat(y, weights.astype(int)), quantile, None)
    encoding = encoding_of("squares", rows).model_copy(update={"loss": Loss(quantile=quantile)})
    losses = [sum_of_losses(np.full((len(y), 1), each), y, encoding, weights) for each in (found, *y)]
    assert losses[0] <= min(losses) + 1e-9
