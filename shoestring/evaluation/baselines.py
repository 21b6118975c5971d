"""The baselines that a model is compared with: the prior, and gradient boosting.

Gradient boosting is the family `boosted` with its default settings, trained on the same encoded rows by the
family's own learner. It ends when the validation loss no longer improves, and predicts with the rounds that
have the lowest one. No clock decides, so equal rows and an equal seed give equal predictions.

All evaluations on a data set with one seed share it: the first one trains it and pays for it. It is kept as
its predictions for the test split, which are all that an evaluation needs of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from pydantic import JsonValue, ValidationError

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.datasets import Encoding, Loss
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.loading.samples import SampleReader
from shoestring.data.loading.selection import ValidationShare
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import open_blob, put_blob
from shoestring.data.storage.cache import renew
from shoestring.data.storage.import_closure import import_closure
from shoestring.evaluation.results import BaselineFit
from shoestring.evaluation.units import Floats
from shoestring.training.control.schedule import EarlyStopping
from shoestring.training.families.boosted.settings import BASELINE
from shoestring.training.losses.scores import calibrated

ReportRounds = Callable[[int], None]


def predict_prior(encoding: Encoding, rows: int, constant: float | None = None) -> Floats:
    """Return train's class shares for every row, float[rows, classes]; for regression a constant, by default
    train's mean, float[rows]."""
    if encoding.task == "regression":
        return np.full(rows, encoding.train_prior[0] if constant is None else constant)
    return np.tile(np.array(encoding.train_prior), (rows, 1))


class TrainedTrees(NamedTuple):
    """A trained forest: the weights of its best `rounds`, of the `trained_rounds` that were made."""

    weights: bytes
    rounds: int
    trained_rounds: int
    stop_reason: str


def train_trees(
    encoding: Encoding, train: SampleReader, val: SampleReader, seed: int, cores: int, report: ReportRounds
) -> TrainedTrees:
    """Train until the loss on `val` no longer improves, and keep the rounds with the lowest one.

    `report` receives the number of rounds so far, and may raise to stop the training.
    """
    from shoestring.training.families.boosted.learner import BoostedLearner

    learner = BoostedLearner(encoding, BASELINE, train, seed, cores)
    rows, stopping = ValidationShare(val, seed), EarlyStopping(BASELINE.patience)
    best_loss, best, rounds = float("inf"), 0, 0
    weights = learner.export("last")
    while not stopping.triggered and rounds < BASELINE.max_epochs:
        learner.grow()
        rounds += 1
        loss = learner.validate(rows, "last")
        stopping = stopping.update(loss)
        if loss < best_loss:
            best_loss, best, weights = loss, rounds, learner.export("last")
        report(rounds)
    reason = (
        "its validation loss stopped improving"
        if stopping.triggered
        else f"it reached the maximum of {BASELINE.max_epochs} rounds"
    )
    return TrainedTrees(weights.data, best, rounds, reason)


def predict_trees(encoding: Encoding, trees: TrainedTrees, rows: SampleReader) -> Floats:
    """Return probabilities float[n, classes]; for regression float[n]."""
    from shoestring.training.families.boosted.forest import BoostedPredictor

    predictor = BoostedPredictor(encoding, trees.weights)
    found = [predictor.predict(samples) for samples in rows.scan(predictor.rows_at_once)]
    return calibrated(np.concatenate(found), encoding, 1.0)


class StoredBaseline(StoredRecord):
    """A trained baseline: how it was trained, and its predictions for the test split.

    `key_fields` are the values that its key is the digest of.
    """

    description: str
    fit: BaselineFit
    predictions_sha256: str
    key_fields: dict[str, JsonValue]


def baseline_libraries() -> tuple[str, ...]:
    """Return the libraries that train the baseline."""
    return import_closure(__name__).libraries


def baseline_key_fields(
    dataset_key: str, loss: Loss, seed: int, libraries: Mapping[str, str]
) -> dict[str, JsonValue]:
    """Return what a baseline depends on. Neither the model nor the run is part of it.

    `libraries`: the versions of `baseline_libraries`.
    """
    code, minimised = import_closure(__name__).digest, loss.model_dump(mode="json")
    return {
        "code": code,
        "libraries": dict(libraries),
        "data": dataset_key,
        "loss": minimised,
        "seed": seed,
    }


def baseline_key(key_fields: Mapping[str, JsonValue]) -> str:
    return store_layout.baseline(digest(canonical_bytes(key_fields)))


def is_stored(store: Store, key_fields: Mapping[str, JsonValue]) -> bool:
    """Return whether a baseline is in the store. Its predictions are not read."""
    try:
        found = read_record(store, baseline_key(key_fields), StoredBaseline)
    except (NotInStore, DataError):
        return False
    return any(store.list(store_layout.blob(found.predictions_sha256)))


def find_baseline(store: Store, key_fields: Mapping[str, JsonValue]) -> tuple[StoredBaseline, Floats] | None:
    """Return a baseline and its predictions; None if it is not in the store, or damaged."""
    try:
        key = baseline_key(key_fields)
        found = read_record(store, key, StoredBaseline)
        path = open_blob(store, found.predictions_sha256)
        predictions = np.load(path, allow_pickle=False)
        return (found, predictions) if renew(store, key, record_bytes(found)) else None
    except (NotInStore, DataError, CorruptObject, ValidationError, ValueError):
        return None


def save_baseline(
    store: Store, key_fields: Mapping[str, JsonValue], description: str, fit: BaselineFit, predictions: Floats
) -> None:
    """Store a trained baseline. Raises StoreFull."""
    buffer = io.BytesIO()
    np.save(buffer, predictions, allow_pickle=False)
    record = StoredBaseline(
        description=description,
        fit=fit,
        predictions_sha256=put_blob(store, buffer.getvalue()),
        key_fields=dict(key_fields),
    )
    store.put(baseline_key(key_fields), record_bytes(record))
