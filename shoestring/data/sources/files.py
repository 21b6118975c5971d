"""Find the data files of a recipe, estimate their size, and compute a fingerprint of their content."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore, RecipeError
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes
from shoestring.data.recipe import Recipe, Source
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.storage.blobs import file_digest

SAMPLE_BYTES = 1 << 20
MIN_ROWS = 3
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")

ERROR_HINTS = {
    "UTF8": "save it as UTF-8",
    "Empty CSV": "it has a header and no rows",
    "straddling": "a row is longer than 8 MB: look for a quote that is opened and never closed",
}
"""How to fix Arrow's errors, by a word in their message."""


class SourceSize(Record):
    """The estimated size of the source data: rows of the main table, decompressed bytes of all tables."""

    rows_estimate: int
    size_bytes: int
    row_bytes: int


class FileFingerprint(StoredRecord):
    """The stored digest of one source file, valid until the file's size or modification time changes."""

    path: str
    size_bytes: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table. Messages call it `name`."""

    path: Path
    name: str

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix.lower() in PARQUET_SUFFIXES

    @property
    def is_data(self) -> bool:
        lower = self.path.name.lower().removesuffix(".gz").removesuffix(".zip")
        return lower.endswith(TEXT_SUFFIXES) or self.is_parquet


def list_data_files(source: Source) -> tuple[DataFile, ...]:
    """Return the data files of one table, in reading order. Raises RecipeError when there are none;
    DataError."""
    place = source.locate()
    if place.is_file():
        found = [DataFile(place, place.name)]
    elif place.is_dir():
        paths = (path for path in place.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
        found = sorted(
            (DataFile(path, path.relative_to(place).as_posix()) for path in paths), key=lambda file: file.name
        )
        found = [file for file in found if file.is_data]
    else:
        raise RecipeError(
            f"there is no file or folder {place}: change `path` in the recipe, or put the data there"
        )
    if not found or not all(file.is_data for file in found):
        raise RecipeError(f"{place} is not, and does not contain, a .csv, .csv.gz, .csv.zip or .parquet file")
    if len({file.is_parquet for file in found}) == 2:
        raise DataError(f"{place} contains both text and Parquet files: use one kind of file for a table")
    for file in found:
        if file.path.stat().st_size == 0:
            raise DataError(f"{file.name} is empty: remove it, or put the data in it")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The columns as written in the file, and the delimiter: the most frequent of comma, semicolon, tab
    and bar."""

    columns: tuple[str, ...]
    delimiter: str

    @property
    def names(self) -> list[str]:
        """The columns without surrounding spaces."""
        return [column.strip() for column in self.columns]


@contextmanager
def explain_read_errors(file: DataFile) -> Iterator[None]:
    """Convert errors while reading a file to DataError, with the file's name and a hint."""
    try:
        yield
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file.name} is damaged or truncated ({error}): download or copy it again") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file.name} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from None
    except (pa.ArrowException, OSError) as error:
        hint = next(
            (hint for word, hint in ERROR_HINTS.items() if word in str(error)),
            "it may be damaged or truncated",
        )
        raise DataError(f"{file.name} cannot be read: {str(error).splitlines()[0]}: {hint}") from None


@contextmanager
def open_unpacked(file: DataFile) -> Iterator[IO[bytes]]:
    """Open a text file for reading, decompressed if it is a .zip or .gz file. Raises DataError."""
    suffix = file.path.suffix.lower()
    with explain_read_errors(file):
        if suffix == ".zip":
            with zipfile.ZipFile(file.path) as archive, archive.open(_only_member(archive, file)) as member:
                yield member
        elif suffix == ".gz":
            with gzip.open(file.path) as stream:
                yield io.BufferedReader(stream)
        else:
            with file.path.open("rb") as plain:
                yield plain


def read_header(file: DataFile) -> CsvHeader:
    """Read the header: the first non-blank line of a text file. Raises DataError when names are missing
    or repeated."""
    with open_unpacked(file) as stream:
        lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
        first = next((line for line in lines if line.strip("\r\n")), "")
        delimiter = max(",;\t|", key=first.count)
        # A quoted name may contain a line break: the header then continues on the next line.
        names = next(csv.reader(chain([first], lines), delimiter=delimiter), [])
        lines.detach()
    if not first:
        raise DataError(f"{file.name} is empty: remove it, or put the data in it")
    header = CsvHeader(tuple(names), delimiter)
    if bad := sorted({name for name in header.names if not name or header.names.count(name) > 1}):
        raise DataError(
            f"{file.name}: every column needs a unique name in the header; "
            f"missing or repeated: {', '.join(map(repr, bad))}"
        )
    return header


