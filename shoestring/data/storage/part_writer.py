"""Tables on their way into the store: gathered into parts, each written in the chosen format and kept as a blob on the chosen storage
class."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.interfaces import Store
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.formats.readers import read_table, write_table
from shoestring.data.storage.blobs import open_blob, put_blob

MAX_PART_BYTES = 64 << 20
"""A part is closed when it holds so much, decoded: it bounds the memory of whoever writes or reads one."""


class PartWriter:
    """Takes batches of one schema, in order; equal batches leave equal parts."""

    def __init__(
        self, store: Store, format: Format, scratch: Path, storage_class: str = STANDARD_CLASS
    ) -> None:
        self.rows, self.decoded_bytes = 0, 0
        self._store, self._format, self._scratch, self._tier = store, format, scratch, storage_class
        self._parts: list[DatasetPart] = []
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self.rows += table.num_rows
        self.decoded_bytes += table.nbytes
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= MAX_PART_BYTES:
            self._flush()

    def close(self) -> tuple[DatasetPart, ...]:
        """All the parts; none when there was no row. Raises StoreFull."""
        self._flush()
        return tuple(self._parts)

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        path = self._scratch / "part"
        write_table(table, self._format, path)
        size_bytes = path.stat().st_size
        self._parts.append(
            DatasetPart(
                sha256=put_blob(self._store, path, self._tier), rows=table.num_rows, size_bytes=size_bytes
            )
        )
        path.unlink()


def open_part(store: Store, manifest: Manifest, part: DatasetPart) -> pa.Table:
    """One part of a data set, decoded. Raises NotInStore, CorruptObject, DataError."""
    return read_table(open_blob(store, part.sha256), manifest.format)
