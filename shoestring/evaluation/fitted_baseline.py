"""Fitted baselines in the store, which all evaluations on one data set share.

The run that fits one pays for it. A baseline is kept as its predictions for the test split, which are all
that an evaluation needs of it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from pydantic import JsonValue, ValidationError

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import open_blob, put_blob
from shoestring.data.storage.cache import renew
from shoestring.evaluation.results import BaselineFit
from shoestring.evaluation.units import Floats

FITTING_MODULE = "shoestring.evaluation.baselines"
"""The module whose import closure is the code of a baseline."""


class FittedBaseline(StoredRecord):
    """A fitted baseline: how it was fitted, and its predictions for the test split.

    `key_fields` are the values that its key is the digest of.
    """

    description: str
    fit: BaselineFit
    predictions_sha256: str
    key_fields: dict[str, JsonValue]


def baseline_key_fields(
    dataset_key: str, seed: int, code: str, libraries: Mapping[str, str]
) -> dict[str, JsonValue]:
    """Return what a baseline depends on. Neither the model nor the run is part of it."""
    return {"code": code, "libraries": dict(libraries), "data": dataset_key, "seed": seed}


def baseline_key(key_fields: Mapping[str, JsonValue]) -> str:
    return store_layout.baseline(digest(canonical_bytes(key_fields)))


def is_fitted(store: Store, key_fields: Mapping[str, JsonValue]) -> bool:
    """Return whether a baseline is in the store. Its predictions are not read."""
    try:
        found = read_record(store, baseline_key(key_fields), FittedBaseline)
    except (NotInStore, DataError):
        return False
    return any(store.list(store_layout.blob(found.predictions_sha256)))


def find_baseline(store: Store, key_fields: Mapping[str, JsonValue]) -> tuple[FittedBaseline, Floats] | None:
    """Return a fitted baseline and its predictions; None if it is not in the store, or damaged."""
    try:
        key = baseline_key(key_fields)
        found = read_record(store, key, FittedBaseline)
        path = open_blob(store, found.predictions_sha256)
        predictions = np.load(path, allow_pickle=False)
        return (found, predictions) if renew(store, key, record_bytes(found)) else None
    except (NotInStore, DataError, CorruptObject, ValidationError, ValueError):
        return None


def save_baseline(
    store: Store, key_fields: Mapping[str, JsonValue], description: str, fit: BaselineFit, predictions: Floats
) -> None:
    """Store a fitted baseline. Raises StoreFull."""
    buffer = io.BytesIO()
    np.save(buffer, predictions, allow_pickle=False)
    record = FittedBaseline(
        description=description,
        fit=fit,
        predictions_sha256=put_blob(store, buffer.getvalue()),
        key_fields=dict(key_fields),
    )
    store.put(baseline_key(key_fields), record_bytes(record))
