"""Write tables to the store in parts. Each part has the chosen format and is a blob of the chosen storage
class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.interfaces import Store
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.formats.readers import read_table, write_table
from shoestring.data.storage.blobs import open_blob, put_blob

TARGET_PART_BYTES = 64 << 20
"""A part is closed once it holds this many decoded bytes. That limits the memory of its writer and its
readers."""

ReportRows = Callable[[str, int], None]
"""Receives a table or a phase and the rows so far, once a batch. May raise to stop the caller."""


class PartWriter:
    """Collects batches of one schema, in order, and writes them as parts. Equal batches give equal parts."""

    def __init__(
        self, store: Store, format: Format, scratch: Path, storage_class: str = STANDARD_CLASS
    ) -> None:
        self.rows, self.decoded_bytes = 0, 0
        self._store, self._format = store, format
        self._scratch, self._storage_class = scratch, storage_class
        self._parts: list[DatasetPart] = []
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    def add(self, table: pa.Table) -> None:
        """Add a batch. Raises StoreFull."""
        if not table.num_rows:
            return
        self.rows += table.num_rows
        self.decoded_bytes += table.nbytes
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        if self._pending_bytes >= TARGET_PART_BYTES:
            self._flush()

    def close(self) -> tuple[DatasetPart, ...]:
        """Write the remaining rows and return all parts; none without rows. Raises StoreFull."""
        self._flush()
        return tuple(self._parts)

    def _flush(self) -> None:
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        self._pending, self._pending_bytes = [], 0
        path = self._scratch / "part"
        write_table(table, self._format, path)
        size_bytes = path.stat().st_size
        sha256 = put_blob(self._store, path, self._storage_class)
        self._parts.append(DatasetPart(sha256=sha256, rows=table.num_rows, size_bytes=size_bytes))
        path.unlink()


def open_part(store: Store, manifest: Manifest, part: DatasetPart) -> pa.Table:
    """Read one part of a data set. Raises NotInStore, CorruptObject, DataError."""
    return read_table(open_blob(store, part.sha256), manifest.format)
