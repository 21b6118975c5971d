"""A split of an encoded data set, as evaluation reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.data.formats.readers import EncodedRows, open_rows
from shoestring.data.storage.blobs import open_blob
from shoestring.evaluation.metrics import Floats, Targets

BATCH_ROWS = 1 << 17


def open_split(store: Store, manifest: Manifest, split: str) -> EncodedRows:
    """Raises DataError when it holds no rows."""
    parts = manifest.splits.get(split, ())
    if not sum(part.rows for part in parts):
        raise DataError(
            f"the {split} split of {manifest.name} holds no rows: give it a larger share, or choose another `seed`"
        )
    return open_rows([open_blob(store, part.sha256) for part in parts], manifest.format)


def read_column(rows: EncodedRows, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """All values of a column, in order."""
    return np.concatenate([batch[name] for batch in rows.scan(BATCH_ROWS)])


def read_target(rows: EncodedRows, encoding: Encoding, split: str) -> Targets:
    """`y` of all rows. Raises DataError when it is the same in all: then there is nothing to tell apart."""
    y = read_column(rows, "y")
    if len(found := np.unique(y)) < 2:
        only = found[0] if encoding.task == "regression" else repr(encoding.classes[int(found[0])])
        raise DataError(
            f"all {len(y)} rows of the {split} split have the target {only}: no metric can tell a good model from a bad one; "
            "give the split a larger share, or choose another `seed`"
        )
    return y


def read_features(rows: EncodedRows, encoding: Encoding) -> Floats:
    """The inputs of all rows: float64[n, features], codes as whole numbers."""
    names = [feature.name for feature in encoding.features]
    matrix = np.empty((len(rows), len(names)))
    at = 0
    for batch in rows.scan(BATCH_ROWS):
        for place, name in enumerate(names):
            matrix[at : at + len(batch), place] = batch[name]
        at += len(batch)
    return matrix
