"""The packed format: one aligned C struct a row. A shuffled read touches one place, and a memory map
needs no decoding.

    magic (8 bytes) | length of the header (8 bytes, little-endian) | header (JSON) | padding to 64 bytes
    | records | bytes of the first column of bytes | ...

The header holds the Arrow schema, the number of rows, the columns with nulls, the dictionaries of the text
columns, and the size of each column of bytes. A text value is stored as an int32 index into its dictionary,
bytes of a fixed size lie in the record, and of other bytes it holds where they end, as int64, after those of
the row before. Columns with nulls have one bit each in the bytes of `_nulls`, the last field.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError

MAGIC = b"SHOEPAK2"
ALIGNMENT = 64
NULLS = "_nulls"

Records = np.ndarray[Any, np.dtype[Any]]


def record_type(schema: pa.Schema, null_columns: int = 0) -> np.dtype[Any]:
    """Return the struct of one row; `null_columns` columns have a bit each in `_nulls`.

    Raises DataError for nested and decimal types.
    """
    fields: list[tuple[Any, ...]] = [(field.name, _storage_type(field)) for field in schema]
    if null_columns:
        fields.append((NULLS, "u1", (-(-null_columns // 8),)))
    return np.dtype(fields, align=True)


def pack(table: pa.Table, records: Records) -> None:
    """Copy a table without text and nulls into equally many records of `record_type(table.schema)`."""
    for name in table.column_names:
        _fill(records[name], table.column(name))


def write_packed(table: pa.Table, path: Path) -> None:
    """Write a table as packed records."""
    null_columns = [name for name in table.column_names if table.column(name).null_count]
    records = np.zeros(table.num_rows, record_type(table.schema, len(null_columns)))
    dictionaries: dict[str, list[str]] = {}
    heaps: dict[str, Records] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_binary(column.type):
            records[name], heaps[name] = _ends_and_bytes(column)
            continue
        if pa.types.is_string(column.type):
            encoded = column.combine_chunks().dictionary_encode()
            dictionaries[name] = encoded.dictionary.to_pylist()
            column = pa.chunked_array([encoded.indices])
        _fill(records[name], column)
    for bit, name in enumerate(null_columns):
        records[NULLS][:, bit // 8] |= np.asarray(table.column(name).is_null()).astype("u1") << (bit % 8)
    header = json.dumps(
        {
            "arrow_schema": base64.b64encode(table.schema.serialize().to_pybytes()).decode(),
            "dictionaries": dictionaries,
            "null_columns": null_columns,
            "rows": table.num_rows,
        }
        | ({"heap_bytes": {name: len(heap) for name, heap in heaps.items()}} if heaps else {})
    ).encode()
    with path.open("wb") as file:
        file.write(MAGIC + len(header).to_bytes(8, "little") + header)
        file.write(bytes(-file.tell() % ALIGNMENT))
        records.tofile(file)
        for heap in heaps.values():
            heap.tofile(file)


def map_packed(path: Path) -> tuple[Records, pa.Schema, dict[str, Any]]:
    """Return the records of a file, memory-mapped and read-only, their Arrow schema and the header.

    Raises DataError for a damaged or truncated file.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise DataError(f"{path} is not a file of packed records of version {MAGIC.decode()}")
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            start = file.tell() + -file.tell() % ALIGNMENT
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(header["arrow_schema"])))
        dtype, rows = record_type(schema, len(header["null_columns"])), int(header["rows"])
        heap_bytes = sum(header.setdefault("heap_bytes", {}).values())
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged: its header cannot be read ({error})") from None
    expected, found = start + rows * dtype.itemsize + heap_bytes, path.stat().st_size
    if found != expected:
        raise DataError(f"{path} is damaged: it has {found} bytes, and its header implies {expected}")
    records = np.memmap(path, dtype, "r", start, (rows,)) if rows else np.zeros(0, dtype)
    return np.asarray(records), schema, header