def estimate_size(recipe: Recipe) -> SourceSize:
    """Estimate the size of the source data from the sizes of the files and their first megabyte.

    Also checks that the columns named in the recipe exist, so that no money is spent on a recipe that
    cannot work. Raises RecipeError, DataError.
    """
    rows, size_bytes, row_bytes = 0, 0, 1
    columns: dict[str, Sequence[str]] = {}
    for name, source in recipe.source.items():
        for file in list_data_files(source):
            file_rows, file_bytes, columns[name] = (
                _parquet_size(file) if file.is_parquet else _text_size(file)
            )
            size_bytes += file_bytes
            if name == recipe.main:
                rows, row_bytes = rows + file_rows, max(row_bytes, 8 * len(columns[name]))
    check_columns(recipe, columns)
    if rows < MIN_ROWS:
        raise DataError(
            f"table {recipe.main} has {rows} row{'s' * (rows != 1)}: "
            "training, validation and test need at least one each"
        )
    return SourceSize(rows_estimate=rows, size_bytes=size_bytes, row_bytes=row_bytes)


def fingerprint(recipe: Recipe, store: Store) -> str:
    """Return the SHA-256 of the content of all source files. Raises RecipeError, DataError.

    The store caches the digest of each file by path, size and modification time, so that later runs need
    not read the file.
    """
    parts = []
    for name, source in sorted(recipe.source.items()):
        parts += [f"{name}/{file.name} {_cached_digest(file, store)}" for file in list_data_files(source)]
    return digest("\n".join(parts).encode())


def _cached_digest(file: DataFile, store: Store) -> str:
    stat = file.path.stat()
    path = str(file.path.absolute())
    key = store_layout.fingerprint(digest(f"{path} {stat.st_size} {stat.st_mtime_ns}".encode()))
    try:
        return FileFingerprint.model_validate_json(store.fetch(key).read_bytes()).sha256
    except (NotInStore, ValueError):
        sha256 = file_digest(file.path)
        found = FileFingerprint(path=path, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256)
        store.put(key, record_bytes(found))
        return sha256


def _only_member(archive: zipfile.ZipFile, file: DataFile) -> zipfile.ZipInfo:
    members = [
        member
        for member in archive.infolist()
        if not member.is_dir() and not member.filename.startswith("__MACOSX/")
    ]
    if len(members) != 1:
        raise DataError(
            f"{file.name} contains {len(members)} files instead of one: "
            "unpack it into a folder, and name the folder in the recipe"
        )
    return members[0]


def _parquet_size(file: DataFile) -> tuple[int, int, Sequence[str]]:
    with explain_read_errors(file):
        found = pq.read_metadata(file.path)
    size_bytes = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
    return found.num_rows, size_bytes, found.schema.to_arrow_schema().names


def _text_size(file: DataFile) -> tuple[int, int, Sequence[str]]:
    """Return rows, bytes and columns of a text file. A large file is extrapolated from the bytes a line
    in a sample."""
    header = read_header(file)
    with open_unpacked(file) as stream:
        sample = stream.read(SAMPLE_BYTES)
    lines = sample.count(b"\n") + (not sample.endswith(b"\n"))
    size_bytes = unpacked_bytes(file)
    return max(round(lines * size_bytes / len(sample)) - 1, 0), size_bytes, header.names


def unpacked_bytes(file: DataFile) -> int:
    """Return the size of a file's content; of a large .gz file an estimate. Raises DataError."""
    packed_bytes = file.path.stat().st_size
    suffix = file.path.suffix.lower()
    with explain_read_errors(file):
        if suffix == ".zip":
            with zipfile.ZipFile(file.path) as archive:
                return _only_member(archive, file).file_size
        if suffix == ".gz":
            # Extrapolated from a sample: the size in a gzip trailer is modulo 2**32, and wrong for a
            # truncated file.
            with file.path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
                sample_bytes = len(stream.read(SAMPLE_BYTES))
                return round(packed_bytes * sample_bytes / packed.tell()) if stream.read(1) else sample_bytes
    return packed_bytes
