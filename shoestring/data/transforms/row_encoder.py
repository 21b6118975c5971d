"""Encode the rows of a table for storage, and gather the statistics of train that models read them with."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.datasets import GROUP_COLUMN, IMAGE_COLUMN, TARGET_COLUMN, Encoding
from shoestring.core.errors import DataError, RecipeError
from shoestring.data.formats.dictionaries import write_dictionaries
from shoestring.data.increments.encoded_version import LastEncoding
from shoestring.data.increments.partitions import EncodedPartition
from shoestring.data.recipe import Recipe
from shoestring.data.transforms.column_encoders import CategoryColumn, NumberColumn, TargetColumn
from shoestring.data.transforms.dates import with_date_parts
from shoestring.data.transforms.encode import Codes, Numbers, RunningMoments, encoded_name
from shoestring.data.transforms.feature_kinds import ColumnKinds
from shoestring.data.transforms.hashing.hashed_text import with_hashed_texts
from shoestring.data.transforms.image_field import ImageField
from shoestring.data.transforms.split import SPLITS, SplitAssignment
from shoestring.data.transforms.target import is_known

SplitIndices = np.ndarray[Any, np.dtype[np.int64]]


class RowEncoder:
    """Encodes tables of one schema. The columns of the result: numbers, then codes, `y`, `_image` where rows
    have images, and `_group` unless each row is a unit.
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
        self._numbers = [NumberColumn(name) for name in kind_of if kind_of[name] == "numeric"]
        self._categories = [
            CategoryColumn(name, codes.get(encoded_name(name)), recipe.max_categories)
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
        self._missing_targets = 0

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

    def summarise(self) -> tuple[int, Numbers]:
        """Return the rows without a target since the last call, and the moments of the numbers in train,
        float64[columns, 6]; the last are the target's."""
        columns: list[NumberColumn | TargetColumn] = [*self._numbers, self._target]
        numbers = np.array([dataclasses.astuple(column.moments) for column in columns], np.float64)
        missing, self._missing_targets = self._missing_targets, 0
        for column in columns:
            column.moments = RunningMoments()
        return missing, numbers

    def encode(self, table: pa.Table, assigned: SplitAssignment) -> tuple[pa.Table, SplitIndices]:
        """Return the encoded rows with a known target, and the index in SPLITS of each."""
        if self.images is not None:
            table, assigned = self.images.decode(table, assigned)
        known = is_known(table[self._recipe.target.column])
        self._missing_targets += table.num_rows - pc.sum(known).as_py()
        kept = np.asarray(known.combine_chunks())
        table, splits = with_date_parts(table.filter(known), self._dates), assigned.split_indices[kept]
        table = with_hashed_texts(table, self._texts)
        in_train = splits == SPLITS.index("train")
        stored: list[NumberColumn | CategoryColumn] = [*self._numbers, *self._categories]
        columns = {
            encoded_name(column.name): column.encode(table[column.name], in_train) for column in stored
        }
        columns[TARGET_COLUMN] = self._target.encode(table[self._recipe.target.column], in_train)
        if self.images is not None:
            columns[IMAGE_COLUMN] = table[IMAGE_COLUMN]
        if assigned.groups is not None:
            columns[GROUP_COLUMN] = pa.array(assigned.groups[kept])
        return pa.table(columns), splits

    def finish(self, scratch: Path, partitions: Sequence[EncodedPartition]) -> FittedEncoding:
        """Write the dictionaries, and return how train has to be read. `partitions`: all of the data set.

        Raises DataError and RecipeError.
        """
        merged = np.stack([each.numbers for each in partitions], 1)
        summarised: list[NumberColumn | TargetColumn] = [*self._numbers, self._target]
        for column, parts in zip(summarised, merged, strict=True):
            column.moments = RunningMoments.merged(parts)
        target = self._target.finish()
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
        _require_unique([*(feature.name for feature in features), TARGET_COLUMN, GROUP_COLUMN])
        dictionaries = [column.dictionary() for column in self._categories]
        path = scratch / "dictionaries.arrow"
        write_dictionaries([*dictionaries, *([target.dictionary] if target.dictionary else [])], path)
        encoding = Encoding(
            features=tuple(features),
            fields=(self.images.field,) if self.images is not None else (),
            task=target.task,
            classes=target.classes,
            train_prior=target.prior,
        )
        name = self._recipe.target.column
        reasons = {
            f"{name} is missing": sum(each.missing_targets for each in partitions),
            f"{name} is of a class that train does not contain": target.unseen_rows,
        }
        dropped = {each: count for each, count in reasons.items() if count}
        return FittedEncoding(encoding, path, dropped, target.unseen_rows)


@dataclass(frozen=True, slots=True)
class FittedEncoding:
    """How models read the rows, without the digest of the dictionaries, which are in the file at
    `dictionaries`; how many rows they do not read, by reason; and how many of these are stored."""

    encoding: Encoding
    dictionaries: Path
    dropped: Mapping[str, int]
    unread_rows: int


def _codes(column: pa.ChunkedArray) -> Codes:
    return np.asarray(column.combine_chunks())


def _require_unique(names: Sequence[str]) -> None:
    """Raises RecipeError when two features have the same name."""
    if clashes := sorted(name for name, count in Counter(names).items() if count > 1):
        raise RecipeError(
            f"the encoded data set would have two columns called {', '.join(clashes)}: "
            "rename those of the source"
        )
