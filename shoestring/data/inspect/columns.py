"""The columns and the target of a sample as arrays of numpy, for the checks of the data page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.data.metrics import Task
from shoestring.data.recipe import Recipe, Target
from shoestring.data.sources.column_types import float_scalar, float_values
from shoestring.data.transforms.encode import column_as_number, number_values
from shoestring.data.transforms.target import TargetFit, is_known, is_numeric

Codes = np.ndarray[Any, np.dtype[np.int64]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class SampleColumn:
    """One column of a sample.

    `codes`: the index of each value in `values`, and -1 where it is missing. `numbers`: float64[rows] of
    numbers and dates (in microseconds), NaN where missing; None for text and booleans.
    """

    name: str
    kind: pa.DataType
    codes: Codes
    values: pa.Array
    numbers: Numbers | None

    @property
    def filled(self) -> Flags:
        return self.codes >= 0

    @property
    def is_date(self) -> bool:
        return bool(pa.types.is_timestamp(self.kind) or pa.types.is_date(self.kind))

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(self.kind))


def sample_column(name: str, column: pa.ChunkedArray) -> SampleColumn:
    """Return a column of a sample. Numbers that are not finite count as missing."""
    kind, numbers = column.type, None
    if is_numeric(kind) or pa.types.is_temporal(kind):
        parsed = column_as_number(column)
        numbers = float_values(parsed.fill_null(float_scalar(np.nan)))
        column = column.filter(parsed.is_valid()) if is_numeric(kind) else column
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    indices = np.from_dlpack(encoded.indices).astype(np.int64)
    if len(encoded.dictionary) and encoded.dictionary.null_count:
        missing = encoded.dictionary.is_null().cast(pa.int8())
        missing_code = int(np.from_dlpack(missing).argmax())
        indices = np.where(indices == missing_code, -1, indices - (indices > missing_code))
    codes = indices
    if numbers is not None and is_numeric(kind):
        codes = np.full(len(numbers), -1, np.int64)
        codes[~np.isnan(numbers)] = indices
    return SampleColumn(name, kind, codes, encoded.dictionary.drop_null(), numbers)


@dataclass(frozen=True, slots=True)
class SampleTarget:
    """The target of a sample: int64[rows] classes, and float64[rows] numbers if a number is predicted.

    `known`: which rows have a target. `classes` are the names of the codes.
    """

    name: str
    task: Task
    classes: tuple[str, ...]
    codes: Codes
    numbers: Numbers | None
    known: Flags


def sample_target(target: Target, column: pa.ChunkedArray) -> SampleTarget:
    """Return the target of a sample, with the task that preprocess would infer from it.

    Raises:
        RecipeError: the target is no number, and the recipe's task needs one.
    """
    fit = TargetFit(target, column.type)
    fit.add(column.filter(is_known(column)))
    found = sample_column(target.column, column)
    if target.above is not None and found.numbers is not None:
        codes = np.where(found.filled, found.numbers > target.above, -1).astype(np.int64)
        classes = (f"at most {target.above:g}", f"above {target.above:g}")
        return SampleTarget(target.column, "binary", classes, codes, None, found.filled)
    if fit.task == "regression":
        return SampleTarget(target.column, "regression", (), found.codes, found.numbers, found.filled)
    names = tuple(found.values.cast(pa.string()).to_pylist())
    return SampleTarget(target.column, fit.task, names, found.codes, None, found.filled)


def has_weight(recipe: Recipe, rows: pa.Table) -> Flags:
    """Return which rows have a weight above 0; all, where the recipe names none or it is not read."""
    if recipe.weight not in rows.column_names or not is_numeric(rows[recipe.weight].type):
        return np.ones(rows.num_rows, np.bool_)
    return number_values(rows[recipe.weight]) > 0
