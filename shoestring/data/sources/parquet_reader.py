"""Read tables from Parquet and Arrow IPC files, converted to the types that every format supports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from shoestring.core.errors import DataError
from shoestring.data.sources.data_file import DataFile, explain_read_errors
from shoestring.data.sources.folders.folder_keys import constant
from shoestring.data.sources.folders.key_kinds import FolderKeys
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.table import FixedColumns
from shoestring.data.sources.text.fixed_kinds import NOT_FIXED, FixedKinds
from shoestring.data.sources.typed.arrow_types import plain_values
from shoestring.data.sources.typed.class_names import named_classes
from shoestring.data.sources.typed.typed_columns import TypedColumns
from shoestring.data.values import TEXT

BATCH_ROWS = 1 << 16

RAW_BATCH_BYTES, RAW_BATCH_ROWS = 16 << 20, 4096
"""The most of a batch with columns of bytes, by the mean size of a row."""

UNCACHED: Mapping[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
"""How columns of bytes are read: in small parts. A row group may be the whole file, and pyarrow keeps what it
has buffered before until the end of the file."""

PLACES = 4
"""A sample of a column is read from so many places."""


class TypedTable:
    """One or several Parquet files, or Arrow files, with the same columns. Keys of folders have `fixed`
    kinds, or those that all their values fit.

    `left_out`: the columns whose types cannot be used. `empty`: those without a value.
    """

    def __init__(self, files: Sequence[DataFile], fixed: FixedKinds = NOT_FIXED) -> None:
        self.file = ""
        self._files = files
        found = [typed_columns(file) for file in files]
        named = set.intersection(*({*each.classes} for each in found))
        self._own = [each.with_classes(named) for each in found]
        self.left_out = {name: why for own in self._own for name, why in own.left_out.items()}
        self._keys = FolderKeys({file.name: file.keys for file in files}, fixed)
        self.names = self._names(self._own[0])
        for file, own in zip(files, self._own, strict=True):
            self._require_fit(file, own)

    def _names(self, own: TypedColumns) -> list[str]:
        names = dict.fromkeys((*own.schema.names, *self._keys))
        return [name for name in names if name not in self.left_out]

    def _require_fit(self, file: DataFile, own: TypedColumns) -> None:
        for column in own.schema:
            if (why := self.left_out.get(column.name)) is not None and column.type != pa.null():
                raise DataError(
                    f"{file.name}: column {column.name!r} is of type {column.type}, and in other files of "
                    f"type {why.type}: write it with one type"
                )
        if set(names := self._names(own)) != set(self.names):
            raise DataError(
                f"{file.name} has the columns {', '.join(names)}, "
                f"and {self._files[0].name} has {', '.join(self.names)}"
            )

    @cached_property
    def _unified(self) -> pa.Schema:
        try:
            found = pa.unify_schemas([own.schema for own in self._own], promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(
                f"the files {self._files[0].name}, ... have columns of the same name "
                f"with different types: {error}"
            ) from None
        own = {column.name: column.type for column in found if column.type != pa.null()}
        keys = {key: self._keys.type(key) for key in self._keys}
        return pa.schema([(name, {**keys, **own}.get(name, pa.null())) for name in self.names])

    @cached_property
    def empty(self) -> Sequence[str]:
        return [column.name for column in self._unified if column.type == pa.null()]

    @cached_property
    def schema(self) -> pa.Schema:
        """The types that can hold the rows of all files. Raises DataError when the files disagree."""
        return pa.schema(
            [(column.name, TEXT if column.name in self.empty else column.type) for column in self._unified]
        )

    @property
    def file_names(self) -> Sequence[str]:
        return [file.name for file in self._files]

    @property
    def columns(self) -> FixedColumns:
        return FixedColumns(self.schema, self._keys.written)

    def own_names(self) -> Mapping[str, Sequence[str]]:
        return {}

    def fix(self, columns: FixedColumns) -> None:
        """Read the columns as these types. Raises DataError, also later, where the files have others."""
        self.names, self.schema = columns.schema.names, columns.schema
        self._keys.fix(columns)

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows, cast to the schema. The files are typed, so a value that does not fit raises
        DataError."""
        yield from self.peek(self.names)

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for rows, _ in self.rows_with(names):
            yield rows

    def rows_with(
        self, names: Sequence[str], raw: str | None = None
    ) -> Iterator[tuple[pa.Table, pa.RecordBatch]]:
        """Yield these columns of the rows, and the same rows with `raw`, a column that is left out, as it is
        in the file. Batches with one are small. Raises DataError."""
        schema = pa.schema([self.schema.field(name) for name in names])
        for file, own in zip(self._files, self._own, strict=True):
            self.file = file.name
            keys = [key for key in self._keys if key in names]
            values = {key: self._keys.value(file.name, schema.field(key)) for key in keys}
            read = [name for name in names if name in own.schema.names]
            if raw is not None and raw not in own.left_out:
                raise DataError(f"{file.name} has no column {raw!r}, which other files of the table have")
            with explain_read_errors(file):
                for batch in _read(file, read, raw):
                    columns = {name: _cast(batch, schema.field(name), file, own) for name in read}
                    for key, value in values.items():
                        columns[key] = constant(key, value, columns.get(key), batch.num_rows, file.name)
                    yield pa.table([columns[name] for name in names], schema=schema), batch

    def raw_sample(self, name: str, rows: int) -> Iterator[pa.Array]:
        """Yield about `rows` values of a column that is left out, from a few places. Raises DataError."""
        parts = _parts(len(self._files), PLACES)
        for file in (self._files[part.start] for part in parts):
            with explain_read_errors(file):
                yield from _read_sample(file, name, PLACES // len(parts), -(-rows // len(parts)))


def _cast(batch: pa.RecordBatch, field: pa.Field, file: DataFile, own: TypedColumns) -> pa.Array:
    """Return a column as the type that it has in the table. Raises DataError."""
    column = batch.column(field.name)
    if field.type == TEXT and (names := own.classes.get(field.name)):
        return named_classes(column, names)
    try:
        plain = plain_values(column)
    except pa.ArrowException as error:
        raise DataError(
            f"{file.name}: column {field.name!r} holds a date outside the years 1 to 9999 ({error}): write "
            "it as missing"
        ) from None
    try:
        return plain.cast(field.type)
    except pa.ArrowException as error:
        raise DataError(
            f"{file.name}: column {field.name!r} is of type {column.type}, and in the other files of type "
            f"{field.type}, which does not hold all its values ({error}): write it with that type, or give "
            "the recipe another `name`, under which the types are inferred again"
        ) from None


def _read(file: DataFile, names: Sequence[str], raw: str | None) -> Iterator[pa.RecordBatch]:
    if file.kind == "parquet":
        # Spark writes moments as INT96, of which nanoseconds hold only the years 1678 to 2262.
        settings = {} if raw is None else UNCACHED
        with pq.ParquetFile(file.whole(), coerce_int96_timestamp_unit="us", **settings) as source:
            found = source.metadata
            sizes = [_raw_bytes(found.row_group(group), raw) for group in range(found.num_row_groups)]
            batch_rows = BATCH_ROWS if raw is None else _batch_rows(max(sizes, default=0))
            yield from source.iter_batches(batch_rows, columns=[*names, *([] if raw is None else [raw])])
        return
    with open_arrow(file.whole()) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            mean = 0 if raw is None else batch.column(raw).nbytes / max(batch.num_rows, 1)
            batch_rows = BATCH_ROWS if raw is None else _batch_rows(mean)
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)


