"""Encode one column for storage, and say what models read of it: numbers, categories, and the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.datasets import TARGET_COLUMN, Feature
from shoestring.data.formats.dictionaries import ColumnDictionary
from shoestring.data.metrics import Task
from shoestring.data.recipe import MAX_CATEGORIES, Target
from shoestring.data.transforms.encode import (
    MIN_CATEGORY_ROWS,
    MIN_INDICATED_SHARE,
    CodeCounts,
    Codes,
    Counts,
    Dictionary,
    Numbers,
    RunningMoments,
    column_as_number,
    encoded_name,
    number_values,
)
from shoestring.data.transforms.target import is_above, target_statistics

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class NumberColumn:
    """A column of numbers: float64, NaN where missing. `moments`: those of train."""

    def __init__(self, name: str) -> None:
        self.name, self.moments = name, RunningMoments()

    def encode(
        self, column: pa.ChunkedArray, in_train: Mask, train_weights: Numbers | None = None
    ) -> pa.Array:
        values = number_values(column)
        self.moments.add(values[in_train], train_weights)
        return pa.array(values)

    def features(self) -> tuple[Feature, ...]:
        """Return the number, and an indicator where enough of train is missing. Raises DataError."""
        self.moments.require_bounded(self.name)
        column = encoded_name(self.name)
        number = Feature(
            name=column,
            kind="numeric",
            column=column,
            mean=self.moments.mean,
            sd=self.moments.sd or 1.0,
        )
        missing = self.moments.missing
        if not missing or missing < MIN_INDICATED_SHARE * self.moments.rows:
            return (number,)
        indicator = Feature(name=f"{column}_missing", kind="numeric", column=column, marks_missing=True)
        return number, indicator

    def is_informative(self) -> bool:
        """Return whether the column is not constant in train."""
        return self.moments.sd > 0 or 0 < self.moments.count < self.moments.rows


class CategoryColumn:
    """A column of categories: int32 codes of its dictionary, where `most` values have one of their own.
    `last`: the dictionary of the version before. `has_words`: other columns have the words of the values.
    """

    def __init__(
        self,
        name: str,
        last: ColumnDictionary | None = None,
        most: int = MAX_CATEGORIES,
        *,
        has_words: bool = False,
    ) -> None:
        self.name, self._has_words = name, has_words
        self._dictionary = Dictionary(last.values if last else (), most)
        self._train = CodeCounts([0, *last.rows] if last else (0,))

    def encode(self, column: pa.ChunkedArray, in_train: Mask) -> pa.Array:
        codes = self._dictionary.encode(column)
        self._train.add(codes[in_train])
        return pa.array(codes)

    def remove(self, codes: Codes) -> None:
        """Take away rows of train."""
        self._train.remove(codes)

    def dictionary(self) -> ColumnDictionary:
        """Return the values with their rows in train. A model's code is the rank of the value, from 1, among
        those that are not rare, and 0 for the others."""
        values, rows = self._dictionary.values, self._rows()
        model_codes = np.zeros(len(values), np.int32)
        common = np.flatnonzero(rows >= MIN_CATEGORY_ROWS)
        ranked = pc.sort_indices(pa.array([values[index] for index in common], pa.string()))
        model_codes[common[np.asarray(ranked)]] = np.arange(1, len(common) + 1)
        return ColumnDictionary(encoded_name(self.name), values, rows, model_codes)

    def features(self) -> tuple[Feature, ...]:
        column, common = encoded_name(self.name), int((self._rows() >= MIN_CATEGORY_ROWS).sum())
        feature = Feature(
            name=column,
            kind="categorical",
            cardinality=common + 1,
            has_words=self._has_words,
            column=column,
        )
        return (feature,)

    def is_informative(self) -> bool:
        """Return whether train has two values, and not all of them are rare."""
        rows = self._rows()
        return bool((rows > 0).sum() > 1 and (rows >= MIN_CATEGORY_ROWS).any())

    def _rows(self) -> Counts:
        return self._train.of_values(len(self._dictionary.values))


class TargetColumn:
    """The target: float32 for a regression; whether it is above the limit; or codes of its dictionary.

    `moments`: of train, for a regression. `train`: the rows of train by code, or by whether they are above.
    """

    def __init__(
        self,
        target: Target,
        task: Task,
        kind: pa.DataType,
        last: ColumnDictionary | None = None,
        last_train: Sequence[int] = (0,),
    ) -> None:
        self._target, self._task, self._kind = target, task, kind
        self._dictionary = Dictionary(last.values if last else ())
        self._rows = CodeCounts([0, *last.rows] if last else (0,))
        self.moments, self.train = RunningMoments(), CodeCounts(last_train)

    def encode(
        self, column: pa.ChunkedArray, in_train: Mask, train_weights: Numbers | None = None
    ) -> pa.Array:
        if self._task == "regression":
            self.moments.add(number_values(column)[in_train], train_weights)
            return column_as_number(column).cast(pa.float32(), safe=False).combine_chunks()
        if self._target.above is not None:
            codes = np.asarray(is_above(column, self._target.above).cast(pa.int32()).combine_chunks())
        else:
            codes = self._dictionary.encode(column)
            self._rows.add(codes)
        self.train.add(codes[in_train])
        return pa.array(codes)

    def remove(self, codes: Codes, *, in_train: bool) -> None:
        """Take away rows of train, or of another split."""
        if self._task == "regression":
            return
        if self._target.above is None:
            self._rows.remove(codes)
        if in_train:
            self.train.remove(codes)

    def finish(self, train_weights: Numbers | None = None) -> FittedTarget:
        """Return the target as train has it. `train_weights`: of the rows of each code; None: all rows weigh
        the same. Raises what `target_statistics` raises."""
        values = self._dictionary.values
        counts_of_codes = self.train.counts if train_weights is None else train_weights
        if self._target.above is None:
            found = zip(values, counts_of_codes[1:].tolist(), strict=False)
        else:
            found = zip(("false", "true"), counts_of_codes.tolist(), strict=False)
        counts = {text: count for text, count in found if count}
        fitted = target_statistics(self._target, self._task, self._kind, counts, self.moments)
        if self._task == "regression" or self._target.above is not None:
            return FittedTarget(fitted.task, fitted.classes, fitted.prior, None, 0)
        rows = self._rows.of_values(len(values))
        index = {text: number for number, text in enumerate(fitted.classes)}
        classes = np.array([index.get(text, -1) for text in values], np.int32)
        dictionary = ColumnDictionary(TARGET_COLUMN, values, rows, classes)
        return FittedTarget(
            fitted.task, fitted.classes, fitted.prior, dictionary, int(rows[classes < 0].sum())
        )


@dataclass(frozen=True, slots=True)
class FittedTarget:
    """The task, the classes and their shares in train. `unseen_rows` are of classes that train does not
    contain: they are stored, and never read.
    """

    task: Task
    classes: tuple[str, ...]
    prior: tuple[float, ...]
    dictionary: ColumnDictionary | None
    unseen_rows: int
