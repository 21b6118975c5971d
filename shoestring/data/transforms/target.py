"""Encode the target as the column `y`: int32 classes, or float32."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Target, Task
from shoestring.data.transforms.encode import (
    RunningMoments,
    column_as_number,
    column_as_text,
    count_values,
)

MAX_CLASSES = 1000
MAX_INFERRED_CLASSES = 10
"""Whole numbers are inferred to be classes when there are at most this many: the ten digits are. A quantity
that comes in steps usually has more.
"""


@dataclass(frozen=True, slots=True)
class TargetEncoder:
    """Encodes the target column. `prior`: the class shares of train; for regression its mean and standard
    deviation."""

    target: Target
    task: Task
    classes: tuple[str, ...]
    prior: tuple[float, ...]

    def encode(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return int32[rows] or float32[rows]; null for a missing target or a class that train does not
        contain."""
        if self.task == "regression":
            return column_as_number(column).cast(pa.float32(), safe=False)
        if self.target.above is not None:
            return pc.greater(column_as_number(column), self.target.above).cast(pa.int32())
        return pc.index_in(column_as_text(column), pa.array(self.classes))


class TargetFit:
    """Fits the target encoder on the train rows with a known target, and infers the task."""

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
        """Add train rows."""
        if self._target.above is not None:
            column = pc.greater(column_as_number(column), self._target.above)
        elif is_numeric(self._kind):
            self._moments.add(column)
        if len(self._counts) <= MAX_CLASSES:
            count_values(self._counts, column)

    def encoder(self) -> TargetEncoder:
        """Return the encoder, once all train rows were added.

        Raises:
            DataError: the target has fewer than two distinct values, or numbers that are too large.
            RecipeError: the values do not fit the recipe's task.
        """
        name, task = self._target.column, self._target.task or self._inferred()
        count = len(self._counts)
        if count < 2:
            raise DataError(
                f"the target {name} has {count} distinct value{'s' * (count != 1)}: "
                "there is nothing to predict"
            )
        if task == "regression":
            self._moments.require_bounded(name)
            return TargetEncoder(self._target, task, (), (self._moments.mean, self._moments.sd))
        if count > MAX_CLASSES or (task == "binary" and count != 2):
            found = f"more than {MAX_CLASSES}" if count > MAX_CLASSES else str(count)
            raise RecipeError(
                f"the target {name} has {found} distinct values, "
                f"which does not fit the task {task}: choose another `task`, or set `above`"
            )
        above = self._target.above
        classes = tuple(sorted(self._counts, key=float if above is None and is_numeric(self._kind) else str))
        prior = tuple(self._counts[text] / self._counts.total() for text in classes)
        names = classes if above is None else (f"{name} <= {above:g}", f"{name} > {above:g}")
        return TargetEncoder(self._target, task, names, prior)

    def _inferred(self) -> Task:
        """Return binary for two distinct values, multiclass for text and few whole numbers, otherwise
        regression."""
        if len(self._counts) == 2:
            return "binary"
        few = len(self._counts) <= MAX_INFERRED_CLASSES
        if not is_numeric(self._kind) or (pa.types.is_integer(self._kind) and few):
            return "multiclass"
        return "regression"


def is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which rows have a target: bool[rows]."""
    return pc.is_valid(column_as_number(column) if is_numeric(column.type) else column)
