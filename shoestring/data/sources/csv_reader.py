"""Read tables from CSV files: once, in blocks, all columns as text first and then as their inferred kinds.

Arrow reads text and converts it as fast as it reads typed columns, and the conversion of text can go on after
a value that does not fit. DuckDB is as fast, but rounds 2.5 to a whole number, without a word, where decimals
first show beyond its sample (`bench/csv_ingest.py`).
"""

from __future__ import annotations

import csv
import io
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO

import pyarrow as pa
import pyarrow.csv

from shoestring.core.errors import DataError, ShoestringError
from shoestring.data.sources.column_types import TEXT_KINDS
from shoestring.data.sources.data_file import DataFile, open_unpacked, read_header
from shoestring.data.sources.fixed_kinds import NOT_FIXED, FixedKinds
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.untyped_table import UntypedTable
from shoestring.data.values import TEXT

MIN_BUFFER_BYTES = 1 << 16


class CsvFile:
    """One UTF-8 text file with a header, separated by commas, semicolons, tabs or bars. Raises DataError."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self.header = read_header(file)
        self._skipped = array("q")

    @property
    def name(self) -> str:
        return self.file.name

    def blocks(self, block_bytes: int, quarantine: Quarantine | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the right number of values, as text, and quarantine the others. Raises
        DataError."""

        def skip(row: pyarrow.csv.InvalidRow) -> str:
            if source.is_stopped:
                return "skip"
            self._skipped.append(row.number - len(self._skipped))
            if quarantine is not None:
                reason = f"{row.actual_columns} values instead of {row.expected_columns}"
                quarantine.add(self.name, row.number, reason, row.text)
            return "skip"

        self._skipped = array("q")
        with open_unpacked(self.file) as stream:
            source = StoppableStream(stream)
            reader = pyarrow.csv.open_csv(
                pa.PythonFile(source, "r"),
                # One thread: only then does Arrow report the row number of a skipped row.
                read_options=pyarrow.csv.ReadOptions(
                    block_size=_buffer_bytes(self.file, block_bytes), use_threads=False
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.header.delimiter, newlines_in_values=True, invalid_row_handler=skip
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.header.columns, TEXT),
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            )
            try:
                for block in reader:
                    yield block.rename_columns(self.header.names)
            finally:
                source.stop()
                drain(reader)

    def row_number(self, good_before: int) -> int:
        """Return the row number of the row after `good_before` well-formed rows.

        The header is row 1, and blank lines are not counted.
        """
        return good_before + 2 + bisect_right(self._skipped, good_before + 2)

    def row_text(self, block: pa.RecordBatch, index: int) -> str:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(
            ["" if (value := column[index].as_py()) is None else value for column in block.columns]
        )
        return line.getvalue()


def _buffer_bytes(file: DataFile, block_bytes: int) -> int:
    """Return the size of the buffers that Arrow makes: of a small file its own, since 8 MB take 3 ms."""
    is_packed = file.suffix in (".gz", ".zip")
    return block_bytes if is_packed else min(block_bytes, max(file.size_bytes + 1, MIN_BUFFER_BYTES))


class StoppableStream(io.RawIOBase):
    """A stream that ends where it is stopped."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.is_stopped = stream, False

    def stop(self) -> None:
        self.is_stopped = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return b"" if self.is_stopped else self._stream.read(size)


def drain(reader: pyarrow.csv.CSVStreamingReader) -> None:
    """Read what a reader has read ahead, so that it can be dropped.

    Arrow reads ahead in a thread that needs Python's lock. A reader that is dropped earlier waits for that
    thread while it holds the lock, which may be for ever.
    """
    with suppress(pa.ArrowException, OSError, ShoestringError):
        for _ in reader:
            pass


def open_csv_table(files: Sequence[DataFile], fixed: FixedKinds = NOT_FIXED) -> UntypedTable:
    """Open CSV files with the same columns, of which some have `fixed` kinds. Raises DataError."""
    found = [CsvFile(file) for file in files]
    names, first = found[0].header.names, found[0].name
    for other in found[1:]:
        if set(other.header.names) != set(names):
            raise DataError(
                f"{other.name} has the columns {', '.join(other.header.names)}, "
                f"and {first} has {', '.join(names)}"
            )
    return UntypedTable(found, dict.fromkeys(names, TEXT_KINDS), fixed)
