"""Tables in text files: read in blocks, all columns as text, then as what they turn out to be."""

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
    """One file of comma-, semicolon-, tab- or bar-separated UTF-8 text with a header. Raises DataError."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self.header = read_header(file)
        self.malformed_rows: list[pyarrow.csv.InvalidRow] = []

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """The rows with the right number of values, as text. The others are in `misshapen` by then. Raises DataError."""
        self.malformed_rows.clear()
        with open_unpacked(self.file) as stream:
            reader = pyarrow.csv.open_csv(
                pa.PythonFile(stream, "r"),
                # One thread: only then does Arrow know the number of a row that it leaves out.
                read_options=pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.header.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=self._set_aside,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.header.columns, TEXT), strings_can_be_null=True
                ),
            )
            for block in reader:
                yield block.rename_columns(self.header.names)

    def row_number(self, good: int) -> int:
        """The number of the row that `good` rows of the right shape stand before. The header is 1; blank lines do not count."""
        adjusted = [row.number - place for place, row in enumerate(self.malformed_rows)]
        return good + 2 + int(np.searchsorted(adjusted, good + 2, side="right"))

    def _set_aside(self, row: pyarrow.csv.InvalidRow) -> str:
        self.malformed_rows.append(row)
        return "skip"


class CsvTable:
    """One or several text files with the same columns."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = [CsvFile(file) for file in files]
        self.names = self._files[0].header.names
        first = self._files[0].file.name
        for other in self._files[1:]:
            found = other.header.names
            if set(found) != set(self.names):
                raise DataError(
                    f"{other.file.name} has the columns {', '.join(found)}, and {first} has {', '.join(self.names)}"
                )

    def infer_schema(self) -> pa.Schema:
        """What each column is, from all the rows. Raises DataError."""
        guesses = {name: TypeGuess() for name in self.names}
        for file in self._files:
            for block in file.blocks():
                for name in self.names:
                    guesses[name].add(block.column(name))
        return pa.schema([(name, guess.column_type()) for name, guess in guesses.items()])

    def batches(self, schema: pa.Schema, quarantine: Quarantine) -> Iterator[pa.Table]:
        """The rows that fit the schema; the others go into quarantine. Raises DataError."""
        for file in self._files:
            before = 0
            for block in file.blocks():
                yield self._fitting(file, block, before, schema, quarantine)
                before += block.num_rows
            for row in file.malformed_rows:
                quarantine.add(
                    file.file.name,
                    row.number,
                    f"{row.actual_columns} values instead of {row.expected_columns}",
                    row.text,
                )

    @staticmethod
    def _fitting(
        file: CsvFile, block: pa.RecordBatch, before: int, schema: pa.Schema, quarantine: Quarantine
    ) -> pa.Table:
        columns: list[pa.Array] = []
        reasons: dict[int, str] = {}
        for field in schema:
            values, bad = parse_column(block.column(field.name), field.type)
            columns.append(values)
            if bad.any():
                reasons |= {
                    int(at): f"{field.name} is not {TYPE_NAMES[field.type]}"
                    for at in np.flatnonzero(bad)
                    if int(at) not in reasons
                }
        table = pa.table(columns, schema=schema)
        if not reasons:
            return table
        good = np.ones(len(block), bool)
        for at, reason in sorted(reasons.items()):
            good[at] = False
            quarantine.add(file.file.name, file.row_number(before + at), reason, _csv_line(block, at))
        return table.filter(pa.array(good))


def _csv_line(block: pa.RecordBatch, at: int) -> str:
    """A row as CSV again."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        ["" if (value := column[at].as_py()) is None else value for column in block.columns]
    )
    return line.getvalue()