def read_packed(path: Path, names: Sequence[str] | None = None) -> pa.Table:
    """Return the table of a file: all columns, or these. Raises DataError for a damaged or truncated file."""
    records, schema, header = map_packed(path)
    null_columns: list[str] = header["null_columns"]
    heaps = _heaps(path, header["heap_bytes"])
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    columns = []
    for field in schema:
        values = np.ascontiguousarray(records[field.name])
        missing = None
        if field.name in null_columns:
            bit = null_columns.index(field.name)
            missing = (records[NULLS][:, bit // 8] >> (bit % 8) & 1).astype(bool)
        if field.name in heaps:
            columns.append(_bytes_column(values, missing, heaps[field.name]))
        else:
            columns.append(_column(values, missing, field.type, header["dictionaries"].get(field.name)))
    return pa.table(columns, schema=schema)


def _storage_type(field: pa.Field) -> np.dtype[Any]:
    kind = field.type
    if pa.types.is_string(kind):
        return np.dtype("<i4")
    if pa.types.is_boolean(kind):
        return np.dtype("u1")
    if pa.types.is_floating(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    if pa.types.is_integer(kind):
        return np.dtype(f"{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{kind.bit_width // 8}")
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        return np.dtype(f"<i{kind.bit_width // 8}")
    if pa.types.is_fixed_size_binary(kind):
        return np.dtype((np.uint8, (kind.byte_width,)))
    if pa.types.is_binary(kind):
        return np.dtype("<i8")
    raise DataError(
        f"column {field.name!r} is of type {kind}: the packed format supports numbers, text, booleans, "
        "dates, times and bytes only"
    )


def _fill(field: Records, column: pa.ChunkedArray) -> None:
    """Copy a column into one field of the records; a null becomes 0."""
    start = 0
    for chunk in column.chunks:
        if pa.types.is_fixed_size_binary(chunk.type):
            field[start : start + len(chunk)] = _fixed_bytes(chunk)
            start += len(chunk)
            continue
        if pa.types.is_boolean(chunk.type):
            chunk = chunk.cast(pa.uint8())
        elif pa.types.is_temporal(chunk.type):
            chunk = chunk.view(pa.int32() if chunk.type.bit_width == 32 else pa.int64())
        values = chunk.fill_null(0) if chunk.null_count else chunk
        field[start : start + len(chunk)] = values.to_numpy(zero_copy_only=False)
        start += len(chunk)


def _fixed_bytes(chunk: pa.Array) -> Records:
    """Return uint8[rows, width]; zeros for a null."""
    width = chunk.type.byte_width
    if not len(chunk):
        return np.zeros((0, width), np.uint8)
    values = np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width :][: len(chunk) * width]
    found: Records = values.reshape(len(chunk), width)
    if chunk.null_count:
        found = np.where(np.from_dlpack(chunk.is_valid().cast(pa.uint8()))[:, None], found, 0)
    return found


def _ends_and_bytes(column: pa.ChunkedArray) -> tuple[Records, Records]:
    """Return where the bytes of each row end, int64[rows], and the bytes of all rows, one after another."""
    values = column.combine_chunks()
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
    found = np.frombuffer(data if data is not None else b"", np.uint8)[bounds[0] : bounds[-1]]
    return bounds[1:] - bounds[0], found


def _heaps(path: Path, heap_bytes: dict[str, int]) -> dict[str, Records]:
    """Return the bytes of the columns of bytes, which lie at the end of the file, memory-mapped."""
    found: dict[str, Records] = {}
    start = path.stat().st_size - sum(heap_bytes.values())
    for name, size_bytes in heap_bytes.items():
        found[name] = (
            np.memmap(path, np.uint8, "r", start, (size_bytes,)) if size_bytes else np.zeros(0, "u1")
        )
        start += size_bytes
    return found


def _bytes_column(ends: Records, missing: Records | None, heap: Records) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    buffers = [_validity(missing), pa.py_buffer(offsets), pa.py_buffer(heap)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _validity(missing: Records | None) -> pa.Buffer | None:
    return None if missing is None else pa.array(~missing).buffers()[1]


def _column(
    values: Records, missing: Records | None, kind: pa.DataType, dictionary: list[str] | None
) -> pa.Array:
    if dictionary is not None:
        codes = pa.array(values, pa.int32(), mask=missing)
        return pa.DictionaryArray.from_arrays(codes, pa.array(dictionary, pa.string())).cast(pa.string())
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(bool), mask=missing)
    if pa.types.is_temporal(kind):
        return pa.array(values, mask=missing).view(kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, len(values), [_validity(missing), pa.py_buffer(values)])
    return pa.array(values, kind, mask=missing, from_pandas=False)
