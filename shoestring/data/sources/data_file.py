"""Open one data file: its kind, its bytes without compression, and errors with its name."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import gettempdir
from typing import IO, Literal
from urllib.parse import unquote

import pyarrow as pa

from shoestring.core.errors import NO_SPACE, DataError, StoreFull
from shoestring.data.source import ReadSettings
from shoestring.data.sources.remote.remote_file import RemoteFile
from shoestring.data.sources.text.unpacked_stream import UnpackedStream
from shoestring.data.split_settings import SPLIT_COLUMN, split_of_name

SAMPLE_BYTES = 1 << 20
FileKind = Literal["csv", "json", "parquet", "arrow"]
SUFFIXES: dict[FileKind, tuple[str, ...]] = {
    "csv": (".csv", ".tsv", ".txt"),
    "json": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather"),
}
"""A .json file may be anything; a compressed one is read as lines."""

ERROR_HINTS = {
    "straddling": "a row is longer than 8 MB: look for a quote that is opened and never closed",
}
"""How to fix Arrow's errors, by a word in their message."""

MISSING_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How Hive, Spark and others name the folder of a key without a value."""

AS_INFERRED = ReadSettings()


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table, on this machine or on a server. Messages call it `name`. `read`: how its text is
    read, where the recipe states it. `splits`: it is named by the split of its rows."""

    place: Path | RemoteFile
    name: str
    read: ReadSettings = AS_INFERRED
    splits: bool = False

    @property
    def keys(self) -> dict[str, str | None]:
        """The columns that the names of the file and its folders give, and their values, without escapes;
        None is a missing value."""
        found: dict[str, str | None] = {}
        for folder in PurePosixPath(self.name).parts[:-1]:
            key, sign, value = folder.partition("=")
            if key and sign:
                found[unquote(key)] = None if value in ("", MISSING_VALUE) else unquote(value)
        return found | ({SPLIT_COLUMN: split_of_name(self.name)} if self.splits else {})

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix.lower()

    @property
    def size_bytes(self) -> int:
        return self.place.stat().st_size if isinstance(self.place, Path) else self.place.found.size_bytes

    def whole(self) -> Path | IO[bytes]:
        """Return what reads the whole file. Where ingest reads, a remote file is fetched for it."""
        return self.place if isinstance(self.place, Path) else self.place.whole()

    def start(self) -> Path | IO[bytes]:
        """Return what reads a little of the file, like its header. A remote file is not fetched for it."""
        return self.place if isinstance(self.place, Path) else self.place.ranges()

    @property
    def kind(self) -> FileKind | None:
        """How the file is read, by its name; None if it is no table."""
        lower = self.name.lower()
        plain = lower.removesuffix(".gz").removesuffix(".zip")
        if plain.endswith(".json") and plain != lower:
            return "json"
        found = next((kind for kind, suffixes in SUFFIXES.items() if plain.endswith(suffixes)), None)
        return None if found in ("parquet", "arrow") and plain != lower else found


@contextmanager
def explain_read_errors(file: DataFile) -> Iterator[None]:
    """Convert errors while reading a file to DataError, with the file's name and a hint. Raises StoreFull
    when the disk of temporary files is full."""
    try:
        yield
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file.name} is damaged or truncated ({error}): download or copy it again") from None
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) in NO_SPACE:
            raise StoreFull(
                f"no space left in {gettempdir()} while {file.name} is read: free some space, or set TMPDIR "
                "to a larger disk (a pod: ephemeral storage)"
            ) from None
        hint = next(
            (hint for word, hint in ERROR_HINTS.items() if word in str(error)),
            "it may be damaged or truncated",
        )
        raise DataError(f"{file.name} cannot be read: {str(error).splitlines()[0]}: {hint}") from None


@contextmanager
def open_unpacked(file: DataFile, *, is_whole: bool = True) -> Iterator[IO[bytes]]:
    """Open a text file for reading, decompressed if it is a .zip or .gz file. Raises DataError.

    `is_whole`: all of it will be read, and not only its start.
    """
    with explain_read_errors(file), _open_packed(file, is_whole=is_whole) as packed:
        if file.suffix == ".zip":
            with zipfile.ZipFile(packed) as archive, archive.open(_only_member(archive, file)) as member:
                yield _bounded(member, file)
        elif file.suffix == ".gz":
            with gzip.open(packed) as stream:
                yield _bounded(stream, file)
        else:
            yield packed


def _bounded(stream: IO[bytes] | gzip.GzipFile, file: DataFile) -> IO[bytes]:
    return io.BufferedReader(UnpackedStream(stream, file.name, file.size_bytes), SAMPLE_BYTES)


def _open_packed(file: DataFile, *, is_whole: bool) -> IO[bytes]:
    place = file.whole() if is_whole else file.start()
    return place.open("rb") if isinstance(place, Path) else place


def unpacked_bytes(file: DataFile) -> int:
    """Return the size of a file's content; of a large .gz file an estimate. Raises DataError."""
    packed_bytes = file.size_bytes
    if file.suffix not in (".zip", ".gz"):
        return packed_bytes
    with explain_read_errors(file), _open_packed(file, is_whole=False) as packed:
        if file.suffix == ".zip":
            with zipfile.ZipFile(packed) as archive:
                return _only_member(archive, file).file_size
        # Extrapolated from a sample: the size in a gzip trailer is modulo 2**32, and wrong for a truncated
        # file.
        with gzip.GzipFile(fileobj=packed) as stream:
            sample_bytes = len(stream.read(SAMPLE_BYTES))
            return round(packed_bytes * sample_bytes / packed.tell()) if stream.read(1) else sample_bytes


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
