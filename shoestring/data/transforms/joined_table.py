"""The main table of a raw data set with its joins applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from shoestring.core.datasets import DatasetPart, Manifest, SplitRule
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.data.recipe import Recipe
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.storage.part_writer import open_part, part_schema
from shoestring.data.transforms.image_field import batch_images
from shoestring.data.transforms.join import JoinLookup
from shoestring.data.transforms.split import (
    RepeatedRows,
    SplitAssignment,
    assign_by_time,
    assign_splits,
    count_repeats,
    has_larger_units,
    split_rule,
    unit_columns,
    with_split,
)
from shoestring.data.transforms.splits.given_split import GivenSplit, given_split
from shoestring.data.transforms.times.time_split import TimeSplit, time_split

BATCH_ROWS = 1 << 17


class JoinedTable:
    """The main table with all joins applied, in batches, each row with its split."""

    def __init__(self, recipe: Recipe, raw: Manifest, store: Store) -> None:
        """Raises RecipeError for columns that the recipe names and the raw data set lacks; DataError."""
        columns: dict[str, list[str]] = {table: [] for table in recipe.source}
        for name in raw.columns:
            table, _, column = name.partition(".")
            columns[table].append(column)
        check_columns(recipe, columns)
        self._recipe, self._raw, self._store = recipe, raw, store
        self._main_columns = columns[recipe.main]
        self._unit_columns = unit_columns(recipe, self._main_columns)
        self._joined = [pa.concat_tables(self._parts(join.table)) for join in recipe.joins]
        self._lookups = [
            JoinLookup(table, join) for table, join in zip(self._joined, recipe.joins, strict=True)
        ]

    @property
    def parts(self) -> tuple[DatasetPart, ...]:
        """The parts of the main table, in order."""
        return self._raw.splits[self._recipe.main]

    @property
    def rows_set_aside(self) -> int:
        """The rows of the main table that ingest left out."""
        main = f"{self._recipe.main}: "
        return sum(rows for reason, rows in self._raw.quarantined.items() if reason.startswith(main))

    @property
    def joined_parts(self) -> list[str]:
        """The digests of the parts of the other tables."""
        return [part.sha256 for join in self._recipe.joins for part in self._raw.splits[join.table]]

    @cached_property
    def _repeats(self) -> RepeatedRows | None:
        if has_larger_units(self._recipe):
            return None
        # A table of the target, weight and leaks alone still has rows to count.
        read = self._unit_columns or self._main_columns[:1]
        return count_repeats(self._parts(self._recipe.main, read), self._recipe.seed, self._unit_columns)

    @cached_property
    def _times(self) -> TimeSplit | None:
        if not self._recipe.split.time:
            return None
        read = {self._recipe.split.time, self._recipe.target.column} & {*self._main_columns}
        return time_split(self._parts(self._recipe.main, sorted(read)), self._recipe)

    @cached_property
    def _given(self) -> GivenSplit | None:
        if not self._recipe.split_column:
            return None
        read = {self._recipe.split_column, self._recipe.target.column} & {*self._main_columns}
        return given_split(self._parts(self._recipe.main, sorted(read)), self._recipe)

    @property
    def left_out(self) -> dict[str, int]:
        """The rows that are in no split, by reason."""
        found = self._times or self._given
        return {} if found is None else found.reasons

    @property
    def split_rule(self) -> SplitRule:
        """How the rows are assigned to splits. The rows that decide it are read first."""
        if self._times is not None:
            return self._times.rule
        return split_rule(self._recipe, self._main_columns, self._repeats, self._given)

    @cached_property
    def part_names(self) -> list[str]:
        """What names each part of the main table: its digest, and where rows of it repeat rows before it,
        that of their positions. Parts of one name have the same rows in the same splits."""
        repeats, digests = self._repeats, [part.sha256 for part in self.parts]
        if repeats is None:
            return digests
        starts = [repeats.start_digest(index) for index in range(len(digests))]
        return ["-".join(filter(None, each)) for each in zip(digests, starts, strict=True)]

    def batches(self, index: int) -> Iterator[tuple[pa.Table, SplitAssignment]]:
        """Yield the rows of one part in batches, each with the split assignment of its rows. Rows that are in
        no split are left out."""
        recipe, image = self._recipe, self._recipe.image
        table = open_part(self._store, self._raw, self.parts[index])
        positions = self._repeats.positions(index) if self._repeats else None
        batch_rows = BATCH_ROWS if image is None else batch_images(image)
        for start in range(0, table.num_rows, batch_rows):
            batch = table.slice(start, batch_rows)
            if self._times is not None:
                batch = self._times.with_time(batch)
            for lookup in self._lookups:
                batch = lookup.join(batch)
            if self._times is not None:
                yield batch, assign_by_time(batch, self._times)
                continue
            columns, given = self._unit_columns, self._given
            assigned = assign_splits(batch, recipe.split, recipe.seed, columns, positions, given)
            yield (batch, assigned) if given is None else with_split(batch, assigned)

    def check_joins(self) -> None:
        """Raise RecipeError for a join that found no row, once all batches were read."""
        for lookup in self._lookups:
            lookup.check()

    def schema(self) -> pa.Schema:
        """Return the columns of the batches. Raises DataError for a table without rows."""
        if not self.parts:
            raise DataError(f"table {self._recipe.main} has no rows: there is nothing to learn from")
        fields = [*part_schema(self._store, self._raw.format, self.parts[0])]
        for join, table in zip(self._recipe.joins, self._joined, strict=True):
            fields += [table.schema.field(name) for name in join.columns]
        return pa.schema(fields)

    def column_chunks(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of the main table, part by part, and those of each joined table, whole."""
        if own := [name for name in names if name in self._main_columns]:
            yield from self._parts(self._recipe.main, own)
        for join, table in zip(self._recipe.joins, self._joined, strict=True):
            if added := [name for name in join.columns if name in names]:
                yield table.select(added)

    def _parts(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        return (open_part(self._store, self._raw, part, columns) for part in self._raw.splits[table])
