"""Read tables from Parquet and Arrow IPC files, converted to the types that every format supports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from shoestring.core.errors import DataError
from shoestring.data.sources.data_file import DataFile, explain_read_errors
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.table import FixedColumns

BATCH_ROWS = 1 << 16


class TypedTable:
    """One or several Parquet files, or Arrow files, with the same columns."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self.file = ""
        self._files = files
        self._schemas = [_schema(file) for file in files]
        self.names: list[str] = self._schemas[0].names
        for file, schema in zip(files, self._schemas, strict=True):
            if set(schema.names) != set(self.names):
                raise DataError(
                    f"{file.name} has the columns {', '.join(schema.names)}, "
                    f"and {files[0].name} has {', '.join(self.names)}"
                )

    @cached_property
    def schema(self) -> pa.Schema:
        """The types that can hold the rows of all files. Raises DataError when the files disagree."""
        try:
            return pa.unify_schemas(self._schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(
                f"the files {self._files[0].name}, ... have columns of the same name "
                f"with different types: {error}"
            ) from None

    @property
    def file_names(self) -> Sequence[str]:
        return [file.name for file in self._files]

    @property
    def columns(self) -> FixedColumns:
        return FixedColumns(self.schema)

    def own_names(self) -> Mapping[str, Sequence[str]]:
        return {}

    def fix(self, columns: FixedColumns) -> None:
        """Read the columns as these types. Raises DataError, also later, where the files have others."""
        self.names, self.schema = columns.schema.names, columns.schema

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows, cast to the schema. The files are typed, so a value that does not fit raises
        DataError."""
        yield from self.peek(self.names)

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        schema = pa.schema([self.schema.field(name) for name in names])
        for file in self._files:
            self.file = file.name
            with explain_read_errors(file):
                for batch in _read(file, names):
                    yield pa.table([_cast(batch, field, file) for field in schema], schema=schema)


def _cast(batch: pa.RecordBatch, field: pa.Field, file: DataFile) -> pa.Array:
    """Return a column as the type that it has in the table. Raises DataError."""
    column = batch.column(field.name)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise DataError(
            f"{file.name}: column {field.name!r} is of type {column.type}, and in the other files of type "
            f"{field.type}, which does not hold all its values ({error}): write it with that type, or give "
            "the recipe another `name`, under which the types are inferred again"
        ) from None


def _read(file: DataFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if file.kind == "parquet":
        with pq.ParquetFile(file.whole()) as source:
            yield from source.iter_batches(BATCH_ROWS, columns=names)
        return
    with open_arrow(file.whole()) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)


@contextmanager
def open_arrow(place: Path | IO[bytes]) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Open an Arrow IPC file, which Feather version 2 is as well. Raises pa.ArrowException, OSError."""
    with (
        pa.memory_map(str(place)) if isinstance(place, Path) else pa.PythonFile(place, "r") as source,
        pa.ipc.open_file(source) as reader,
    ):
        yield reader


def _schema(file: DataFile) -> pa.Schema:
    with explain_read_errors(file):
        if file.kind == "parquet":
            found = pq.read_schema(file.start())
        else:
            with open_arrow(file.start()) as reader:
                found = reader.schema
    return pa.schema([(column.name, _supported_type(column, file)) for column in found])


def _supported_type(column: pa.Field, file: DataFile) -> pa.DataType:
    types = pa.types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    ):
        return pa.string()
    if types.is_decimal(kind):
        return pa.float64()
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind):
        return kind
    raise DataError(
        f"{file.name}: column {column.name!r} is of type {kind}, which is not supported: remove it; "
        "numbers, text, booleans, dates and times are supported"
    )
