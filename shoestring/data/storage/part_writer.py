"""Write tables to the store in parts. Each part has the chosen format and is a blob of the chosen storage
class."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.interfaces import Store
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.formats.readers import read_schema, read_table, write_table
from shoestring.data.storage.blobs import open_blob, put_blob

TARGET_PART_BYTES = 64 << 20
"""A part is closed once it holds this many decoded bytes. That limits the memory of its writer and its
readers."""

MEAN_UNIT_BYTES = 1 << 20
"""The mean size of a part of raw data made from smaller batches. Larger batches are a part each."""

ReportRows = Callable[[str, int], None]
"""Receives a table or a phase and the rows so far, once a batch. May raise to stop the caller."""


REUSING = "reusing stored parts"
"""The phase that reports the rows whose stored parts are used again."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A batch of raw data, as a part holds it: its rows, its decoded bytes, and whether a part ends with it.
    All three follow from the batch alone.
    """

    rows: int
    size_bytes: int
    ends_part: bool

    @classmethod
    def of(cls, batch: pa.Table) -> Unit:
        return cls(batch.num_rows, batch.nbytes, batch.num_rows > 0 and _ends_part(batch))


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

    @property
    def is_between_parts(self) -> bool:
        """Return whether the next batch begins a part."""
        return not self._pending

    def add(self, table: pa.Table, size_bytes: int | None = None) -> None:
        """Add a batch. `size_bytes`: its decoded bytes, where they are known. Raises StoreFull."""
        if not table.num_rows:
            return
        size_bytes = table.nbytes if size_bytes is None else size_bytes
        self.rows += table.num_rows
        self.decoded_bytes += size_bytes
        self._pending.append(table)
        self._pending_bytes += size_bytes
        if self._pending_bytes >= TARGET_PART_BYTES:
            self._flush()

    def add_unit(self, table: pa.Table, known: Unit | None = None) -> Unit:
        """Add a batch that may end a part: this is up to its own last row and size. So equal batches make
        equal parts, whatever is added or removed elsewhere. `known`: its unit, if it was computed
        before. Returns its unit. Raises StoreFull.
        """
        unit = known or Unit.of(table)
        self.add(table, unit.size_bytes)
        if unit.ends_part:
            self._flush()
        return unit

    def add_part(self, part: DatasetPart, size_bytes: int) -> None:
        """Add a stored part between two parts, with its decoded bytes."""
        assert self.is_between_parts
        self.rows += part.rows
        self.decoded_bytes += size_bytes
        self._parts.append(part)

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


def _ends_part(table: pa.Table) -> bool:
    last_row = repr(table.slice(table.num_rows - 1).to_pylist())
    return zlib.crc32(last_row.encode()) * MEAN_UNIT_BYTES < int(table.nbytes) << 32


def open_part(
    store: Store, manifest: Manifest, part: DatasetPart, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read one part of a data set: all columns, or these. Raises NotInStore, CorruptObject, DataError."""
    return read_table(open_blob(store, part.sha256), manifest.format, columns)


def part_schema(store: Store, format: Format, part: DatasetPart) -> pa.Schema:
    """Return the columns of one part with their types. Raises NotInStore, CorruptObject, DataError."""
    return read_schema(open_blob(store, part.sha256), format)
