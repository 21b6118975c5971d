"""Read one split of an encoded data set into arrays, for evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.data.formats.readers import EncodedRows, open_rows
from shoestring.data.storage.blobs import open_blob
from shoestring.evaluation.metrics import Targets
from shoestring.evaluation.units import Floats

BATCH_ROWS = 1 << 17


def open_split(store: Store, manifest: Manifest, split: str) -> EncodedRows:
    """Open the rows of a split. Raises DataError when it holds no rows."""
    parts = manifest.splits.get(split, ())
    if not sum(part.rows for part in parts):
        raise DataError(
            f"the {split} split of {manifest.name} holds no rows: "
            "give it a larger share, or choose another `seed`"
        )
    return open_rows([open_blob(store, part.sha256) for part in parts], manifest.format)


def read_column(rows: EncodedRows, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return all values of a column, in row order."""
    return np.concatenate([batch[name] for batch in rows.scan(BATCH_ROWS)])


def read_target(rows: EncodedRows, encoding: Encoding, split: str) -> Targets:
    """Return `y` of all rows. Raises DataError when all values are equal, since no metric is defined then."""
    y = read_column(rows, "y")
    if len(found := np.unique(y)) < 2:
        only = found[0] if encoding.task == "regression" else repr(encoding.classes[int(found[0])])
        raise DataError(
            f"all {len(y)} rows of the {split} split have the target {only}: no metric can distinguish "
            "a good model from a bad one; give the split a larger share, or choose another `seed`"
        )
    return y


def read_features(rows: EncodedRows, encoding: Encoding) -> Floats:
    """Return the inputs of all rows: float64[n, features], categorical codes as whole numbers."""
    names = [feature.name for feature in encoding.features]
    matrix = np.empty((len(rows), len(names)))
    start = 0
    for batch in rows.scan(BATCH_ROWS):
        for index, name in enumerate(names):
            matrix[start : start + len(batch), index] = batch[name]
        start += len(batch)
    return matrix
