"""Read one split of an encoded data set into arrays, for evaluation."""

from __future__ import annotations

import numpy as np

from shoestring.core.datasets import WEIGHT_COLUMN, Encoding
from shoestring.core.errors import DataError
from shoestring.data.loading.samples import Array, SampleReader
from shoestring.evaluation.metrics import Targets

BATCH_ROWS = 1 << 17


def read_targets(rows: SampleReader) -> Targets:
    """Return the target of all rows, in their order."""
    return np.concatenate([batch["target"] for batch in rows.scan(BATCH_ROWS)])


def read_groups(rows: SampleReader) -> Array | None:
    """Return the group of all rows, in their order; None in a data set without groups."""
    found = [batch["group"] for batch in rows.scan(BATCH_ROWS) if "group" in batch]
    return np.concatenate(found) if found else None


def read_weights(rows: SampleReader) -> Array | None:
    """Return the weights of all rows as they are stored, float64[n]; None in a data set without weights."""
    if WEIGHT_COLUMN not in rows.fields:
        return None
    starts = range(0, len(rows), BATCH_ROWS)
    blocks = (np.arange(start, min(start + BATCH_ROWS, len(rows))) for start in starts)
    return np.concatenate([rows.read(each)[WEIGHT_COLUMN] for each in blocks])


def read_target(rows: SampleReader, encoding: Encoding, split: str) -> Targets:
    """Return the target of all rows. Raises DataError when all values are equal, since no metric is defined
    then."""
    y = read_targets(rows)
    if len(found := np.unique(y)) < 2:
        only = found[0] if encoding.task == "regression" else repr(encoding.classes[int(found[0])])
        raise DataError(
            f"all {len(y)} rows of the {split} split have the target {only}: no metric can distinguish "
            "a good model from a bad one; enlarge the split, or write another `seed` in the recipe"
        )
    return y
