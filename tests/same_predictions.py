"""Whether two tables hold the same predictions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ROUNDING = 1e-6
"""Sums of float32 numbers that are split among more threads, or in other batches, are rounded elsewhere."""


def check_same_predictions(found: pa.Table, expected: pa.Table) -> None:
    """Raise AssertionError unless columns and rows are the same, apart from the rounding of numbers."""
    assert found.schema == expected.schema and found.num_rows == expected.num_rows
    for name, kind in zip(found.column_names, found.schema.types, strict=True):
        if pa.types.is_floating(kind):
            numbers = [each[name].to_numpy() for each in (found, expected)]
            np.testing.assert_allclose(*numbers, rtol=ROUNDING, atol=ROUNDING, err_msg=name)
        else:
            assert found[name] == expected[name], name
