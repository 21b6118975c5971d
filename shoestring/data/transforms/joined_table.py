"""The main table of a raw data set with its joins applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.data.recipe import Recipe
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.storage.part_writer import open_part, part_schema
from shoestring.data.transforms.image_field import batch_images
from shoestring.data.transforms.join import JoinLookup
from shoestring.data.transforms.split import SplitAssignment, assign_splits

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
        self._joined = [pa.concat_tables(self._parts(join.table)) for join in recipe.joins]
        self._lookups = [
            JoinLookup(table, join) for table, join in zip(self._joined, recipe.joins, strict=True)
        ]

    @property
    def parts(self) -> tuple[DatasetPart, ...]:
        """The parts of the main table, in order."""
        return self._raw.splits[self._recipe.main]

    @property
    def joined_parts(self) -> list[str]:
        """The digests of the parts of the other tables."""
        return [part.sha256 for join in self._recipe.joins for part in self._raw.splits[join.table]]

    def batches(self, part: DatasetPart) -> Iterator[tuple[pa.Table, SplitAssignment]]:
        """Yield the rows of one part in batches, each with the split assignment of its rows."""
        table = open_part(self._store, self._raw, part)
        image = self._recipe.image
        # Equal images are in one split, whatever the names of their files.
        columns = [name for name in table.column_names if image is None or name != image.column]
        batch_rows = BATCH_ROWS if image is None else batch_images(image)
        for start in range(0, table.num_rows, batch_rows):
            batch = table.slice(start, batch_rows)
            for lookup in self._lookups:
                batch = lookup.join(batch)
            yield batch, assign_splits(batch, self._recipe.split, self._recipe.seed, columns)

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
