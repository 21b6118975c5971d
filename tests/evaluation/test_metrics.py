"""The metrics compared with scikit-learn's, with weights, ties and missing classes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as peer

from shoestring.evaluation.metrics import ECE_BINS, Judgement, statistics

Array = np.ndarray[Any, np.dtype[Any]]


@st.composite
def predictions(draw: st.DrawFn, classes: int) -> tuple[Array, Array, Array]:
    """Return targets, probabilities rounded so that many tie, and weights of which some are 0."""
    rows, seed = draw(st.integers(8, 60)), draw(st.integers(0, 10_000))
    generator = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), generator.integers(0, classes, rows - classes)])
    p = (
        np.round(generator.dirichlet(np.full(classes, draw(st.sampled_from([0.3, 1.0, 5.0]))), rows), 1)
        + 1e-3
    )
    w = generator.integers(0, 4, rows).astype(float)
    w[:classes] += 1
    return y, p / p.sum(axis=1, keepdims=True), w


@given(predictions(2))
def test_binary_metrics_are_those_of_scikit_learn(case: tuple[Array, Array, Array]) -> None:
    y, p, w = case
    found = {name: statistic(w) for name, statistic in statistics("binary", y, p).items()}
    assert found["log_loss"] == pytest.approx(peer.log_loss(y, p, sample_weight=w))
    assert found["accuracy"] == pytest.approx(peer.accuracy_score(y, p.argmax(axis=1), sample_weight=w))
    assert found["auc"] == pytest.approx(peer.roc_auc_score(y, p[:, 1], sample_weight=w))


@given(predictions(4))
def test_multiclass_metrics_are_those_of_scikit_learn(case: tuple[Array, Array, Array]) -> None:
    y, p, w = case
    found = {name: statistic(w) for name, statistic in statistics("multiclass", y, p).items()}
    assert found["log_loss"] == pytest.approx(peer.log_loss(y, p, sample_weight=w, labels=range(4)))
    assert found["accuracy"] == pytest.approx(peer.accuracy_score(y, p.argmax(axis=1), sample_weight=w))


@given(st.integers(0, 10_000), st.integers(5, 60), st.floats(0.01, 1e6))
def test_regression_metrics_are_those_of_scikit_learn(seed: int, rows: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    y, p = scale * generator.normal(size=rows), scale * generator.normal(size=rows)
    w = generator.integers(0, 3, rows) + np.eye(1, rows)[0] + np.eye(1, rows, 1)[0]
    found = {name: statistic(w) for name, statistic in statistics("regression", y, p).items()}
    assert found["rmse"] == pytest.approx(peer.root_mean_squared_error(y, p, sample_weight=w))
    assert found["mae"] == pytest.approx(peer.mean_absolute_error(y, p, sample_weight=w))
    assert found["r2"] == pytest.approx(peer.r2_score(y, p, sample_weight=w))


@given(predictions(3))
def test_balanced_accuracy_is_that_of_scikit_learn_and_weights_the_choice_of_the_class(
    case: tuple[Array, Array, Array],
) -> None:
    y, p, w = case
    weights = (1.0, 5.0, 0.5)
    judgement = Judgement("balanced_accuracy", class_weights=weights)
    found = statistics("multiclass", y, p, judgement=judgement)
    chosen = (p * np.array(weights)).argmax(axis=1)
    expected = peer.balanced_accuracy_score(y, chosen, sample_weight=w)
    assert found["balanced_accuracy"](w) == pytest.approx(expected)
    assert found["accuracy"](w) == pytest.approx(peer.accuracy_score(y, chosen, sample_weight=w))
    both = np.stack([w, w[::-1]])
    assert found["balanced_accuracy"](both)[0] == pytest.approx(expected)
    only_first = w * (y == 0)
    assert found["balanced_accuracy"](only_first) == pytest.approx(
        (chosen[y == 0] == 0) @ w[y == 0] / w[y == 0].sum()
    )


@given(st.integers(0, 10_000), st.integers(5, 60), st.floats(0.01, 0.99))
def test_the_quantile_loss_is_that_of_scikit_learn(seed: int, rows: int, quantile: float) -> None:
    generator = np.random.default_rng(seed)
    y, p, w = generator.normal(size=rows), generator.normal(size=rows), generator.integers(1, 3, rows)
    found = statistics("regression", y, p, judgement=Judgement("quantile_loss", quantile))
    expected = peer.mean_pinball_loss(y, p, sample_weight=w, alpha=quantile)
    assert found["quantile_loss"](w.astype(float)) == pytest.approx(expected)
    assert "quantile_loss" not in statistics("regression", y, p)


@given(predictions(2), st.sampled_from(["binary", "multiclass"]))
def test_a_weight_of_2_equals_the_row_twice(case: tuple[Array, Array, Array], task: Any) -> None:
    y, p, w = case
    twice = np.repeat(np.arange(len(y)), w.astype(int))
    doubled = statistics(task, y[twice], p[twice])
    for name, statistic in statistics(task, y, p).items():
        assert statistic(w) == pytest.approx(doubled[name](np.ones(len(twice)))), name


@given(predictions(3))
def test_calibration_error_equals_its_definition(
    case: tuple[Array, Array, Array],
) -> None:
    y, p, w = case
    confidence, right, error = p.max(axis=1), p.argmax(axis=1) == y, 0.0
    for low in np.arange(ECE_BINS) / ECE_BINS:
        here = (confidence >= low) & (confidence < low + 1 / ECE_BINS)
        if w[here].sum():
            error += w[here].sum() * abs(
                np.average(confidence[here], weights=w[here]) - np.average(right[here], weights=w[here])
            )
    assert statistics("multiclass", y, p)["ece"](w) == pytest.approx(error / w.sum(), abs=1e-9)


def test_true_probabilities_are_calibrated_and_overstated_ones_are_not() -> None:
    generator = np.random.default_rng(3)
    p = generator.uniform(0.05, 0.95, 200_000)
    y = (generator.random(len(p)) < p).astype(int)
    overstated = np.where(p > 0.5, p + (1 - p) / 2, p / 2)
    w = np.ones(len(p))
    assert statistics("binary", y, np.column_stack([1 - p, p]))["ece"](w) < 0.01
    assert statistics("binary", y, np.column_stack([1 - overstated, overstated]))["ece"](w) == pytest.approx(
        0.125, abs=0.02
    )


def test_a_confident_mistake_has_a_finite_log_loss() -> None:
    found = statistics("binary", np.array([0, 1]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert found["log_loss"](np.ones(2)) == pytest.approx(-np.log(1e-7) / 2)


def test_auc_is_nan_when_only_one_class_has_weight() -> None:
    found = statistics("binary", np.array([0, 1]), np.array([[0.5, 0.5], [0.4, 0.6]]))
    assert np.isnan(found["auc"](np.array([1.0, 0.0])))
