"""Predict rows with a trained model of any family."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoestring.core.interfaces import Store
from shoestring.data.loading.samples import SampleReader
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import open_blob
from shoestring.training.families.registry import family_of
from shoestring.training.losses.scores import calibrated
from shoestring.training.model_record import ModelRecord

Array = np.ndarray[Any, np.dtype[Any]]


def predict(store: Store, model_key: str, rows: SampleReader, device: str = "cpu") -> Array:
    """Return probabilities float64[n, classes]; for regression values float64[n], in the units of y;
    of texts the nats of each row, float64[n]. `device`: of a network. Raises CorruptObject."""
    model = read_record(store, model_key, ModelRecord)
    weights = open_blob(store, model.weights_sha256).read_bytes()
    predictor = family_of(model.settings).predictor(model.encoding, weights, device)
    found = np.concatenate([predictor.predict(samples) for samples in rows.scan(predictor.rows_at_once)])
    return calibrated(found, model.encoding, model.inverse_temperature)
