"""The base of the readers of all kinds of files: a table that is read in typed batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from shoestring.data.sources.quarantine import Quarantine


class TypesChanged(Exception):
    """The batches so far have the wrong types: discard them and their quarantine, and read the table
    again."""


class SourceTable(Protocol):
    """The files of one table, which are all of one kind."""

    names: list[str]

    @property
    def schema(self) -> pa.Schema:
        """The types of the columns, once all batches have been read."""
        ...

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows, and quarantine those that do not fit. An empty batch is a sign of progress.

        Raises:
            DataError: a file cannot be read.
            TypesChanged: later rows changed the type of a column. It is raised once: the next call has the
                types of all rows.
        """
        ...

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the rows in small batches, each with the types of its own rows. Raises
        DataError."""
        ...


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """The columns of a table as its first version has them, in order.

    `written`: how those numbers are written that are not plain ones. `json_types`: the type in JSON that most
    values of a column have.
    """

    schema: pa.Schema
    written: Mapping[str, str] = field(default_factory=dict)
    json_types: Mapping[str, str] = field(default_factory=dict)


class FilesTable(SourceTable, Protocol):
    """A table each of whose rows is in one file, and can be read without the others once its columns are
    known."""

    file: str
    """The name of the file that the last batch is from."""

    @property
    def file_names(self) -> Sequence[str]: ...

    @property
    def columns(self) -> FixedColumns:
        """The columns, once all batches have been read."""
        ...

    def own_names(self) -> Mapping[str, Sequence[str]]:
        """Return the columns that each file has itself, where they are not those of the table."""
        ...

    def fix(self, columns: FixedColumns) -> None:
        """Read the rows with these columns. Those that do not fit are quarantined, or raise DataError."""
        ...