def _raw_bytes(group: pq.RowGroupMetaData, raw: str | None) -> float:
    """Return the mean bytes of a column in a row of a row group."""
    columns = (group.column(index) for index in range(group.num_columns))
    found = (each for each in columns if raw in (each.path_in_schema, each.path_in_schema.split(".")[0]))
    return float(sum(each.total_uncompressed_size for each in found) / max(group.num_rows, 1))


def _batch_rows(row_bytes: float) -> int:
    return max(1, min(RAW_BATCH_ROWS, int(RAW_BATCH_BYTES // max(row_bytes, 1))))


def _read_sample(file: DataFile, name: str, places: int, rows: int) -> Iterator[pa.Array]:
    """Yield up to `rows` values of a column of a file, from the starts of up to `places` parts of it."""
    if file.kind == "parquet":
        with pq.ParquetFile(file.start(), **UNCACHED) as source:
            parts = _parts(source.num_row_groups, places)
            for part in parts:
                batches = source.iter_batches(-(-rows // len(parts)), row_groups=part, columns=[name])
                yield from (batch.column(name) for batch in islice(batches, 1))
        return
    with open_arrow(file.start()) as reader:
        parts = _parts(reader.num_record_batches, places)
        for part in parts:
            wanted = -(-rows // len(parts))
            for index in part:
                if wanted > 0:
                    found = reader.get_batch(index).column(name).slice(0, wanted)
                    wanted -= len(found)
                    yield found


def _parts(count: int, most: int) -> list[range]:
    """Return the numbers below `count` in at most `most` ranges of about one length."""
    parts = min(count, most)
    return [range(part * count // parts, (part + 1) * count // parts) for part in range(parts)]


@contextmanager
def open_arrow(place: Path | IO[bytes]) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Open an Arrow IPC file, which Feather version 2 is as well. Raises pa.ArrowException, OSError."""
    with (
        pa.memory_map(str(place)) if isinstance(place, Path) else pa.PythonFile(place, "r") as source,
        pa.ipc.open_file(source) as reader,
    ):
        yield reader


def typed_columns(file: DataFile) -> TypedColumns:
    """Return the columns of a Parquet or Arrow file. Raises DataError."""
    with explain_read_errors(file):
        if file.kind == "parquet":
            found = pq.read_schema(file.start())
        else:
            with open_arrow(file.start()) as reader:
                found = reader.schema
    return TypedColumns.of(found, file.name)
