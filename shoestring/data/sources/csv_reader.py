"""Read tables from CSV files: in blocks, all columns as text first, then as their inferred types."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from shoestring.core.errors import DataError
from shoestring.data.sources.column_types import TEXT, TYPE_NAMES, TypeGuess, parse_column
from shoestring.data.sources.files import DataFile, open_unpacked, read_header
from shoestring.data.sources.quarantine import Quarantine

BLOCK_BYTES = 8 << 20


class CsvFile:
    """One UTF-8 text file with a header, separated by commas, semicolons, tabs or bars. Raises DataError."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self.header = read_header(file)
        self.malformed_rows: list[pyarrow.csv.InvalidRow] = []

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the right number of values, as text. Raises DataError.

        The other rows have been added to `malformed_rows` when the iteration ends.
        """
        self.malformed_rows.clear()
        with open_unpacked(self.file) as stream:
            reader = pyarrow.csv.open_csv(
                pa.PythonFile(stream, "r"),
                # One thread: only then does Arrow report the row number of a skipped row.
                read_options=pyarrow.csv.ReadOptions(block_size=block_bytes, use_threads=False),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.header.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=self._skip,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.header.columns, TEXT), strings_can_be_null=True
                ),
            )
            for block in reader:
                yield block.rename_columns(self.header.names)

    def row_number(self, good_before: int) -> int:
        """Return the row number of the row after `good_before` well-formed rows.

        The header is row 1, and blank lines are not counted.
        """
        adjusted = [row.number - index for index, row in enumerate(self.malformed_rows)]
        return good_before + 2 + int(np.searchsorted(adjusted, good_before + 2, side="right"))

    def _skip(self, row: pyarrow.csv.InvalidRow) -> str:
        self.malformed_rows.append(row)
        return "skip"


class CsvTable:
    """One or several CSV files with the same columns."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = [CsvFile(file) for file in files]
        self.names = self._files[0].header.names
        first = self._files[0].file.name
        for other in self._files[1:]:
            found = other.header.names
            if set(found) != set(self.names):
                raise DataError(
                    f"{other.file.name} has the columns {', '.join(found)}, "
                    f"and {first} has {', '.join(self.names)}"
                )

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
        """Yield the well-formed rows of all files, as text. Raises DataError."""
        for file in self._files:
            yield from file.blocks(block_bytes)

    def infer_schema(self) -> pa.Schema:
        """Return the type of each column, inferred from all rows. Raises DataError."""
        guesses = {name: TypeGuess() for name in self.names}
        for block in self.blocks():
            for name in self.names:
                guesses[name].add(block.column(name))
        return pa.schema([(name, guess.column_type()) for name, guess in guesses.items()])

    def batches(self, schema: pa.Schema, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows that fit the schema, and quarantine the others. Raises DataError."""
        for file in self._files:
            good_before = 0
            for block in file.blocks():
                yield self._fitting(file, block, good_before, schema, quarantine)
                good_before += block.num_rows
            for row in file.malformed_rows:
                reason = f"{row.actual_columns} values instead of {row.expected_columns}"
                quarantine.add(file.file.name, row.number, reason, row.text)

    @staticmethod
    def _fitting(
        file: CsvFile, block: pa.RecordBatch, good_before: int, schema: pa.Schema, quarantine: Quarantine
    ) -> pa.Table:
        columns: list[pa.Array] = []
        reasons: dict[int, str] = {}
        for field in schema:
            values, bad = parse_column(block.column(field.name), field.type)
            columns.append(values)
            if bad.any():
                reasons |= {
                    int(index): f"{field.name} is not {TYPE_NAMES[field.type]}"
                    for index in np.flatnonzero(bad)
                    if int(index) not in reasons
                }
        table = pa.table(columns, schema=schema)
        if not reasons:
            return table
        good = np.ones(len(block), bool)
        for index, reason in sorted(reasons.items()):
            good[index] = False
            row_number = file.row_number(good_before + index)
            quarantine.add(file.file.name, row_number, reason, _csv_line(block, index))
        return table.filter(pa.array(good))


def _csv_line(block: pa.RecordBatch, index: int) -> str:
    """Return a row as a line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        ["" if (value := column[index].as_py()) is None else value for column in block.columns]
    )
    return line.getvalue()
