"""Gradient boosting as a fair baseline: it ends by validation, on any machine in the same way."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from encoded_datasets import Task, chances, columns, dataset

from shoestring.core.datasets import Encoding
from shoestring.data.loading.open_split import open_split
from shoestring.data.loading.samples import SampleReader
from shoestring.data.loading.selection import ValidationShare
from shoestring.data.storage.blobs import load_manifest
from shoestring.evaluation.baselines import TrainedTrees, predict_prior, predict_trees, train_trees
from shoestring.evaluation.metrics import statistics
from shoestring.evaluation.split_rows import read_targets
from shoestring.training.families.boosted.learner import BoostedLearner
from shoestring.training.families.boosted.settings import BASELINE

ROWS = {"train": 2000, "val": 500, "test": 4000}
Splits = tuple[Encoding, dict[str, SampleReader]]


def quiet(rounds: int) -> None:
    """Ignore the progress."""


@cache
def splits_of(task: Task) -> Splits:
    store, key = dataset(Path(mkdtemp()), task, ROWS)
    manifest = load_manifest(store, key)
    assert manifest.encoding is not None
    return manifest.encoding, {split: open_split(store, manifest, split) for split in ROWS}


def train(task: Task, report: Any = quiet, seed: int = 0) -> TrainedTrees:
    encoding, splits = splits_of(task)
    return train_trees(encoding, splits["train"], splits["val"], seed, 1, report)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_boosting_is_better_than_the_prior_and_not_better_than_the_truth(task: Task) -> None:
    encoding, splits = splits_of(task)
    y, chance = read_targets(splits["test"]), chances(task, columns(ROWS["test"], seed=2))
    metric = "rmse" if task == "regression" else "log_loss"
    predicted = predict_trees(encoding, train(task), splits["test"])
    boosted, nothing, truth = (
        statistics(task, y, p)[metric](np.ones(len(y)))
        for p in (predicted, predict_prior(encoding, len(y)), chance)
    )
    assert truth < boosted < nothing - 0.4 * (nothing - truth)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_boosting_ends_by_validation_with_the_rounds_that_validate_best(task: Task) -> None:
    encoding, splits = splits_of(task)
    reported = list[int]()
    trees = train(task, reported.append)
    assert trees.stop_reason == "its validation loss stopped improving"
    assert trees.rounds < trees.trained_rounds
    assert reported == [*range(1, trees.trained_rounds + 1)]
    learner, losses = BoostedLearner(encoding, BASELINE, splits["train"], 0, 1), list[float]()
    for _ in reported:
        learner.grow()
        losses.append(learner.validate(ValidationShare(splits["val"], 0), "last"))
    assert trees.rounds == 1 + int(np.argmin(losses))


def test_equal_rows_and_an_equal_seed_give_equal_weights_however_busy_the_machine_is() -> None:
    assert train("binary", lambda rounds: time.sleep(0.01), seed=3) == train("binary", seed=3)


def test_the_report_callback_can_stop_the_training() -> None:
    def enough(rounds: int) -> None:
        if rounds == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("binary", enough)
