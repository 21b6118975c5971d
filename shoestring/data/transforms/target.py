"""The target: its task, and its statistics in train; and the weights of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.metrics import Task
from shoestring.data.recipe import Target
from shoestring.data.sources.column_types import float_scalar, float_values
from shoestring.data.transforms.encode import (
    Numbers,
    RunningMoments,
    column_as_number,
    count_values,
    number_values,
)

MAX_CLASSES = 1000
MAX_INFERRED_CLASSES = 10
"""Whole numbers are inferred to be classes when there are at most this many: the ten digits are. A quantity
that comes in steps usually has more.
"""


@dataclass(frozen=True, slots=True)
class TargetStatistics:
    """The target as train has it. `prior`: the class shares; for regression the mean and the standard
    deviation."""

    task: Task
    classes: tuple[str, ...]
    prior: tuple[float, ...]


class TargetFit:
    """Gathers the statistics of the target from rows with a known target, and infers the task."""

    def __init__(self, target: Target, kind: pa.DataType) -> None:
        self._target, self._kind = target, kind
        self._counts: Counter[str] = Counter()
        self._moments = RunningMoments()
        if (target.above is not None or target.task == "regression") and not is_numeric(kind):
            raise RecipeError(
                f"the target {target.column} is of type {kind}, not a number: "
                "remove `above` and `task: regression`"
            )

    @property
    def is_number(self) -> bool:
        """Whether the target is a number, so that its value itself could be predicted."""
        return is_numeric(self._kind)

    def add(self, column: pa.ChunkedArray) -> None:
        """Add rows."""
        if self._target.above is not None:
            column = is_above(column, self._target.above)
        elif is_numeric(self._kind):
            self._moments.add(number_values(column))
        if len(self._counts) <= MAX_CLASSES:
            count_values(self._counts, column)

    @property
    def task(self) -> Task:
        """The recipe's task, or else the one that the rows so far suggest: binary for two distinct values,
        multiclass for text and few whole numbers, otherwise regression.
        """
        if self._target.task or len(self._counts) == 2:
            return self._target.task or "binary"
        few = len(self._counts) <= MAX_INFERRED_CLASSES
        if not is_numeric(self._kind) or (pa.types.is_integer(self._kind) and few):
            return "multiclass"
        return "regression"

    def statistics(self) -> TargetStatistics:
        """Return the statistics, once all rows were added. Raises what `target_statistics` raises."""
        return target_statistics(self._target, self.task, self._kind, self._counts, self._moments)


def target_statistics(
    target: Target, task: Task, kind: pa.DataType, counts: Mapping[str, float], moments: RunningMoments
) -> TargetStatistics:
    """Return the statistics of a target of type `kind`: from the rows of each class, or their weight, or from
    the moments of its numbers.

    Raises:
        DataError: the target has fewer than two distinct values, or numbers that are too large.
        RecipeError: the values do not fit the recipe's task.
    """
    name, count = target.column, len(counts)
    if task == "regression":
        count = (moments.low <= moments.high) + (moments.low < moments.high)
    if count < 2:
        raise DataError(
            f"the target {name} has {count} distinct value{'s' * (count != 1)}: there is nothing to predict"
        )
    if task == "regression":
        moments.require_bounded(name)
        return TargetStatistics(task, (), (moments.mean, moments.sd))
    if count > MAX_CLASSES or (task == "binary" and count != 2):
        found = f"more than {MAX_CLASSES}" if count > MAX_CLASSES else str(count)
        raise RecipeError(
            f"the target {name} has {found} distinct values, "
            f"which does not fit the task {task}: choose another `task`, or set `above`"
        )
    above = target.above
    classes = tuple(sorted(counts, key=float if above is None and is_numeric(kind) else str))
    total = sum(counts.values())
    prior = tuple(counts[text] / total for text in classes)
    names = classes if above is None else (f"{name} <= {above:g}", f"{name} > {above:g}")
    return TargetStatistics(task, names, prior)


def is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def read_weights(name: str, column: pa.ChunkedArray) -> Numbers:
    """Return the weights of rows: float64[rows], NaN where missing. Raises DataError for one below 0."""
    weights = float_values(column.cast(pa.float64(), safe=False).fill_null(float_scalar(math.nan)))
    wrong = weights[(weights < 0) | np.isinf(weights)]
    if len(wrong):
        raise DataError(
            f"the weight {name} is {wrong[0]:g} in a row, and below 0 or infinite in {len(wrong):,} of the "
            f"{len(weights):,} rows read: a weight is a finite number, 0 or more; mend or remove these rows"
        )
    return weights


def is_known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which rows have a target: bool[rows]."""
    return pc.is_valid(column_as_number(column) if is_numeric(column.type) else column)


def is_above(column: pa.ChunkedArray, limit: float) -> pa.ChunkedArray:
    """Return which numbers are above the limit; null where the number is."""
    return pc.greater(column_as_number(column), float_scalar(limit))
