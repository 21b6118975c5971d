"""Read tables from Parquet files, converted to the types that every format supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from shoestring.core.errors import DataError
from shoestring.data.sources.files import DataFile, explain_read_errors
from shoestring.data.sources.quarantine import Quarantine

BATCH_ROWS = 1 << 16


class ParquetTable:
    """One or several Parquet files with the same columns."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = files
        self._schemas = [_schema(file) for file in files]
        self.names: list[str] = self._schemas[0].names
        for file, schema in zip(files, self._schemas, strict=True):
            if set(schema.names) != set(self.names):
                raise DataError(
                    f"{file.name} has the columns {', '.join(schema.names)}, "
                    f"and {files[0].name} has {', '.join(self.names)}"
                )

    def infer_schema(self) -> pa.Schema:
        """Return the types that can hold the rows of all files. Raises DataError when the files disagree."""
        try:
            return pa.unify_schemas(self._schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(
                f"the Parquet files {self._files[0].name}, ... have columns of the same name "
                f"with different types: {error}"
            ) from None

    def batches(self, schema: pa.Schema, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows, cast to the schema. Parquet is typed, so a value that does not fit raises
        DataError."""
        for file in self._files:
            with explain_read_errors(file), pq.ParquetFile(file.path) as source:
                for batch in source.iter_batches(BATCH_ROWS, columns=schema.names):
                    yield pa.table(
                        [batch.column(field.name).cast(field.type) for field in schema], schema=schema
                    )


def _schema(file: DataFile) -> pa.Schema:
    with explain_read_errors(file):
        found = pq.read_schema(file.path)
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
