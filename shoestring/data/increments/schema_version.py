"""The columns of a data set with the kinds of their values, a record for each version that changes them.

The first version that has a value in a column fixes the column's kind. A data set is that of one recipe's
name, wherever its files are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa
from pydantic import Field

from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.data.increments.read_table import IncrementalTable
from shoestring.data.recipe import Recipe
from shoestring.data.sources.column_types import MAX_MISMATCH_SHARE, kind_name
from shoestring.data.sources.images.image_tables import ImagePaths
from shoestring.data.sources.parquet_reader import TypedTable
from shoestring.data.sources.quarantine import ColumnMisfits
from shoestring.data.sources.table import FixedColumns, SourceTable
from shoestring.data.sources.text.fixed_kinds import (
    KINDS,
    NOT_FIXED,
    PLAIN,
    FixedKind,
    FixedKinds,
    fixed_kinds,
    stored_name,
)
from shoestring.data.sources.untyped_table import UntypedTable


class SchemaVersion(StoredRecord):
    """The tables of a data set: table -> column -> kind, a key of KINDS or an Arrow type; empty: no
    value yet. Without tables, there is no version yet.
    """

    tables: dict[str, dict[str, str]] = Field({})

    def fixed(self, recipe: Recipe, table: str) -> FixedKinds:
        """Return the kinds of the columns of a table of text that are not inferred."""
        known = self.tables.get(table, {})
        return fixed_kinds(recipe.kinds, {name: kind for name, kind in known.items() if kind in KINDS})

    def empty(self, table: str) -> list[str]:
        """Return the columns of a table that have no value yet."""
        return [name for name, kind in self.tables.get(table, {}).items() if not kind]

    def agrees(self, table: str, columns: FixedColumns) -> bool:
        """Return whether columns are read as in this version; so are those of a table that it lacks."""
        names, known = _fixed_names(columns), self.tables.get(table, {})
        return all(not kind or names.get(name, kind) == kind for name, kind in known.items())


NO_SCHEMA = SchemaVersion()


def last_schema(store: Store, name: str) -> SchemaVersion:
    """Return the newest schema of a data set; NO_SCHEMA without one, or if it is damaged."""
    if (key := max(store.list(store_layout.schemas(name)), default=None)) is None:
        return NO_SCHEMA
    try:
        return SchemaVersion.model_validate_json(store.fetch(key).read_bytes())
    except (NotInStore, ValueError):
        return NO_SCHEMA


def save_schema(
    store: Store, name: str, known: SchemaVersion, found: Mapping[str, Mapping[str, str]]
) -> None:
    """Store the columns of tables whose rows were all read, if they differ from `known`. Raises StoreFull.

    Of two runs that store the same version at the same moment, the first one counts.
    """
    tables = {
        table: {
            column: kind or known.tables.get(table, {}).get(column, "") for column, kind in columns.items()
        }
        for table, columns in found.items()
    }
    if tables == known.tables:
        return
    last = max(store.list(store_layout.schemas(name)), default="0")
    key = store_layout.schemas(name, f"{int(PurePosixPath(last).stem) + 1:06d}")
    store.put(key, record_bytes(SchemaVersion(tables=tables)), if_absent=True)


def columns_of(table: SourceTable | IncrementalTable) -> dict[str, str]:
    """Return the kind of each column of a table that was read; empty where it has no value."""
    if isinstance(table, ImagePaths):
        return columns_of(table.table)
    if isinstance(table, UntypedTable):
        return {name: stored_name(kind) if kind else "" for name, kind in table.kinds.items()}
    if isinstance(table, TypedTable):
        return _fixed_names(table.columns) | dict.fromkeys(table.empty, "")
    if isinstance(table, IncrementalTable):
        return dict.fromkeys(table.empty, "") | {
            name: kind for name, kind in _fixed_names(table.columns).items() if name not in table.empty
        }
    return _fixed_names(FixedColumns(table.schema))


def _fixed_names(columns: FixedColumns) -> dict[str, str]:
    names = {kind: name for name, kind in PLAIN.items()}
    found = (each for each in columns.schema if not pa.types.is_binary(each.type))
    return {
        each.name: columns.written.get(each.name) or names.get(each.type, str(each.type)) for each in found
    }


def fixed_misfits(
    table: SourceTable, misfits: Mapping[str, ColumnMisfits], rows: int
) -> Iterator[FixedMisfits]:
    """Yield the values that are not of the kind that was fixed, by column. `rows`: those that were read."""
    text = table.table if isinstance(table, ImagePaths) else table
    fixed = text.fixed if isinstance(text, UntypedTable) else NOT_FIXED
    for name in misfits.keys() & fixed.keys():
        yield FixedMisfits(name, fixed[name], misfits[name], rows)


@dataclass(frozen=True, slots=True)
class FixedMisfits:
    """The values of a column that are not of its fixed kind, among those of `rows`."""

    column: str
    fixed: FixedKind
    found: ColumnMisfits
    rows: int

    @property
    def sentence(self) -> str:
        by = "as the recipe states" if self.fixed.is_stated else "as in the first version of the data"
        found = self.found
        return (
            f"{found.total:,} of {self.rows:,} values are not {kind_name(self.fixed.kinds[0])}, {by}; "
            f"the first is {found.value!r} in {found.file}, row {found.row_number}; "
            "they are read as missing; to read the column in another way, state it, such as "
            f"`kinds: {{{self.column}: text}}`"
        )

    def check(self) -> None:
        """Raise DataError if these are more than would be inferred as the kind."""
        if self.found.total > MAX_MISMATCH_SHARE * self.rows:
            other = "" if self.fixed.is_stated else "; other data needs another `name` in its recipe"
            raise DataError(
                f"column {self.column}: {self.sentence}; at most {MAX_MISMATCH_SHARE:.0%} may be read so"
                + other
            )
