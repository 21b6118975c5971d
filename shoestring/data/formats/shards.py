"""The shard format: compressed blocks of rows with an index, for reading blocks from the store alone.

    magic (8 bytes) | length of the index (4 bytes, little-endian) | CRC-32C of the index (4 bytes)
    | index (JSON) | first block | second block | ...

The index holds the Arrow schema, and for each block its rows, its stored bytes, its decoded bytes and the
CRC-32C of its stored bytes. A block is one record batch in Arrow's IPC format, compressed as a whole with
zstd. The checksum of what was read is compared before it is decompressed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError
from shoestring.data.formats.packed import Records, pack, record_type

MAGIC = b"SHOESHD1"
PREFIX_BYTES = len(MAGIC) + 8
BLOCK_BYTES = 1 << 20
"""Decoded bytes of a block: large enough that a request takes longer to transfer than to answer, small enough
that a window of the shuffled order holds many."""

FIRST_READ_BYTES = 1 << 16
"""Read at once from the start of a shard: the index of a thousand blocks fits."""

ReadBytes = Callable[[int, int], bytes]
"""Returns the bytes of a shard from a start up to a stop; fewer where the shard ends."""


@dataclass(frozen=True, slots=True)
class ShardBlock:
    """A block of a shard: its bytes [start, start + stored_bytes)."""

    rows: int
    start: int
    stored_bytes: int
    decoded_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The blocks of a shard. `name`: the shard, for messages."""

    name: str
    schema: pa.Schema
    blocks: tuple[ShardBlock, ...]

    def decode(self, number: int, stored: bytes) -> pa.RecordBatch:
        """Return the rows of a block from its stored bytes. Raises DataError for a changed byte."""
        block = self.blocks[number]
        if len(stored) != block.stored_bytes or google_crc32c.value(stored) != block.crc32c:
            raise DataError(
                f"block {number} of {self.name} is damaged: its {len(stored):,} bytes, from byte "
                f"{block.start:,} on, do not match their checksum; delete this object in the store, and the "
                "next run makes it again"
            )
        message = pa.decompress(stored, block.decoded_bytes, codec="zstd")
        return pa.ipc.read_record_batch(message, self.schema)

    def decode_records(self, number: int, stored: bytes) -> Records:
        """Return the encoded rows of a block as records. Raises DataError, also for text or nulls."""
        table = pa.Table.from_batches([self.decode(number, stored)])
        records = np.empty(table.num_rows, record_type(self.schema))
        pack(require_encoded(table, self.name), records)
        return records


def require_encoded(table: pa.Table, name: object) -> pa.Table:
    """Return a table whose columns have a fixed width and no nulls. Raises DataError for any other."""
    if found := [
        column
        for column in table.column_names
        if table[column].null_count or pa.types.is_string(table[column].type)
    ]:
        raise DataError(f"{name} is not encoded: {', '.join(found)} contain text or nulls")
    return table


def write_shard(table: pa.Table, path: Path) -> None:
    """Write a table as a shard. Equal tables give equal bytes."""
    table = table.combine_chunks()
    rows = max(1, BLOCK_BYTES * table.num_rows // max(table.nbytes, 1))
    blocks, index = list[bytes](), list[tuple[int, int, int, int]]()
    for start in range(0, table.num_rows, rows):
        piece = table.slice(start, rows)
        message = piece.to_batches()[0].serialize()
        stored = pa.compress(message, codec="zstd", asbytes=True)
        blocks.append(stored)
        index.append((piece.num_rows, len(stored), message.size, google_crc32c.value(stored)))
    schema = base64.b64encode(table.schema.serialize().to_pybytes()).decode()
    header = json.dumps({"arrow_schema": schema, "blocks": index}).encode()
    with path.open("wb") as file:
        file.write(MAGIC + len(header).to_bytes(4, "little"))
        file.write(google_crc32c.value(header).to_bytes(4, "little") + header)
        file.writelines(blocks)


def read_index(read: ReadBytes, size_bytes: int, name: str) -> ShardIndex:
    """Return the index of a shard of `size_bytes`. Raises DataError for a damaged or truncated one."""
    first = read(0, min(FIRST_READ_BYTES, size_bytes))
    if first[: len(MAGIC)] != MAGIC:
        raise DataError(f"{name} is damaged, or no shard of version {MAGIC.decode()}")
    length, crc32c = (int.from_bytes(first[at : at + 4], "little") for at in (len(MAGIC), len(MAGIC) + 4))
    end = PREFIX_BYTES + length
    if len(first) < end <= size_bytes:
        first += read(len(first), end)
    header = first[PREFIX_BYTES:end]
    if len(header) != length or google_crc32c.value(header) != crc32c:
        raise DataError(f"{name} is damaged: its index does not match its checksum")
    fields = json.loads(header)
    blocks, start = list[ShardBlock](), end
    for rows, stored_bytes, decoded_bytes, block_crc32c in fields["blocks"]:
        blocks.append(ShardBlock(rows, start, stored_bytes, decoded_bytes, block_crc32c))
        start += stored_bytes
    if start != size_bytes:
        raise DataError(f"{name} is damaged: it has {size_bytes:,} bytes, and its index implies {start:,}")
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["arrow_schema"])))
    return ShardIndex(name, schema, tuple(blocks))


def index_of_file(path: Path) -> ShardIndex:
    """Return the index of a shard in a file. Raises DataError."""
    return read_index(_reader(path), path.stat().st_size, str(path))


def read_shard(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the table of a shard in a file: all columns, or these. Raises DataError for a damaged one."""
    index = index_of_file(path)
    table = pa.Table.from_batches(_batches(index, path), index.schema)
    return table if columns is None else table.select(columns)


def _batches(index: ShardIndex, path: Path) -> Iterator[pa.RecordBatch]:
    read = _reader(path)
    for number, block in enumerate(index.blocks):
        yield index.decode(number, read(block.start, block.start + block.stored_bytes))


def _reader(path: Path) -> ReadBytes:
    def read(start: int, stop: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    return read
