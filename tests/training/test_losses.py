"""Every family minimises the loss of the recipe's metric, by which it is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, log_loss, mean_pinball_loss
from small_dataset import CODE, NUMBER, samples
from training_bench import TrainingBench

from shoestring.core.datasets import STANDARD_LOSS, Encoding, Loss
from shoestring.data.families import settings_of
from shoestring.training.families.registry import family_of
from shoestring.training.families.train_family import train_family
from shoestring.training.losses.combination import combine, mean_loss
from shoestring.training.losses.fitting import fit_weights
from shoestring.training.losses.scores import calibrated
from shoestring.training.task import TrainedModel

Array = np.ndarray[Any, np.dtype[Any]]
FAMILIES = ("boosted", "linear", "table_net", "blend")
BALANCED, MEDIAN, HIGH = Loss(balanced=True), Loss(quantile=0.5), Loss(quantile=0.9)


def skewed(rows: int, seed: int) -> Array:
    """Return rows whose target has a long tail above: its mean, median and high quantile differ."""
    generator = np.random.default_rng(seed)
    found = np.empty(rows, np.dtype([("code", "i4"), ("number", "f4"), ("y", "f4")]))
    found["code"], found["number"] = generator.integers(0, 9, rows), generator.normal(size=rows)
    spread = np.where(found["code"] % 2, 3.0, 1.0)
    found["y"] = 100 + 4 * found["number"] + spread * generator.exponential(2.0, rows) ** 1.5
    return found


def rare(rows: int, seed: int) -> Array:
    """Return rows of which about 8% are of the second class, and hardly one is so with more than half."""
    generator = np.random.default_rng(seed)
    found = np.empty(rows, np.dtype([("code", "i4"), ("number", "f4"), ("y", "i4")]))
    found["code"], found["number"] = generator.integers(0, 9, rows), generator.normal(size=rows)
    logit = -4 + 1.2 * found["number"] + np.where(found["code"] % 2, 1.0, -1.0)
    found["y"] = generator.random(rows) < 1 / (1 + np.exp(-logit))
    return found


def bench_of(folder: Path, family: str, loss: Loss) -> TrainingBench:
    is_rare = loss.balanced
    train, validation = ((rare if is_rare else skewed)(rows, seed) for rows, seed in ((2000, 0), (500, 1)))
    y = train["y"].astype(float)
    encoding = Encoding(
        features=(CODE, NUMBER),
        task="binary" if is_rare else "regression",
        classes=("no", "yes") if is_rare else (),
        train_prior=(1 - y.mean(), y.mean()) if is_rare else (y.mean(), y.std()),
    )
    return TrainingBench(
        folder,
        train=train,
        validation=validation,
        encoding=encoding,
        settings=settings_of({"family": family}),
    )


def predictions(bench: TrainingBench, loss: Loss, rows: Array) -> tuple[Array, TrainedModel]:
    assert bench.encoding is not None
    bench.encoding = bench.encoding.model_copy(update={"loss": loss})
    trained = train_family(bench.task())
    found = family_of(bench.settings).predictor(bench.encoding, trained.weights)
    predicted = found.predict(samples(rows, bench.encoding))
    return calibrated(predicted, bench.encoding, trained.inverse_temperature), trained


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("loss", "metric"), [(MEDIAN, "mae"), (HIGH, "quantile_loss")])
def test_a_quantile_is_learned(tmp_path: Path, family: str, loss: Loss, metric: str) -> None:
    bench, rows = bench_of(tmp_path, family, loss), skewed(4000, 2)
    ours, trained = predictions(bench, loss, rows)
    assert bench.log().metric == metric
    assert np.mean(rows["y"] <= ours) == pytest.approx(loss.quantile, abs=0.08)
    other = bench_of(tmp_path / "other", family, loss)
    squared, _ = predictions(other, STANDARD_LOSS, rows)
    assert loss.quantile is not None and trained.val_loss is not None
    judged = [mean_pinball_loss(rows["y"], each, alpha=loss.quantile) for each in (ours, squared)]
    assert judged[0] < 0.95 * judged[1]
    # The validation loss is the metric, and the prior's is that of the best constant.
    factor = 2 if metric == "mae" else 1
    assert trained.val_loss == pytest.approx(factor * judged[0], rel=0.15)
    prior = mean_pinball_loss(
        bench.train["y"], np.full(2000, np.quantile(bench.train["y"], loss.quantile)), alpha=loss.quantile
    )
    assert bench.log().starts[0].setup.prior_loss == pytest.approx(factor * prior, rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_balanced_loss_finds_the_rare_class_and_its_probabilities_are_still_those_of_the_data(
    tmp_path: Path, family: str
) -> None:
    bench, rows = bench_of(tmp_path, family, BALANCED), rare(4000, 2)
    ours, trained = predictions(bench, BALANCED, rows)
    plain, _ = predictions(bench_of(tmp_path / "other", family, BALANCED), STANDARD_LOSS, rows)
    assert bench.log().metric == "balanced_log_loss"
    assert bench.log().starts[0].setup.prior_loss == pytest.approx(np.log(2))
    assert bench.encoding is not None and trained.val_loss is not None
    by_share = ours / np.array(bench.encoding.train_prior)
    found, before = (balanced_accuracy_score(rows["y"], each.argmax(axis=1)) for each in (by_share, plain))
    assert found > before + 0.1
    assert ours[:, 1].mean() == pytest.approx(rows["y"].mean(), abs=0.02)
    assert log_loss(rows["y"], ours) < 1.15 * log_loss(rows["y"], plain)
    assert trained.val_loss < 0.95 * np.log(2)


def test_the_temperature_of_sure_predictions_is_raised_and_that_of_true_ones_stays() -> None:
    generator = np.random.default_rng(0)
    true = generator.uniform(0.02, 0.98, 5000)
    y = (generator.random(5000) < true).astype(float)
    encoding = Encoding(features=(NUMBER,), task="binary", classes=("no", "yes"), train_prior=(0.5, 0.5))
    logits = np.log(true / (1 - true))
    for factor in (1.0, 3.0):
        sure = 1 / (1 + np.exp(-factor * logits))
        predicted = np.stack([1 - sure, sure], axis=1)
        weights = fit_weights([predicted], y, encoding, len(y))
        assert weights[0] == pytest.approx(1 / factor, rel=0.08)
        mended = calibrated(predicted, encoding, float(weights[0]))
        assert mended == pytest.approx(combine(weights, [predicted], encoding))
        assert mean_loss(mended, y, encoding) == pytest.approx(log_loss(y, mended))
        assert mean_loss(mended, y, encoding) <= mean_loss(predicted, y, encoding) + 1e-6


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_a_blend_of_quantiles_is_weighted_by_their_loss(quantile: float) -> None:
    generator = np.random.default_rng(0)
    y = generator.normal(size=4000) + np.repeat([-2.0, 2.0], 2000)
    spread = np.quantile(generator.normal(size=100_000), quantile)
    good = np.repeat([-2.0, 2.0], 2000) + spread
    noise = good + generator.normal(size=4000)
    encoding = Encoding(
        features=(NUMBER,), task="regression", train_prior=(0.0, 1.0), loss=Loss(quantile=quantile)
    )
    weights = fit_weights([good, noise], y, encoding, len(y))
    assert weights[0] > 0.9 and weights[1] < 0.1
    blended = combine(weights, [good, noise], encoding)
    assert mean_pinball_loss(y, blended, alpha=quantile) < mean_pinball_loss(y, noise, alpha=quantile)
    factor = 2 if quantile == 0.5 else 1
    assert mean_loss(blended, y, encoding) == pytest.approx(
        factor * mean_pinball_loss(y, blended, alpha=quantile)
    )
