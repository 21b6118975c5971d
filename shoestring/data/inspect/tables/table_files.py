"""The files of the tables of a sample, and those of them that have the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shoestring.data.inspect.page_records import FileEntry
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.sources.data_file import DataFile
from shoestring.data.storage.blobs import file_digest

MAX_COMPARED_BYTES = 256 << 20
"""The bytes of files of equal size that are read to compare them, in about half a second."""

START_BYTES = 1 << 12
MAX_PAIRS_SHOWN = 5


def file_entries(samples: Mapping[str, TableSample]) -> tuple[FileEntry, ...]:
    """Return the files of all tables, if there are several of one table, with the rows of those that were
    read whole."""
    if all(len(sample.files) < 2 for sample in samples.values()):
        return ()
    return tuple(
        FileEntry(
            table=name, name=file.name, size_bytes=file.size_bytes, rows=sample.file_rows.get(file.name)
        )
        for name, sample in samples.items()
        for file in sample.files
    )


def doubled_files(samples: Mapping[str, TableSample]) -> Iterator[str]:
    """Yield a sentence for each file that has the same bytes as another one of its table."""
    left_bytes = MAX_COMPARED_BYTES
    for name, sample in samples.items():
        pairs = list[tuple[str, str]]()
        for files in _likely_equal(sample.files):
            size_bytes = files[0].size_bytes * len(files)
            if size_bytes > left_bytes:
                continue
            left_bytes -= size_bytes
            first: dict[str, str] = {}
            for file in files:
                assert isinstance(file.place, Path)
                same = first.setdefault(file_digest(file.place), file.name)
                if same != file.name:
                    pairs.append((file.name, same))
        for copy, same in pairs[:MAX_PAIRS_SHOWN]:
            yield f"table {name}: {copy} has the same bytes as {same}: its rows count twice; remove one"
        if len(pairs) > MAX_PAIRS_SHOWN:
            yield f"table {name}: {len(pairs) - MAX_PAIRS_SHOWN:,} more files have the same bytes as another"


def _likely_equal(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the files of this machine that have the size and the start of another one, smallest first."""
    by_size: dict[int, list[DataFile]] = {}
    for file in files:
        if isinstance(file.place, Path):
            by_size.setdefault(file.size_bytes, []).append(file)
    for _, found in sorted(by_size.items()):
        by_start: dict[bytes, list[DataFile]] = {}
        for file in found if len(found) > 1 else ():
            assert isinstance(file.place, Path)
            with file.place.open("rb") as stream:
                by_start.setdefault(stream.read(START_BYTES), []).append(file)
        yield from (each for each in by_start.values() if len(each) > 1)
