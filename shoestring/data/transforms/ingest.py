"""Ingest: read raw files into typed tables of the store, and quarantine the rows that do not fit, each
with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.datasets import Manifest
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.recipe import Recipe
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.csv_reader import CsvTable
from shoestring.data.sources.files import DataFile, fingerprint, list_data_files
from shoestring.data.sources.parquet_reader import ParquetTable
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.storage.blobs import put_blob, save_manifest
from shoestring.data.storage.part_writer import PartWriter, ReportRows


def settings(recipe: Recipe) -> dict[str, JsonValue]:
    """Return the fields of a recipe that affect the result of ingest, except the files' content."""
    return {"name": recipe.name, "main": recipe.main, "tables": [*sorted(recipe.source)]}


def ingest(
    recipe: Recipe,
    format: Format,
    store: Store,
    scratch: Path,
    report: ReportRows,
    storage_class: str = STANDARD_CLASS,
) -> tuple[str, Manifest]:
    """Read the tables of a recipe into the store. Returns the key and the manifest of the raw data set.

    Raises RecipeError, DataError, StoreFull, and whatever `report` raises.
    """
    tables = {name: open_table(list_data_files(source)) for name, source in sorted(recipe.source.items())}
    check_columns(recipe, {name: table.names for name, table in tables.items()})
    schemas = {name: table.infer_schema() for name, table in tables.items()}
    bad_rows = scratch / "quarantine.jsonl"
    writers = {name: PartWriter(store, format, scratch, storage_class) for name in tables}
    quarantined: dict[str, int] = {}
    with bad_rows.open("w", encoding="utf-8") as lines:
        for name, table in tables.items():
            quarantine = Quarantine(name, lines)
            _write_rows(table.batches(schemas[name], quarantine), writers[name], name, report)
            quarantine.check(writers[name].rows)
            quarantined |= quarantine.counts
    parts = {name: writer.close() for name, writer in writers.items()}
    main = writers[recipe.main]
    manifest = Manifest(
        name=f"{recipe.name}-raw",
        format=format,
        storage_class=storage_class,
        columns=_columns(schemas),
        splits=parts,
        rows=main.rows,
        row_bytes=-(-main.decoded_bytes // main.rows),
        size_bytes=sum(part.size_bytes for of_table in parts.values() for part in of_table),
        parents=(fingerprint(recipe, store),),
        settings_sha256=digest(canonical_bytes(settings(recipe))),
        quarantined=quarantined,
        quarantine=store_layout.blob(put_blob(store, bad_rows)) if quarantined else None,
    )
    return save_manifest(store, manifest), manifest


def _columns(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """Return TABLE.COLUMN -> Arrow type."""
    return {
        f"{name}.{column.name}": str(column.type) for name, schema in schemas.items() for column in schema
    }


def _write_rows(batches: Iterable[pa.Table], writer: PartWriter, name: str, report: ReportRows) -> None:
    for batch in batches:
        writer.add(batch)
        report(name, writer.rows)


def open_table(files: Sequence[DataFile]) -> CsvTable | ParquetTable:
    """Open the files of one table, which are all of one kind. Raises DataError."""
    return ParquetTable(files) if files[0].is_parquet else CsvTable(files)
