"""Derive a data set from another: the same tables, with the rows of one of them transformed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.storage.blobs import load_manifest, save_manifest
from shoestring.data.storage.part_writer import PartWriter, ReportRows, open_part

TableTransform = Callable[[pa.Table], pa.Table]
"""Receives the next rows of the table, in order. Returns the transformed rows, with the same columns."""

Settings = Mapping[str, JsonValue]
"""What the transform depends on, besides its code."""


def rewrite(
    store: Store,
    key: str,
    table: str,
    transform: TableTransform,
    format: Format,
    scratch: Path,
    report: ReportRows,
    settings: Settings,
    storage_class: str = STANDARD_CLASS,
) -> tuple[str, Manifest]:
    """Write the data set under `key` again, with one table transformed. Returns the new key and manifest.
    Raises RecipeError, DataError, StoreFull, and whatever `transform` and `report` raise.
    """
    source = load_manifest(store, key)
    if table not in source.splits:
        raise RecipeError(f"{key} has no table {table}; it has {', '.join(source.splits)}")
    writers = {name: PartWriter(store, format, scratch, storage_class) for name in source.splits}
    for name, parts in source.splits.items():
        read_rows = 0
        for rows in (open_part(store, source, part) for part in parts):
            writers[name].add(_transformed(rows, transform, name) if name == table else rows)
            read_rows += rows.num_rows
            report(name, read_rows)
    written = {name: writer.close() for name, writer in writers.items()}
    if not written[table]:
        raise DataError(f"the transform left no rows in {table}, so there is nothing to learn from")
    manifest = source.model_copy(
        update={
            "format": format,
            "storage_class": storage_class,
            "splits": written,
            "rows": source.rows + writers[table].rows - sum(part.rows for part in source.splits[table]),
            "size_bytes": sum(part.size_bytes for parts in written.values() for part in parts),
            "parents": (key,),
            "settings_sha256": digest(canonical_bytes(settings)),
            "quarantined": {},
            "quarantine": None,
        }
    )
    return save_manifest(store, manifest), manifest


def _transformed(rows: pa.Table, transform: TableTransform, name: str) -> pa.Table:
    made = transform(rows)
    if made.schema != rows.schema:
        columns = ", ".join(f"{column.name}: {column.type}" for column in made.schema)
        raise DataError(f"the transform changed the columns of {name} to {columns}")
    return made
