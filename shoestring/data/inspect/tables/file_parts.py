"""The first, the middle and the last part of a large text file, each as a file of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from shoestring.data.inspect.tables.table_sample import MAX_SAMPLE_FILES
from shoestring.data.sources.column_types import ColumnKind, kind_name
from shoestring.data.sources.csv_reader import CsvFile
from shoestring.data.sources.data_file import (
    SAMPLE_BYTES,
    DataFile,
    explain_read_errors,
    open_unpacked,
    unpacked_bytes,
)
from shoestring.data.sources.text.dialect import lines_of
from shoestring.data.sources.text.encodings import UTF8
from shoestring.data.sources.text.header import Header
from shoestring.data.sources.untyped_table import UntypedTable
from shoestring.data.values import TEXT

PARTS = 3
PACKED = (".gz", ".zip")

LINES_TRIED = 50
LINES_COMPARED = 40
COMPARED_BYTES = 1 << 16
ROWS_COMPARED = 1000
MIN_ROWS = 5
"""A line begins a row if of this many lines from it on, at least so many rows have all values and none has
another number of them."""


def file_parts(file: DataFile, size_bytes: int, folder: Path) -> Sequence[DataFile]:
    """Return three parts of a text file, written to `folder`, that have `size_bytes` together.

    The file alone: it is not larger, it is compressed or typed, or its lines do not end in one byte. A part
    of CSV begins with the header of the file. It begins at the start of a row, as far as the next rows show
    where that is.

    Raises DataError.
    """
    if file.kind not in ("csv", "json") or file.suffix in PACKED or file.size_bytes <= size_bytes:
        return (file,)
    found = CsvFile(file) if file.kind == "csv" else None
    part_bytes = size_bytes // PARTS
    parts = list[DataFile]()
    with open_unpacked(file, is_whole=False) as stream:
        start = stream.read(SAMPLE_BYTES)
        if b"\n" not in start or b"\0" in start:
            return (file,)
        header = _header(found.header, start) if found else b""
        for place in (0, (file.size_bytes - part_bytes) // 2, file.size_bytes - part_bytes):
            stream.seek(place)
            part = stream.read(part_bytes)
            # The row at the end of the last part is whole.
            part = part if place + len(part) == file.size_bytes else part[: part.rfind(b"\n") + 1]
            written = folder / f"{len(list(folder.iterdir()))}{file.suffix}"
            written.write_bytes(header + part[_row_start(part, found) :] if place else part)
            parts.append(DataFile(written, _part_name(file, place) if place else file.name, file.read))
    return [_as_found(part, found) for part in parts] if found else parts


def _part_name(file: DataFile, place: int) -> str:
    """Return the name of a part, in the folders of its file, which may have keys."""
    whole = PurePosixPath(file.name)
    return whole.with_name(f"the part from byte {place:,} on of {whole.name}").as_posix()


def _header(header: Header, start: bytes) -> bytes:
    """Return the lines before the first row. `Header` counts their bytes in UTF-8."""
    lines = start.decode(errors="replace").encode()[: header.skipped_bytes].count(b"\n")
    return b"".join(start.splitlines(keepends=True)[:lines])


def _row_start(part: bytes, found: CsvFile | None) -> int:
    """Return where the first row begins in a part of a file, which may begin within a quoted value."""
    starts = list[int]()
    place = 0
    while len(starts) < LINES_TRIED and (place := part.find(b"\n", place) + 1):
        starts.append(place)
    if found is None:
        return starts[0] if starts else len(part)
    names, likely = len(found.header.names), list[int]()
    for place in starts:
        text = part[place : place + COMPARED_BYTES].decode(found.encoding, errors="replace")
        rows = [row for _, row in found.dialect.rows(lines_of(text)[:LINES_COMPARED])][:-1]
        if len(rows) >= MIN_ROWS and all(len(row) == names for row in rows):
            # The end of a quoted value has a quote that begins none.
            if not found.dialect.quote or not any(found.dialect.quote in cell for cell in rows[0]):
                return place
            likely.append(place)
    return (likely or starts or [len(part)])[0]


def _as_found(part: DataFile, found: CsvFile) -> DataFile:
    """Return a part that is read like the whole file, whatever its own rows look like."""
    dialect, read = found.dialect, part.read
    changes: dict[str, object] = {
        "delimiter": dialect.delimiter,
        "quote": dialect.quote,
        "comment": dialect.comment or None,
        "escape": read.escape or ("\\" if dialect.has_escapes else None),
        # ASCII may change to another encoding at any place.
        "encoding": read.encoding if found.encoding == UTF8 else found.encoding,
    }
    return replace(part, read=read.model_copy(update=changes))


def content_bytes(file: DataFile) -> int:
    """Return the size of the content of a file, of Parquet without its compression. Raises DataError."""
    if file.kind != "parquet":
        return unpacked_bytes(file)
    with explain_read_errors(file):
        found = pq.read_metadata(file.start())
    return sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))


def part_text(read: Sequence[DataFile], files: Sequence[DataFile], part_bytes: int, table_bytes: int) -> str:
    """Return which part of a table was read. `read`: the files, or their parts."""
    chosen = min(len(files), MAX_SAMPLE_FILES)
    of_file = part_bytes / chosen
    if len(read) > chosen:
        part = f"first, middle and last {of_file / PARTS / 1e6:.1f} MB"
    else:
        part = f"first {of_file / 1e6:.1f} MB"
    of = f"{table_bytes / 1e9:,.1f} GB" if table_bytes >= 1e9 else f"{table_bytes / 1e6:,.0f} MB"
    return (
        f"the {part} of {of}" if len(files) == 1 else f"the {part} of {chosen} of {len(files):,} files, {of}"
    )


def late_texts(parts: Sequence[tuple[str, pa.Table]], table: UntypedTable) -> Iterator[str]:
    """Yield a sentence for each column that is text in a later part, and of another kind in the first one.

    `parts`: the name of each part and its first rows, as text.
    """
    (first, rows), *later = parts
    for name in rows.column_names:
        kind = _kind(rows, name, table)
        if kind is None or kind == TEXT:
            continue
        for part, others in later:
            if name in others.column_names and _kind(others, name, table) == TEXT:
                example = next((each for each in others[name].to_pylist() if each), "")
                yield f"column {name}: {kind_name(kind)} in {first}, and text in {part}, such as {example!r}"
                break


def _kind(rows: pa.Table, name: str, table: UntypedTable) -> ColumnKind | None:
    """Return the kind of a column in these rows alone; None if it has no value."""
    guess = table.guess(name)
    guess.add(rows[name].combine_chunks())
    return guess.kind() if guess.has_values else None
