"""The sampling units of a split, groups of correlated rows or single rows, and sums over the rows of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class SamplingUnits:
    """The sampling unit of each row: int[n], from 0 to count - 1."""

    unit_of_row: np.ndarray[Any, np.dtype[np.int64]]
    count: int

    def sums(self, values: Floats) -> Floats:
        """Return the sum of float[n] over the rows of each unit: float[units]."""
        return np.bincount(self.unit_of_row, values, self.count).astype(np.float64, copy=False)

    def sizes(self) -> Floats:
        """Return the number of rows of each unit: float[units]."""
        return np.bincount(self.unit_of_row, minlength=self.count).astype(np.float64)


def make_units(groups: np.ndarray[Any, Any] | None, rows: int) -> SamplingUnits:
    """Return one unit for each distinct value of `groups`; with None, one unit for each row."""
    if groups is None:
        return SamplingUnits(np.arange(rows), rows)
    found, unit_of_row = np.unique(groups, return_inverse=True)
    return SamplingUnits(unit_of_row, len(found))
