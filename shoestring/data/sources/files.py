"""Find the data files of a recipe, and estimate their size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import RemoteSources
from shoestring.core.record import Record
from shoestring.data.needs.table_needs import NO_TABLES, VALUE_BYTES, TableSizes
from shoestring.data.recipe import Recipe
from shoestring.data.source import Source
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.csv_reader import CsvFile
from shoestring.data.sources.data_file import (
    SAMPLE_BYTES,
    DataFile,
    FileKind,
    explain_read_errors,
    open_unpacked,
    unpacked_bytes,
)
from shoestring.data.sources.documents.text_files import is_text, require_texts, text_size
from shoestring.data.sources.folders.folder_keys import require_equal_keys
from shoestring.data.sources.folders.hidden import is_visible
from shoestring.data.sources.folders.spreadsheets import is_spreadsheet, spreadsheet_error
from shoestring.data.sources.images.image_files import ImageFiles, list_image_files
from shoestring.data.sources.images.image_tables import LABEL_COLUMN, PATH_COLUMN, IdxImages
from shoestring.data.sources.json_reader import JsonLinesFile
from shoestring.data.sources.parquet_reader import open_arrow
from shoestring.data.sources.remote.fetch import FetchFolder
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.data.sources.remote.remote_file import RemoteFile
from shoestring.data.sources.typed.arrow_types import LeftOut
from shoestring.data.sources.typed.typed_columns import TypedColumns
from shoestring.data.split_settings import SPLIT_COLUMN, split_of_name

MIN_ROWS = 3
TEXT_KINDS = ("csv", "json")
MAX_BATCH_BYTES = 16 << 20
"""A larger batch of a remote Arrow file is not read for an estimate."""
KIND_NAMES: dict[FileKind, str] = {
    "csv": "text",
    "json": "JSON lines",
    "parquet": "Parquet",
    "arrow": "Arrow",
}


class SourceSize(Record):
    """The estimated size of the source data: rows of the main table, decompressed bytes of all tables."""

    rows_estimate: int
    size_bytes: int
    row_bytes: int
    tables: TableSizes = NO_TABLES


def list_data_files(
    source: Source, remote: RemoteSources = NO_REMOTE_SOURCES, fetched: FetchFolder | None = None
) -> tuple[DataFile, ...]:
    """Return the data files of one table, in reading order; of a table of images those as well.

    `fetched`: where a remote file is fetched to when it is read whole; None: it is read in ranges.

    Raises RecipeError when there are none; DataError; what RemoteSources raises.
    """
    if source.image is not None:
        images = list_image_files(source, remote, fetched)
        if tables := [*ImageFiles.of(images).tables]:
            _checked(tables, source.url or source.locate())
        return _named_by_split(source, images)
    has_files_of_text = source.text is not None and not source.text.column
    is_wanted = is_text if has_files_of_text else is_table
    place: object = source.url
    if source.url is not None:
        found = _remote_files(source.url, remote, fetched, is_wanted)
    else:
        place = source.locate()
        found = _local_files(place, is_wanted)
    if source.read is not None:
        found = [replace(file, read=source.read) for file in found]
    files = require_texts(found, place) if has_files_of_text else _checked(found, place)
    return _named_by_split(source, files)


def _named_by_split(source: Source, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """Return the files of a source, marked where their names have to name the splits of their rows. Raises
    RecipeError for one whose name does not."""
    if not source.splits:
        return tuple(files)
    if source.image is None or not ImageFiles.of(files).tables:  # Else the paths in the table may.
        splits = {file.name: split_of_name(file.name) for file in files}
        for name, split in splits.items():
            if split is None:
                raise RecipeError(
                    f"`splits`: {name} names no split, as train.csv, valid/{PurePosixPath(name).name} or "
                    "test-1.parquet would: rename it, or remove `splits`"
                )
        if "train" not in splits.values():
            name, split = next(iter(splits.items()))
            raise RecipeError(
                f"`splits`: no file is named by train, and {name} by {split}: add the files of train, or "
                "remove `splits`"
            )
    return tuple(replace(file, splits=True) for file in files)


def is_table(file: DataFile) -> bool:
    """Return whether a file of a folder holds a table, or sheets of them, by its name."""
    return (file.kind is not None or is_spreadsheet(file)) and is_visible(file.name)


def _local_files(place: Path, is_wanted: Callable[[DataFile], bool]) -> list[DataFile]:
    if place.is_file():
        return [DataFile(place, place.name)]
    if not place.is_dir():
        raise RecipeError(
            f"there is no file or folder {place}: change `path` in the recipe, or put the data there"
        )
    paths = (path for path in place.rglob("*") if path.is_file())
    found = (DataFile(path, path.relative_to(place).as_posix()) for path in paths)
    return sorted(filter(is_wanted, found), key=lambda file: file.name)


def _remote_files(
    url: str, remote: RemoteSources, fetched: FetchFolder | None, is_wanted: Callable[[DataFile], bool]
) -> list[DataFile]:
    found = sorted(remote.list(url), key=lambda each: each.name)
    files = [DataFile(RemoteFile(each, remote, fetched), each.name) for each in found]
    if len(found) == 1 and found[0].url == url:
        return files
    return [*filter(is_wanted, files)]


def _checked(found: list[DataFile], place: object) -> tuple[DataFile, ...]:
    """Return the files of one table if they can be read together. Raises RecipeError, DataError."""
    if (sheets := next(filter(is_spreadsheet, found), None)) is not None:
        raise spreadsheet_error(sheets)
    if not found or not all(file.kind for file in found):
        raise RecipeError(
            f"{place} is not, and does not contain, a .csv, .csv.gz, .csv.zip, .jsonl, "
            ".parquet or .arrow file; in a folder, names that begin with . or _ are skipped"
        )
    if len(kinds := {file.kind: KIND_NAMES[file.kind] for file in found if file.kind}) > 1:
        raise DataError(
            f"{place} contains both {' and '.join(sorted(kinds.values(), reverse=True))} files: "
            "use one kind of file for a table"
        )
    for file in found:
        if file.size_bytes == 0:
            raise DataError(f"{file.name} is empty: remove it, or put the data in it")
    require_equal_keys(found)
    return tuple(found)


def estimate_size(
    recipe: Recipe, remote: RemoteSources = NO_REMOTE_SOURCES, *, learns: bool = True
) -> SourceSize:
    """Estimate the size of the source data from the sizes of the files and their first megabyte.

    Also checks that the columns named in the recipe exist, so that no money is spent on a recipe that
    cannot work; unless `learns` is false: rows that are only predicted may lack the target, and be few.
    Raises RecipeError, DataError.
    """
    found: dict[str, FileSize] = {}
    for name, source in recipe.source.items():
        files = list_data_files(source, remote)
        if source.text is not None:
            rows, size_bytes = text_size(source.text, files)
            return SourceSize(rows_estimate=rows, size_bytes=size_bytes, row_bytes=source.text.row_tokens)
        found[name] = _table_size(files) if source.image is None else _images_size(files)
    main = found[recipe.main]
    if learns:
        left_out = {key: each for size in found.values() for key, each in size.left_out.items()}
        check_columns(recipe, {name: each.names for name, each in found.items()}, left_out)
        if main.rows < MIN_ROWS:
            raise DataError(
                f"table {recipe.main} has {main.rows} row{'s' * (main.rows != 1)}: "
                "training, validation and test need at least one each"
            )
    row_bytes = VALUE_BYTES * len(main.names)
    return SourceSize(
        rows_estimate=max(main.rows, 1),
        size_bytes=sum(each.size_bytes for each in found.values()),
        row_bytes=row_bytes if recipe.image is None else 1 + main.size_bytes // max(main.rows, 1),
        tables=_sizes_of(found),
    )


def _sizes_of(found: Mapping[str, FileSize]) -> TableSizes:
    text = [each for each in found.values() if each.is_text]
    return TableSizes(
        columns={name: len(each.names) for name, each in found.items()},
        values=sum(each.rows * len(each.names) for each in found.values()),
        text_columns=sum(len(each.names) for each in text),
        text_bytes=sum(each.size_bytes for each in text),
    )


def _table_size(files: Sequence[DataFile]) -> FileSize:
    """Return the size of the files of a table together. Raises DataError."""
    rows, size_bytes = 0, 0
    names: dict[str, None] = {}
    left_out: dict[str, LeftOut] = {}
    like: CsvFile | None = None
    for file in files:
        like = CsvFile(file, like) if file.kind == "csv" else None
        found = _file_size(file, like)
        rows, size_bytes = rows + found.rows, size_bytes + found.size_bytes
        names |= dict.fromkeys((*found.names, *file.keys))
        left_out |= found.left_out
    return FileSize(rows, size_bytes, [*names], left_out, is_text=files[0].kind in TEXT_KINDS)


def _images_size(files: Sequence[DataFile]) -> FileSize:
    """Return the size of a source of images. Raises RecipeError, DataError."""
    found = ImageFiles.of(files)
    size_bytes = sum(map(unpacked_bytes, files))
    splits = [SPLIT_COLUMN] if files[0].splits else []
    columns = (LABEL_COLUMN, PATH_COLUMN, *splits)
    if found.tables:
        each = [_file_size(file, CsvFile(file) if file.kind == "csv" else None) for file in found.tables]
        names = [*each[0].names, *found.tables[0].keys]
        return FileSize(sum(size.rows for size in each), size_bytes, names, each[0].left_out)
    rows = IdxImages(found).rows if found.idx_images else len(found.images)
    return FileSize(rows, size_bytes, columns)


class FileSize(NamedTuple):
    """The rows, bytes and columns of a file, and the columns that are not read."""

    rows: int
    size_bytes: int
    names: Sequence[str]
    left_out: Mapping[str, LeftOut] = MappingProxyType({})
    is_text: bool = False

    @classmethod
    def typed(cls, rows: int, size_bytes: int, columns: TypedColumns) -> FileSize:
        return cls(rows, size_bytes, columns.schema.names, columns.left_out)


def _file_size(file: DataFile, csv_file: CsvFile | None) -> FileSize:
    """Raises DataError."""
    match file.kind:
        case "parquet":
            return _parquet_size(file)
        case "arrow":
            with explain_read_errors(file), open_arrow(file.start()) as reader:
                columns = TypedColumns.of(reader.schema, file.name)
                return FileSize.typed(_arrow_rows(file, reader), file.size_bytes, columns)
        case "json":
            names = [*JsonLinesFile(file).types]
            return FileSize(_lines(file), unpacked_bytes(file), names)
        case _:
            assert csv_file is not None
            return FileSize(max(_lines(file) - 1, 0), unpacked_bytes(file), csv_file.names)


def _arrow_rows(file: DataFile, reader: pa.ipc.RecordBatchFileReader) -> int:
    """Return the rows of an Arrow file; of a remote one with many batches as many in each as in the first.

    Their exact numbers are spread over the whole file.
    """
    batches = reader.num_record_batches
    if isinstance(file.place, RemoteFile) and batches > 1 and file.size_bytes / batches <= MAX_BATCH_BYTES:
        return int(reader.get_batch(0).num_rows * batches)
    return int(reader.count_rows())


def _parquet_size(file: DataFile) -> FileSize:
    with explain_read_errors(file):
        found = pq.read_metadata(file.start())
    size_bytes = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
    return FileSize.typed(
        found.num_rows, size_bytes, TypedColumns.of(found.schema.to_arrow_schema(), file.name)
    )


def _lines(file: DataFile) -> int:
    """Return the lines of a text file. For a large one they are extrapolated from those of a sample."""
    with open_unpacked(file, is_whole=False) as stream:
        sample = stream.read(SAMPLE_BYTES)
    lines = sample.count(b"\n") + (not sample.endswith(b"\n"))
    return round(lines * unpacked_bytes(file) / len(sample))
