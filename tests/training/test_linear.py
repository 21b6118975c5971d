"""Linear models reach the loss of scikit-learn's solvers, resume to the same weights, and bear outliers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeCV
from small_dataset import CODE, NUMBER, encoding_of, reader, samples, table
from training_bench import TrainingBench

from shoestring.core.datasets import Encoding
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.selection import ValidationShare
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.contracts import StepPlan
from shoestring.training.families.linear.learner import LinearLearner
from shoestring.training.families.linear.predictor import LinearPredictor
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.replay import replay_differences

Array = np.ndarray[Any, np.dtype[Any]]
SETTINGS = LinearSettings()


def with_target(y_of: Any, rows: int = 1200) -> Array:
    found = np.empty(rows, np.dtype([("code", "i4"), ("number", "f4"), ("y", "f4")]))
    rng = np.random.default_rng(0)
    found["code"], found["number"] = rng.integers(1, 9, rows), rng.normal(size=rows)
    found["y"] = y_of(found, rng)
    return found


def values() -> tuple[Array, Encoding]:
    rows = with_target(
        lambda found, rng: 100 + 20 * (found["code"] % 3) + 5 * found["number"] + rng.normal(size=len(found))
    )
    prior = float(rows["y"].mean()), float(rows["y"].std())
    return rows, Encoding(features=(CODE, NUMBER), task="regression", train_prior=prior)


def three_classes() -> tuple[Array, Encoding]:
    def drawn(found: Array, rng: Any) -> Array:
        scores = np.stack([0 * found["number"], 1.5 * found["number"], np.cos(found["code"])], axis=1)
        return np.asarray((scores + rng.gumbel(size=scores.shape)).argmax(axis=1))

    rows = with_target(drawn).astype([("code", "i4"), ("number", "f4"), ("y", "i4")])
    prior = tuple((np.bincount(rows["y"], minlength=3) / len(rows)).tolist())
    names = ("a", "b", "c")
    return rows, Encoding(features=(CODE, NUMBER), task="multiclass", classes=names, train_prior=prior)


def two_classes() -> tuple[Array, Encoding]:
    rows = table(1200, 0)
    rows["code"] = np.maximum(rows["code"], 1)
    return rows, encoding_of(rows)


TASKS = {"binary": two_classes(), "three": three_classes(), "regression": values()}


def learner_of(rows: Array, encoding: Encoding, settings: LinearSettings = SETTINGS) -> LinearLearner:
    return LinearLearner(encoding, settings, 0, len(rows))


def train(learner: LinearLearner, rows: Array, encoding: Encoding, steps: int, first: int = 0) -> None:
    """Make `steps` steps of 100 rows; `first`: those made before."""
    cursor = SampleCursor(seed=0)
    with Loader(reader(rows, encoding), cursor, threads=1) as loader:
        for _ in range(first):
            loader.next_batch(100)
        for step in range(first, first + steps):
            learner.advance(StepPlan(100, 1 - step / 100), loader)


def one_hot(rows: Array) -> Array:
    return np.column_stack([np.eye(9)[rows["code"]], rows["number"]])


@pytest.mark.parametrize("task", TASKS)
def test_before_the_first_step_it_predicts_the_prior(task: str) -> None:
    rows, encoding = TASKS[task]
    found = LinearPredictor(encoding, learner_of(rows, encoding).export("last").data)
    expected = encoding.train_prior[0] if encoding.task == "regression" else encoding.train_prior
    predicted = found.predict(samples(rows[:5], encoding))
    assert predicted == pytest.approx(np.tile(np.atleast_1d(expected), (5, 1)).squeeze(), abs=1e-5)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("at", [[0], [1], [7, 8], [3, 11, 20]])
def test_a_model_that_is_written_and_read_learns_the_same(task: str, at: list[int]) -> None:
    rows, encoding = TASKS[task]
    whole = learner_of(rows, encoding)
    train(whole, rows, encoding, 30)
    resumed, made = learner_of(rows, encoding), 0
    for steps in at:
        train(resumed, rows, encoding, steps - made, made)
        state, made = resumed.state(), steps
        resumed = learner_of(rows, encoding)
        resumed.restore(state)
    train(resumed, rows, encoding, 30 - made, made)
    assert resumed.state().data == whole.state().data
    for weights in ("last", "averaged"):
        assert resumed.export(weights).data == whole.export(weights).data


def trained(folder: Path, rows: Array, encoding: Encoding) -> tuple[TrainingBench, Any]:
    bench = TrainingBench(
        folder, train=rows[:800], validation=rows[800:], settings=SETTINGS, encoding=encoding
    )
    return bench, bench.training().run()


@pytest.mark.parametrize("task", TASKS)
def test_it_is_as_good_as_a_solver_on_the_same_inputs(tmp_path: Path, task: str) -> None:
    rows, encoding = TASKS[task]
    bench, found = trained(tmp_path, rows, encoding)
    x, y = one_hot(rows), rows["y"]
    if encoding.task == "regression":
        solver = RidgeCV(np.logspace(-3, 3, 13)).fit(x[:800], y[:800])
        theirs = float(np.sqrt(np.mean((solver.predict(x[800:]) - y[800:]) ** 2)))
    else:
        p = LogisticRegression(max_iter=2000).fit(x[:800], y[:800]).predict_proba(x[800:])
        theirs = float(-np.log(p[np.arange(400), y[800:]]).mean())
    assert found.val_loss < 1.03 * theirs
    assert list(replay_differences(bench.log())) == []
    held = samples(rows[800:], encoding)
    predicted = LinearPredictor(encoding, found.weights).predict(held)
    if encoding.task == "regression":
        assert math.sqrt(((predicted - y[800:]) ** 2).mean()) == pytest.approx(found.val_loss)
    else:
        assert predicted.sum(axis=1) == pytest.approx(1)
        assert -np.log(predicted[np.arange(400), y[800:]]).mean() == pytest.approx(found.val_loss)


def test_an_unknown_category_gets_a_prediction_between_the_known_ones(tmp_path: Path) -> None:
    rows, encoding = TASKS["regression"]
    _, found = trained(tmp_path, rows, encoding)
    asked = np.zeros(9, rows.dtype)
    asked["code"] = np.arange(9)
    unknown, *known = LinearPredictor(encoding, found.weights).predict(samples(asked, encoding))
    assert min(known) + 5 < unknown < max(known) - 5


def test_one_outlier_does_not_outweigh_all_rows(tmp_path: Path) -> None:
    rows, encoding = values()
    rows["number"][:8] = [1e6, -1e6, 3e5, 1e7, -1e7, 1e8, 1e4, -1e5]
    _, found = trained(tmp_path, rows, encoding)
    assert found.val_loss < 2


def test_a_stored_average_has_the_loss_that_was_validated() -> None:
    rows, encoding = TASKS["three"]
    learner, held = learner_of(rows, encoding), ValidationShare(reader(rows, encoding), 0)
    train(learner, rows, encoding, 20)
    for weights in ("last", "averaged"):
        validated = learner.validate(held, weights)
        assert learner.validate(held, learner.export(weights).data) == pytest.approx(validated, rel=1e-12)
    assert learner.validate(held, "last") < math.log(3)
