"""The sampling units of a split, groups of correlated rows or single rows, and sums over the rows of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class SamplingUnits:
    """The sampling unit of each row: int[n], from 0 to count - 1; and what each row counts in a sum:
    float[n]; None: all count 1."""

    unit_of_row: np.ndarray[Any, np.dtype[np.int64]]
    count: int
    weights: Floats | None = None

    def weighted(self, values: Floats) -> Floats:
        """Return float[n] times the weights of the rows."""
        return values if self.weights is None else values * self.weights

    def sums(self, values: Floats) -> Floats:
        """Return the weighted sum of float[n] over the rows of each unit: float[units]."""
        found = np.bincount(self.unit_of_row, self.weighted(values), self.count)
        return found.astype(np.float64, copy=False)

    def sizes(self) -> Floats:
        """Return the weight of the rows of each unit: float[units]."""
        return np.bincount(self.unit_of_row, self.weights, self.count).astype(np.float64, copy=False)

    def in_order(self, order: np.ndarray[Any, np.dtype[np.int64]]) -> SamplingUnits:
        """Return the units of the rows in another order: int[n]."""
        weights = None if self.weights is None else self.weights[order]
        return SamplingUnits(self.unit_of_row[order], self.count, weights)


def make_units(
    groups: np.ndarray[Any, Any] | None, rows: int, weights: Floats | None = None
) -> SamplingUnits:
    """Return one unit for each distinct value of `groups`; with None, one unit for each row. `weights`: what
    each row counts, float64[rows] above 0; None: all count 1."""
    if groups is None:
        return SamplingUnits(np.arange(rows), rows, weights)
    found, unit_of_row = np.unique(groups, return_inverse=True)
    return SamplingUnits(unit_of_row, len(found), weights)
