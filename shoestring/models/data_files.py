"""Read the rows to predict from a file or a folder, and write predictions to a file, both in batches."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.core.errors import DataError, UsageError
from shoestring.data.source import ImageSettings, Source
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.images.image_tables import ImagePaths
from shoestring.data.sources.open_table import open_images, open_table
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.untyped_table import UntypedTable

BLOCK_BYTES = 8 << 20

SUFFIXES = (".parquet", ".arrow", ".csv", ".jsonl")

Write = Callable[[pa.Table], None]


@dataclass(frozen=True, slots=True)
class InputRows:
    """The rows of a file, or of the files of a folder: the columns of text files as text. Without rows there
    is one batch, which is empty."""

    columns: Sequence[str]
    batches: Iterator[pa.Table]


def require_place(path: Path) -> None:
    """Raise UsageError for a path where nothing is."""
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")


def open_rows(path: Path, image: ImageSettings | None = None) -> InputRows:
    """Open a file of CSV, JSON lines, Parquet or Arrow, or a folder of them; with `image` images.

    The batches raise DataError for a file that cannot be read, and for a row that is not one: each row gets
    its prediction, so none can be left out.
    """
    require_place(path)
    return rows_of(list_data_files(Source(path=path, image=image)), image)


def rows_of(files: Sequence[DataFile], image: ImageSettings | None = None) -> InputRows:
    """Open the files of one table as `open_rows` does."""
    if image is not None:
        images = open_images(image, files)
        if isinstance(images, ImagePaths) and image.column not in images.names:
            raise DataError(
                f"{files[0].name} has no column {image.column!r} with images or their paths: it has "
                f"{', '.join(images.table.names)}"
            )
        return InputRows(images.names, _one_or_more(_whole(images.batches), _as_read(images.names)))
    table = open_table(files)
    if isinstance(table, UntypedTable):
        rows = _whole(lambda quarantine: table.texts(BLOCK_BYTES, quarantine))
        return InputRows(table.names, _one_or_more(rows, _as_read(table.names)))
    return InputRows(table.names, _one_or_more(table.peek(table.names), table.schema))


def _as_read(names: Sequence[str]) -> pa.Schema:
    """Return the columns of text files, or of images, as they are read."""
    return pa.schema([(name, pa.binary() if name == IMAGE_COLUMN else pa.string()) for name in names])


def _one_or_more(batches: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the batches, or one without rows."""
    if (first := next(batches, None)) is None:
        first = schema.empty_table()
    yield first
    yield from batches


def _whole(read: Callable[[Quarantine], Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the rows. Raises DataError when some of them are set aside."""
    quarantine = Quarantine("rows", io.StringIO())
    for batch in read(quarantine):
        if quarantine.counts:
            break
        yield batch
    if quarantine.counts:
        raise DataError(
            f"a row cannot be read, so nothing is predicted: {quarantine.shown}: correct it, or remove it"
        )


def read_whole(rows: InputRows) -> pa.Table:
    """Return all rows of a table."""
    return pa.concat_tables([*rows.batches])


def require_no_folder(path: Path) -> None:
    """Raise IsADirectoryError for a folder."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def require_writable(path: Path) -> None:
    """Raise UsageError for a file whose suffix says no format, and IsADirectoryError for a folder."""
    require_no_folder(path)
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"{path} says no format: let its name end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )


@contextmanager
def writing(path: Path) -> Iterator[Write]:
    """Write tables of one schema to a file in the format of its suffix. The file is there once all is
    written. Raises what `require_writable` raises.
    """
    require_writable(path)
    with whole_file(path) as unfinished, ExitStack() as opened:
        yield _writer(path.suffix, unfinished, opened)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give the path of a file that becomes the one at `path` at the end; after an error there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _writer(suffix: str, path: Path, opened: ExitStack) -> Write:
    if suffix == ".jsonl":
        lines = opened.enter_context(path.open("w", encoding="utf-8"))

        def write_lines(table: pa.Table) -> None:
            for row in table.to_pylist():
                lines.write(json.dumps(row, default=str) + "\n")

        return write_lines
    kinds: dict[str, Callable[[Path, pa.Schema], Any]] = {
        ".parquet": partial(pq.ParquetWriter, compression="zstd"),
        ".arrow": pa.ipc.new_file,
        ".csv": pyarrow.csv.CSVWriter,
    }
    writers: list[Any] = []

    def write(table: pa.Table) -> None:
        if not writers:
            writers.append(opened.enter_context(kinds[suffix](path, table.schema)))
        writers[0].write_table(table)

    return write
