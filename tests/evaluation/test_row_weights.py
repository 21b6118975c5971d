"""Weights of rows in an evaluation: a row of weight k counts like k equal rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from encoded_datasets import chances, columns, draw, encoding_of, trained
from small_dataset import save
from test_evaluate import evaluation_request, quiet

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.core.datasets import GROUP_COLUMN, WEIGHT_COLUMN, Encoding, Loss, RowWeight
from shoestring.data.metrics import WANTED_METRICS
from shoestring.evaluation.evaluate import BOOSTING, evaluate
from shoestring.evaluation.metrics import MAX_PAIRED_UNITS, Judgement, statistics
from shoestring.evaluation.results import EvaluationResults
from shoestring.evaluation.significance import Predictions, score_models
from shoestring.evaluation.units import make_units

Task = Literal["binary", "multiclass", "regression"]
Array = np.ndarray[Any, np.dtype[Any]]
TASKS: tuple[Task, ...] = ("binary", "multiclass", "regression")
ROWS = 400


def rows_of(task: Task) -> tuple[Array, Array, Array]:
    """Return targets, predictions with ties, and weights from 1 to 4."""
    found = columns(ROWS, 0)
    chance = np.round(chances(task, found), 1)
    if task != "regression":
        chance = (chance + 0.05) / (chance + 0.05).sum(axis=1, keepdims=True)
    return draw(task, chances(task, found), 0), chance, np.random.default_rng(1).integers(1, 5, ROWS)


def scored(task: Task, y: Array, p: Array, groups: Array, weights: Array | None, metric: Any = None) -> Any:
    units = make_units(groups, len(y), weights)
    judgement = Judgement(metric, 0.8)
    encoding = encoding_of(task, y)
    half = p + 0.1 if task == "regression" else (p + 1) / (p + 1).sum(axis=1, keepdims=True)
    models = [Predictions("model", "", p), Predictions("other", "", half)]
    return score_models(encoding, y, models, units, 0, quiet, judgement)


def numbers_of(comparison: Any) -> list[float]:
    """Return all values and ends of intervals, and those of the calibration but its numbers of rows."""
    scores = [
        score
        for model in comparison.scored_models
        for found in (model.scores, model.difference)
        for score in found.values()
    ]
    bins = [
        value
        for each in comparison.calibration
        for value in (each.predicted, each.observed, each.low, each.high)
    ]
    ends = [value for each in scores for value in (each.value, each.low, each.high)]
    return [value for value in (*ends, *bins) if value is not None]


@pytest.mark.parametrize(
    ("task", "metric"), [(task, each) for task in TASKS for each in WANTED_METRICS[task]]
)
@pytest.mark.parametrize("groups", [40, MAX_PAIRED_UNITS + 40])
def test_a_weight_of_k_is_the_row_k_times_in_every_metric_and_interval(
    task: Task, metric: Any, groups: int
) -> None:
    y, p, weights = rows_of(task)
    group = np.arange(ROWS) % groups
    again = np.repeat(np.arange(ROWS), weights)
    weighted = numbers_of(scored(task, y, p, group, weights.astype(float), metric))
    repeated = numbers_of(scored(task, y[again], p[again], group[again], None, metric))
    assert weighted == pytest.approx(repeated, rel=1e-9, abs=1e-9)
    plain = numbers_of(scored(task, y, p, group, None, metric))
    assert weighted != pytest.approx(plain, rel=1e-3)
    tenfold = numbers_of(scored(task, y, p, group, 10.0 * weights, metric))
    assert tenfold == pytest.approx(weighted, rel=1e-9, abs=1e-9)
    assert numbers_of(scored(task, y, p, group, np.ones(ROWS), metric)) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_rows_that_are_units_count_by_their_weights(task: Task) -> None:
    y, p, weights = rows_of(task)
    again = np.repeat(np.arange(ROWS), weights)
    weighted = statistics(task, y, p, make_units(None, ROWS, weights.astype(float)))
    repeated = statistics(task, y[again], p[again])
    for name, statistic in weighted.items():
        expected = repeated[name](np.ones(len(again)))
        assert float(statistic(np.ones(ROWS))) == pytest.approx(float(expected), rel=1e-9), name


def weighted_encoding(task: Task, y: Array, weights: Array) -> Encoding:
    encoding = encoding_of(task, y)
    if task == "regression":
        mean = np.average(y, weights=weights)
        prior = float(mean), float(np.sqrt(np.average((y - mean) ** 2, weights=weights)))
    else:
        prior = tuple((np.bincount(y, weights) / weights.sum()).tolist())
    weight = RowWeight(column="w", mean=float(weights.mean()))
    return encoding.model_copy(update={"train_prior": prior, "weight": weight})


def evaluation(folder: Path, task: Task, *, repeats: bool, loss: Loss) -> EvaluationResults:
    """Evaluate the true model where rows have weights of 1 to 3, or are repeated as often."""
    (folder / "scratch").mkdir(parents=True)
    store, splits, encoding = FolderStore(folder / "store"), {}, None
    for seed, (split, rows) in enumerate({"train": 1500, "val": 300, "test": 400}.items()):
        found = columns(rows, seed)
        y, weights = draw(task, chances(task, found), seed), np.random.default_rng(seed).integers(1, 4, rows)
        encoding = encoding or weighted_encoding(task, y, weights.astype(float))
        again = np.repeat(np.arange(rows), weights if repeats else 1)
        added = {} if repeats else {WEIGHT_COLUMN: weights.astype(float)}
        table = {**found, "y": y, GROUP_COLUMN: np.arange(rows, dtype=np.int32) % 50}
        splits[split] = pa.table({**{name: values[again] for name, values in table.items()}, **added})
    assert encoding is not None
    key = save(store, folder / "scratch", splits, encoding)
    trained(store, key)
    request = evaluation_request(key, lambda _, __, rows: true_of(task, rows), loss=loss)
    return evaluate(request, store, WallClock(), quiet)


def true_of(task: Task, rows: Any) -> Array:
    (found,) = rows.scan(10**6)
    names = {"where": found["code"][:, 0], "shade": found["code"][:, 1], "size": found["number"][:, 0]}
    return chances(task, names)


@pytest.mark.parametrize(
    ("task", "loss"),
    [
        ("binary", Loss()),
        ("regression", Loss()),
        ("regression", Loss(quantile=0.7)),
        ("binary", Loss(balanced=True)),
    ],
)
def test_an_evaluation_reads_the_weights_of_a_data_set_for_the_model_and_its_baselines(
    tmp_path: Path, task: Task, loss: Loss
) -> None:
    weighted = evaluation(tmp_path / "weighted", task, repeats=False, loss=loss)
    repeated = evaluation(tmp_path / "repeated", task, repeats=True, loss=loss)
    assert (weighted.weighted_by, weighted.rows, weighted.unit_count) == ("w", 400, 50)
    assert weighted.sealed_sentence.endswith(", weighted by w")
    for name, score in weighted.model.scores.items():
        other = repeated.model.scores[name]
        assert score.value == pytest.approx(other.value, rel=1e-9), name
        assert (score.low or 0) == pytest.approx(other.low or 0, rel=1e-9), name
    constant, other = weighted.baselines[0], repeated.baselines[0]
    for name, score in constant.scores.items():
        assert score.value == pytest.approx(other.scores[name].value, rel=1e-9, abs=1e-9), name
    boosted, trees = weighted.baselines[1], repeated.baselines[1]
    assert boosted.name == BOOSTING
    # A leaf needs as many rows, whatever they weigh, so the trees of repeated rows may be finer.
    assert boosted.scores[weighted.metric].value == pytest.approx(
        trees.scores[weighted.metric].value, rel=0.1
    )
