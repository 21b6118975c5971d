"""Read tables from CSV files: once, in blocks, all columns as text first and then as their inferred kinds.

Arrow reads text and converts it as fast as it reads typed columns, and the conversion of text can go on after
a value that does not fit. DuckDB is as fast, but rounds 2.5 to a whole number, without a word, where decimals
first show beyond its sample (`bench/csv_ingest.py`).
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from shoestring.core.errors import DataError, ShoestringError
from shoestring.data.sources.data_file import SAMPLE_BYTES, DataFile, open_unpacked
from shoestring.data.sources.folders.keyed_file import with_folder_keys
from shoestring.data.sources.quarantine import Misfit, Quarantine
from shoestring.data.sources.table import TypesChanged
from shoestring.data.sources.text.dialect import Dialect, find_dialect
from shoestring.data.sources.text.encodings import REPLACED, UTF8, Utf8Stream, find_encoding
from shoestring.data.sources.text.fixed_kinds import NOT_FIXED, FixedKinds, kinds_as_read
from shoestring.data.sources.text.footer import NOTE_REASON, footer_reasons, is_note, is_unclosed
from shoestring.data.sources.text.header import Header, HeaderFinder
from shoestring.data.sources.text.table_text import ReusedBuffer, TableText
from shoestring.data.sources.untyped_table import UntypedTable, without_spellings
from shoestring.data.values import TEXT

MIN_BUFFER_BYTES = 1 << 16
HEAD_BYTES, MIN_HEAD_LINES = 1 << 17, 50
"""The start of a file from which is inferred how it is written: a megabyte, if this has fewer lines."""
BINARY = {
    b"PK\x03\x04": "a ZIP archive, such as an Excel workbook",
    b"\x1f\x8b": "compressed with gzip",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\xd0\xcf\x11\xe0": "an old Office document, such as an Excel workbook",
    b"%PDF-": "a PDF document",
    b"SQLite format 3": "a SQLite database",
}
"""How files begin that are no text."""
MAX_EXAMPLE_CHARACTERS = 40
MAX_LATE_VALUES = 1000
"""More values in columns without a name, which the first rows do not have, are not left out."""
NULLS = ["", "\\N"]
"""An empty value is missing in any column; so is \\N, as databases write it."""


class CsvFile:
    """One text file of rows with delimiters. How it is written is inferred from its start, except for that
    which its `read` states. Where it starts as `like` does, another file of the table, it is written like it.
    Raises DataError."""

    dialect: Dialect
    header: Header
    start: bytes
    """The text before the first row."""

    def __init__(self, file: DataFile, like: CsvFile | None = None) -> None:
        self.file = file
        with open_unpacked(file, is_whole=False) as stream:
            head = stream.read(HEAD_BYTES)
            if head.count(b"\n") < MIN_HEAD_LINES:
                head += stream.read(SAMPLE_BYTES - len(head))
        if kind := next((kind for start, kind in BINARY.items() if head.startswith(start)), ""):
            raise DataError(
                f"{file.name} is {kind}, not text: save it as CSV, or name it for its kind, such as .csv.gz, "
                ".csv.zip or .parquet (CSV, JSON lines, Parquet and Arrow are read)"
            )
        self.encoding = self._last_encoding = find_encoding(head, file.name, file.read.encoding)
        data = Utf8Stream(io.BytesIO(head), file.name, self.encoding).read()
        foreign = re.search(r"\w*[^\x00-\x7f]+\w*", data.decode()) if self.encoding != UTF8 else None
        self._example = foreign[0][:MAX_EXAMPLE_CHARACTERS] if foreign else ""
        if like is not None and data.startswith(like.start):
            self.dialect, self.header, self.start = like.dialect, like.header, like.start
        else:
            text, is_whole = data.decode(), len(head) < HEAD_BYTES
            self.dialect = find_dialect(text, file.read)
            finder = HeaderFinder(text, self.dialect, file.read, file.name, is_whole=is_whole)
            self.header = finder.find()
            self.start = data[: self.header.skipped_bytes]
        self.names = [name for name in self.header.names if name not in self.header.unused]
        self._skipped, self._late_values = array("q"), 0
        self._bad: deque[tuple[int, pyarrow.csv.InvalidRow]] = deque()

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def keys(self) -> dict[str, str | None]:
        return self.file.keys

    @property
    def remarks(self) -> Sequence[str]:
        """How the file is read, if it is not plain, as parts of a sentence."""
        found = [*self.header.remarks]
        if self.dialect.comment:
            found.append(f"lines that begin with {self.dialect.comment} left out")
        if self._last_encoding != UTF8 and self.file.read.encoding is None:
            example = f" (such as {self._example!r})" if self._example else ""
            found.append(
                f"read as {self._last_encoding}{example}; `read: {{encoding: ...}}` states another encoding"
            )
        return found

    def blocks(self, block_bytes: int, quarantine: Quarantine | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the right number of values, as text, and quarantine the others.

        Raises DataError; TypesChanged once, if escaped quotes show beyond the start of the file.
        """
        aside = quarantine or Quarantine(self.name, io.StringIO())
        self._skipped, self._bad, self._late_values, rows = array("q"), deque(), 0, 0
        with open_unpacked(self.file) as stream:
            text = Utf8Stream(ReusedBuffer(stream), self.name, self.encoding)
            source = TableText(text, self.dialect, self.header.skipped_bytes)
            if (reader := self._open(source, block_bytes)) is None:
                return
            try:
                for whole, is_last in _marked(reader):
                    if quarantine is not None and source.has_late_escapes and self.file.read.escape is None:
                        self.dialect = self.dialect._replace(has_escapes=True)
                        raise TypesChanged
                    block = self._named(whole, rows, aside)
                    self._set_aside(rows + block.num_rows, aside, is_last=is_last)
                    kept = self._without_footer(block, rows, source.tail, aside) if is_last else block
                    kept = self._readable(kept, rows, aside) if text.is_damaged else kept
                    yield without_spellings(kept, self.file.read.missing)
                    rows += block.num_rows
            finally:
                self._last_encoding = text.encoding
                source.stop()
                drain(reader)

    def _open(self, source: TableText, block_bytes: int) -> pyarrow.csv.CSVStreamingReader | None:
        """Return what reads the rows; None if there are none."""

        def skip(row: pyarrow.csv.InvalidRow) -> str:
            if not source.is_stopped:
                self._bad.append((row.number - 1 - len(self._skipped), row))
                self._skipped.append(self._bad[-1][0])
            return "skip"

        names = [*self.header.names]
        try:
            return pyarrow.csv.open_csv(
                pa.PythonFile(source, "r"),
                # One thread: only then does Arrow report the row number of a skipped row.
                read_options=pyarrow.csv.ReadOptions(
                    block_size=_buffer_bytes(self.file, block_bytes), use_threads=False, column_names=names
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.dialect.delimiter,
                    quote_char=self.dialect.quote or False,
                    newlines_in_values=True,
                    invalid_row_handler=skip,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, TEXT),
                    include_columns=[*self.names, *sorted(self.header.empty)],
                    strings_can_be_null=True,
                    null_values=NULLS,
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return None
            raise

    def _named(self, block: pa.RecordBatch, before: int, quarantine: Quarantine) -> pa.RecordBatch:
        """Return a block without the columns that have neither a name nor, in the first rows, values.
        Quarantine values that they have. Raises DataError for many."""
        for name in sorted(self.header.empty):
            values = pc.utf8_trim_whitespace(block[name])
            found = pc.indices_nonzero(pc.fill_null(pc.not_equal(values, ""), False)).to_pylist()
            self._late_values += len(found)
            for index in found[:MAX_LATE_VALUES]:
                number, text = self.row_number(before + index), self.row_text(block, index)
                misfit = Misfit(name, block[name][index].as_py())
                quarantine.add_cell(self.name, number, f"{name} has no name", text, misfit)
            if self._late_values > MAX_LATE_VALUES:
                raise DataError(
                    f"{self.name}: {name} has no name and no values at the start, but {self._late_values:,} "
                    f"such as {misfit.value[:80]!r} up to row {self.row_number(before + found[-1]):,}: name "
                    "all columns in the source of the table, such as `read: {columns: [first, second, ...]}`"
                )
        return block.select(self.names) if self.header.empty else block

    def _set_aside(self, good: int, quarantine: Quarantine, *, is_last: bool) -> None:
        """Quarantine the rows with another number of values before `good` others, and of the last block those
        after them, which may be notes below the table."""
        is_below = False
        while self._bad and (is_last or self._bad[0][0] < good):
            before, row = self._bad.popleft()
            is_below |= before == good and is_note(row.text)
            reason = f"{row.actual_columns} values instead of {row.expected_columns}"
            number = self.header.first_row + row.number - 1
            if is_below:
                quarantine.add(self.name, number, NOTE_REASON, row.text, is_damage=False)
            else:
                quarantine.add(self.name, number, reason, row.text)

    def _without_footer(
        self, block: pa.RecordBatch, before: int, tail: str, quarantine: Quarantine
    ) -> pa.RecordBatch:
        """Return the last rows without those that are totals or notes, and one that ends in a quote."""
        if is_unclosed(block, tail, self.dialect.delimiter, self.dialect.quote):
            index = block.num_rows - 1
            reason, text = "a quote that is never closed", self.row_text(block, index)
            quarantine.add(self.name, self.row_number(before + index), reason, text)
            return block[:index]
        if not (reasons := footer_reasons(block)):
            return block  # A slice is written with other bytes.
        rows = block.num_rows - len(reasons)
        for index, reason in enumerate(reasons, rows):
            number, text = self.row_number(before + index), self.row_text(block, index)
            quarantine.add(self.name, number, reason, text, is_damage=False)
        return block[:rows]

    def _readable(self, block: pa.RecordBatch, before: int, quarantine: Quarantine) -> pa.RecordBatch:
        """Return a block without the values that hold bytes that are no text."""
        columns: list[pa.Array] = []
        for name, column in zip(block.schema.names, block.columns, strict=True):
            bad = pc.fill_null(pc.match_substring(column, REPLACED), False)
            for index in pc.indices_nonzero(bad).to_pylist():
                misfit = Misfit(name, column[index].as_py())
                number, text = self.row_number(before + index), self.row_text(block, index)
                quarantine.add_cell(self.name, number, f"{name} is not {self.encoding} text", text, misfit)
            columns.append(pc.if_else(bad, pa.scalar(None, TEXT), column))
        return pa.RecordBatch.from_arrays(columns, block.schema.names)

    def row_number(self, good_before: int) -> int:
        """Return the row number of the row after `good_before` well-formed rows.

        The header is row 1. Lines before it, blank lines and comments are not counted.
        """
        return self.header.first_row + good_before + bisect_right(self._skipped, good_before)

    def row_text(self, block: pa.RecordBatch, index: int) -> str:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(
            ["" if (value := column[index].as_py()) is None else value for column in block.columns]
        )
        return line.getvalue()


def _marked(reader: pyarrow.csv.CSVStreamingReader) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield the blocks, each with whether it is the last one."""
    last = None
    for block in reader:
        if last is not None:
            yield last, False
        last = block
    if last is not None:
        yield last, True


def _buffer_bytes(file: DataFile, block_bytes: int) -> int:
    """Return the size of the buffers that Arrow makes: of a small file its own, since 8 MB take 3 ms.

    Text in another encoding than UTF-8 may be longer in it.
    """
    is_packed = file.suffix in (".gz", ".zip")
    return block_bytes if is_packed else min(block_bytes, max(2 * file.size_bytes + 1, MIN_BUFFER_BYTES))


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
    found: list[CsvFile] = []
    for file in files:
        found.append(CsvFile(file, found[-1] if found else None))
    names, first = found[0].names, found[0].name
    for other in found[1:]:
        if {*other.names} != {*names}:
            raise DataError(
                f"{other.name} has the columns {', '.join(other.names)}, and {first} has {', '.join(names)}"
            )
    kinds = dict.fromkeys(names, kinds_as_read(files[0].read))
    return UntypedTable(*with_folder_keys(found, kinds), fixed)
