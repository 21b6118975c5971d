"""Documents in a column of tables: a row each, or the rows that follow one another with equal values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from shoestring.core.errors import RecipeError
from shoestring.data.source import TextSettings
from shoestring.data.sources.data_file import SAMPLE_BYTES, DataFile
from shoestring.data.sources.documents.text_documents import MAX_DOCUMENT_BYTES, TextDocuments
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.table import FilesTable
from shoestring.data.sources.untyped_table import UntypedTable

Row = tuple[str | None, ...]
"""The values of `by`, and the text."""


class TableTexts(TextDocuments):
    """A table with a row for each document in a column of other tables. `open_file` opens one of them.

    The path of a document is FILE#ROW, or FILE#VALUES of the columns that join its rows; its number is that
    of its first row. Rows are counted without those that cannot be read.
    """

    def __init__(
        self, settings: TextSettings, files: Sequence[DataFile], open_file: Callable[[DataFile], FilesTable]
    ) -> None:
        """Raises RecipeError for a column that the tables do not have; DataError."""
        super().__init__(settings, files)
        self._by, self._column, self._open_file = settings.by, settings.column, open_file
        self._tables: dict[str, FilesTable] = {}
        for file in files[:1]:
            names = self._open(file).names
            if missing := [name for name in (*self._by, self._column) if name not in names]:
                raise RecipeError(
                    f"`text`: {', '.join(missing)} is no column of {file.name}, which has {', '.join(names)}"
                )

    def documents(self, file: DataFile, quarantine: Quarantine) -> Iterator[tuple[int, str, bytes | None]]:
        """Yield the documents of a file, each with its number and path. A row without text is none. Raises
        DataError; TypesChanged, as reading its table does."""
        rows = ((number, row) for number, row in enumerate(self._rows(file, quarantine), 1) if row[-1])
        if not self._by:
            for number, row in rows:
                yield number, f"{file.name}#{number}", _text([row])
            return
        for values, found in groupby(rows, lambda numbered: numbered[1][:-1]):
            place, numbered = "/".join(value or "" for value in values), [*found]
            yield numbered[0][0], f"{file.name}#{place}", _text([row for _, row in numbered])

    def _open(self, file: DataFile) -> FilesTable:
        """Return a table, which keeps what it learns of its file while it is read."""
        if file.name not in self._tables:
            self._tables[file.name] = self._open_file(file)
        return self._tables[file.name]

    def _rows(self, file: DataFile, quarantine: Quarantine) -> Iterator[Row]:
        table, names = self._open(file), [*self._by, self._column]
        if isinstance(table, UntypedTable):
            blocks = table.texts(SAMPLE_BYTES, quarantine)
        else:
            blocks = table.peek(names)
        for block in blocks:
            columns = [block[name].cast("string").to_pylist() for name in names]
            yield from zip(*columns, strict=True)


def _text(rows: Sequence[Row]) -> bytes | None:
    text = "\n".join(row[-1] or "" for row in rows).encode()
    return None if len(text) > MAX_DOCUMENT_BYTES else text
