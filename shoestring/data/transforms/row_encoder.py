"""Encode the rows of a table for storage, and gather the statistics of train that models read them with."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import (
    GROUP_COLUMN,
    IMAGE_COLUMN,
    TARGET_COLUMN,
    WEIGHT_COLUMN,
    Encoding,
    RowWeight,
)
from shoestring.core.errors import DataError, RecipeError
from shoestring.data.formats.dictionaries import write_dictionaries
from shoestring.data.increments.encoded_version import LastEncoding
from shoestring.data.increments.partitions import EncodedPartition
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import SPLITS
from shoestring.data.transforms.column_encoders import CategoryColumn, NumberColumn, TargetColumn
from shoestring.data.transforms.dates import elapsed_names, with_date_parts, with_elapsed
from shoestring.data.transforms.encode import Codes, Numbers, RunningMoments, encoded_name
from shoestring.data.transforms.feature_kinds import ColumnKinds
from shoestring.data.transforms.hashing.hashed_text import with_hashed_texts
from shoestring.data.transforms.image_field import ImageField
from shoestring.data.transforms.split import SplitAssignment
from shoestring.data.transforms.target import is_known, read_weights

SplitIndices = np.ndarray[Any, np.dtype[np.int64]]


class RowEncoder:
    """Encodes tables of one schema. The columns of the result: numbers, then codes, `y`, `_weight` if the
    recipe names one, `_image` where rows have images, and `_group` unless each row is a unit.
    """

    def __init__(
        self,
        recipe: Recipe,
        kinds: ColumnKinds,
        schema: pa.Schema,
        last: LastEncoding | None = None,
        images: ImageField | None = None,
    ) -> None:
        """`last`: the codes of the version before, whose rows this version has until they are removed.
        `images`: decodes the images of the rows.
        """
        self.images = images
        self._recipe, self._dates, self._texts = recipe, kinds.dates, kinds.texts
        codes = last.dictionaries if last else {}
        kind_of = kinds.features
        self._elapsed = frozenset(elapsed_names(kinds.dates, schema.names)) & kind_of.keys()
        self._numbers = [NumberColumn(name) for name in kind_of if kind_of[name] == "numeric"]
        self._categories = [
            CategoryColumn(
                name,
                codes.get(encoded_name(name)),
                recipe.max_categories,
                has_words=name in kinds.texts,
            )
            for name in kind_of
            if kind_of[name] == "categorical"
        ]
        self._target = TargetColumn(
            recipe.target,
            kinds.task,
            schema.field(recipe.target.column).type,
            codes.get(TARGET_COLUMN),
            last.version.train_targets if last else (0,),
        )
        self._left_out: tuple[int, ...] = (0, 0, 0)
        self._weights: Numbers = np.zeros(0)

    @property
    def code_columns(self) -> list[str]:
        """The stored columns that `remove` needs."""
        return [*(encoded_name(column.name) for column in self._categories), TARGET_COLUMN]

    @property
    def train_targets(self) -> tuple[int, ...]:
        """The rows of train by the target's code."""
        return tuple(self._target.train.counts.tolist())

    def remove(self, table: pa.Table, *, in_train: bool) -> None:
        """Take away encoded rows of the version before: their `code_columns`."""
        self._target.remove(_codes(table[TARGET_COLUMN]), in_train=in_train)
        if in_train:
            for column in self._categories:
                column.remove(_codes(table[encoded_name(column.name)]))

    def summarise(self) -> tuple[tuple[int, ...], Numbers, Numbers]:
        """Return of the rows since the last call those that are left out, the moments of the numbers in
        train, float64[columns, 6], the last of the target, and the weights, as in `EncodedPartition`."""
        columns: list[NumberColumn | TargetColumn] = [*self._numbers, self._target]
        numbers = np.array([dataclasses.astuple(column.moments) for column in columns], np.float64)
        for column in columns:
            column.moments = RunningMoments()
        found = self._left_out, numbers, self._weights
        self._left_out, self._weights = (0, 0, 0), np.zeros(0)
        return found

    def encode(self, table: pa.Table, assigned: SplitAssignment) -> tuple[pa.Table, SplitIndices]:
        """Return the encoded rows with a known target and a weight above 0, and the index in SPLITS of
        each. Raises DataError for a weight that is none."""
        if self.images is not None:
            table, assigned = self.images.decode(table, assigned)
        kept, weights = self._kept_rows(table)
        table, splits = table.filter(pa.array(kept)), assigned.split_indices[kept]
        table = with_elapsed(with_date_parts(table, self._dates), self._dates, self._elapsed)
        table = with_hashed_texts(table, self._texts)
        in_train = splits == SPLITS.index("train")
        in_train_weights = None if weights is None else weights[in_train]
        columns = {
            encoded_name(each.name): each.encode(table[each.name], in_train, in_train_weights)
            for each in self._numbers
        }
        columns |= {
            encoded_name(each.name): each.encode(table[each.name], in_train) for each in self._categories
        }
        target = self._target.encode(table[self._recipe.target.column], in_train, in_train_weights)
        columns[TARGET_COLUMN] = target
        if weights is not None:
            columns[WEIGHT_COLUMN] = pa.array(weights)
            self._add_weights(np.asarray(target)[in_train], weights[in_train])
        if self.images is not None:
            columns[IMAGE_COLUMN] = table[IMAGE_COLUMN]
        if assigned.groups is not None:
            columns[GROUP_COLUMN] = pa.array(assigned.groups[kept])
        return pa.table(columns), splits

    def _kept_rows(self, table: pa.Table) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], Numbers | None]:
        """Return which rows have a target and a weight above 0, and these weights; count the other rows."""
        kept, name = (
            np.asarray(is_known(table[self._recipe.target.column]).combine_chunks()),
            self._recipe.weight,
        )
        without = [int((~kept).sum()), 0, 0]
        weights = None
        if name:
            weights = read_weights(name, table[name])
            without[1:] = int((kept & np.isnan(weights)).sum()), int((kept & (weights == 0)).sum())
            kept = kept & (weights > 0)
            weights = weights[kept]
        self._left_out = tuple(map(sum, zip(self._left_out, without, strict=True)))
        return kept, weights

    def _add_weights(self, targets: np.ndarray[Any, Any], weights: Numbers) -> None:
        """Add the weights of rows of train to those of their code; of a regression to the one sum."""
        is_regression = np.issubdtype(targets.dtype, np.floating)
        codes = np.zeros(len(targets), np.int64) if is_regression else targets
        sums: Numbers = np.bincount(codes, weights, len(self._weights)).astype(np.float64, copy=False)
        sums[: len(self._weights)] += self._weights
        self._weights = sums

    def _weights_of_train(self, partitions: Sequence[EncodedPartition]) -> Numbers | None:
        """Return the weights of all rows of train, by the target's code; None: there are none. Each sum
        is rounded once, so the order of the partitions does not matter. Raises DataError if all are 0."""
        if not self._recipe.weight:
            return None
        codes = max(len(each.weights) for each in partitions)
        found = (
            math.fsum(each.weights[code] for each in partitions if code < len(each.weights))
            for code in range(codes)
        )
        weights = np.array([*found])
        if not weights.sum():
            raise DataError(
                f"the weight {self._recipe.weight} is 0 or missing in all rows of train with a target: "
                "remove `weight`, or name another column"
            )
        return weights

    def _dropped(self, partitions: Sequence[EncodedPartition], unseen_rows: int) -> dict[str, int]:
        """Return how many rows models do not read, by reason."""
        name, weight = self._recipe.target.column, self._recipe.weight
        missing, unweighted, of_weight_0 = map(sum, zip(*(each.left_out for each in partitions), strict=True))
        reasons = {
            f"{name} is missing": missing,
            f"the weight {weight} is missing": unweighted,
            f"the weight {weight} is 0": of_weight_0,
            f"{name} is of a class that train does not contain": unseen_rows,
        }
        return {each: count for each, count in reasons.items() if count}

    def finish(self, scratch: Path, partitions: Sequence[EncodedPartition]) -> FittedEncoding:
        """Write the dictionaries, and return how train has to be read. `partitions`: all of the data set.

        Raises DataError and RecipeError.
        """
        merged = np.stack([each.numbers for each in partitions], 1)
        summarised: list[NumberColumn | TargetColumn] = [*self._numbers, self._target]
        for column, parts in zip(summarised, merged, strict=True):
            column.moments = RunningMoments.merged(parts)
        weights = self._weights_of_train(partitions)
        target = self._target.finish(weights)
        named = {*self._recipe.categorical, *self._recipe.numeric}
        # Categories first, as the samples have them.
        columns: list[NumberColumn | CategoryColumn] = [*self._categories, *self._numbers]
        used = [column for column in columns if column.name in named or column.is_informative()]
        if not used and self.images is None:
            raise DataError(
                f"all columns of table {self._recipe.main} that could be features are constant in train: "
                "name features under `categorical` and `numeric`"
            )
        features = [feature for column in used for feature in column.features()]
        features.sort(key=lambda feature: feature.marks_missing)
        _require_unique([*(feature.name for feature in features), TARGET_COLUMN, GROUP_COLUMN, WEIGHT_COLUMN])
        dictionaries = [column.dictionary() for column in self._categories]
        path = scratch / "dictionaries.arrow"
        write_dictionaries([*dictionaries, *([target.dictionary] if target.dictionary else [])], path)
        encoding = Encoding(
            features=tuple(features),
            fields=(self.images.field,) if self.images is not None else (),
            task=target.task,
            classes=target.classes,
            train_prior=target.prior,
            weight=None if weights is None else _row_weight(self._recipe.weight, weights, partitions),
        )
        dropped = self._dropped(partitions, target.unseen_rows)
        return FittedEncoding(encoding, path, dropped, target.unseen_rows)


@dataclass(frozen=True, slots=True)
class FittedEncoding:
    """How models read the rows, without the digest of the dictionaries, which are in the file at
    `dictionaries`; how many rows they do not read, by reason; and how many of these are stored."""

    encoding: Encoding
    dictionaries: Path
    dropped: Mapping[str, int]
    unread_rows: int


def _row_weight(name: str, weights: Numbers, partitions: Sequence[EncodedPartition]) -> RowWeight:
    rows = sum(part.rows for each in partitions for part in each.parts["train"])
    return RowWeight(column=name, mean=math.fsum(weights) / rows)


def _codes(column: pa.ChunkedArray) -> Codes:
    return np.asarray(column.combine_chunks())


def _require_unique(names: Sequence[str]) -> None:
    """Raises RecipeError when two features have the same name."""
    if clashes := sorted(name for name, count in Counter(names).items() if count > 1):
        raise RecipeError(
            f"the encoded data set would have two columns called {', '.join(clashes)}: "
            "rename those of the source"
        )
