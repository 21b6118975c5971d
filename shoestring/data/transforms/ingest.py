"""Ingest: read raw files into typed tables of the store, and quarantine the rows that do not fit, each
with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import RemoteObject, RemoteSources, Store
from shoestring.core.record import digest
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.increments.ingested_version import (
    IngestedTable,
    IngestedVersion,
    LastIngest,
    last_ingest,
    write_files,
)
from shoestring.data.increments.read_table import IncrementalTable, TableOutput, TableResult, read_whole
from shoestring.data.increments.schema_version import (
    SchemaVersion,
    columns_of,
    fixed_misfits,
    last_schema,
    save_schema,
)
from shoestring.data.increments.versions import save_version, versions_key
from shoestring.data.recipe import Recipe
from shoestring.data.source_files import SourceFile, SourceRecord, contents_of, save_sources
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.fingerprint import list_sources, table_files
from shoestring.data.sources.open_table import left_out_of, open_source, open_table
from shoestring.data.sources.parquet_reader import TypedTable
from shoestring.data.sources.remote.fetch import FetchFolder
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.data.sources.table import SourceTable, TypesChanged
from shoestring.data.sources.untyped_table import UntypedTable
from shoestring.data.storage.blobs import put_blob, save_manifest
from shoestring.data.storage.part_writer import REUSING, PartWriter, ReportRows

QUARANTINE_FILE = "quarantine.jsonl"


def settings(recipe: Recipe) -> dict[str, JsonValue]:
    """Return the fields of a recipe that affect the result of ingest, except the files' content."""
    found: dict[str, JsonValue] = {
        "name": recipe.name,
        "main": recipe.main,
        "tables": [*sorted(recipe.source)],
    }
    read: dict[str, JsonValue] = {
        name: each.read.model_dump(mode="json")
        for name, each in recipe.source.items()
        if each.read is not None
    }
    if read:
        found["read"] = read
    if recipe.kinds:
        found["kinds"] = dict(recipe.kinds)
    if recipe.source[recipe.main].splits:
        found["splits"] = True
    if recipe.image is not None:
        found["image_paths"] = recipe.image.column
    if recipe.text is not None:
        found["text_separator"] = recipe.text.separator
        if recipe.text.column:
            found["text_columns"] = [*recipe.text.by, recipe.text.column]
    return found


def ingest(
    recipe: Recipe,
    format: Format,
    store: Store,
    scratch: Path,
    report: ReportRows,
    storage_class: str = STANDARD_CLASS,
    remote: RemoteSources = NO_REMOTE_SOURCES,
) -> tuple[str, Manifest]:
    """Read the tables of a recipe into the store. Returns the key and the manifest of the raw data set.

    Raises RecipeError, DataError, StoreFull, what RemoteSources raises, and whatever `report` raises.
    """
    known = last_schema(store, recipe.name)
    with FetchFolder(remote, store, lambda found, done: report(_fetched_text(found, done), 0)) as fetched:
        raw = RawFiles.of(recipe, store, remote, fetched)
        versions = _versions_key(recipe, format, storage_class)
        last = last_ingest(store, versions, raw.digests)

        def read(last: LastIngest | None) -> RawTables:
            with (scratch / QUARANTINE_FILE).open("w", encoding="utf-8") as lines:
                output = TableOutput(
                    store, lambda: PartWriter(store, format, scratch, storage_class), lines, report
                )
                return _read_tables(recipe, raw, last, known, output)

        try:
            tables = read(last)
        except (NotInStore, CorruptObject, TypesChanged):
            if last is None:
                raise
            report(REUSING, 0)
            tables = read(None)
    files = unchanged_sources(recipe, raw.digests, store, remote)
    source = digest((contents_of(files) or "").encode())
    manifest = _manifest(recipe, tables, format, store, scratch, storage_class, source)
    key = save_manifest(store, manifest)
    save_sources(store, SourceRecord(dataset=key, ingested_at=datetime.now(UTC), files=files))
    save_schema(store, recipe.name, known, tables.schemas)
    _save_version(versions, key, tables.results, files, store, scratch, storage_class)
    return key, manifest


def _versions_key(recipe: Recipe, format: Format, storage_class: str) -> str:
    """Return the digest of what each part depends on, except for its files."""
    made_from: dict[str, JsonValue] = {
        "settings": settings(recipe),
        "format": format,
        "storage_class": storage_class,
    }
    return versions_key(__name__, made_from)


@dataclass(frozen=True, slots=True)
class RawFiles:
    """The source files of a recipe: by table, and their digests by `SourceFile.name`; None: not known yet."""

    by_table: Mapping[str, Sequence[DataFile]]
    digests: Mapping[str, str | None]

    @classmethod
    def of(cls, recipe: Recipe, store: Store, remote: RemoteSources, fetched: FetchFolder) -> RawFiles:
        """Raises RecipeError, DataError, and what RemoteSources raises."""
        sources = sorted(recipe.source.items())
        files = {name: list_data_files(source, remote, fetched) for name, source in sources}
        digests: dict[str, str | None] = {}
        for name, source in sources:
            found = table_files(name, source, files[name], store)
            digests |= {each.name: each.sha256 or None for each in found}
        return cls(files, digests)


@dataclass(frozen=True, slots=True)
class RawTables:
    """The rows read of each table, the quarantined rows and the values that could not be read by reason, and
    the kinds of the columns by table."""

    results: Mapping[str, TableResult]
    quarantined: Mapping[str, int]
    unread: Mapping[str, int]
    schemas: Mapping[str, Mapping[str, str]]


def _fetched_text(found: RemoteObject, done_bytes: int) -> str:
    return f"{found.name}, {done_bytes / 1e6:,.0f} of {found.size_bytes / 1e6:,.0f} MB fetched"


def _read_tables(
    recipe: Recipe, raw: RawFiles, last: LastIngest | None, known: SchemaVersion, output: TableOutput
) -> RawTables:
    opened = {
        name: _open_table(name, recipe, files, raw.digests, last, known)
        for name, files in raw.by_table.items()
    }
    check_columns(recipe, {name: table.names for name, table in opened.items()}, left_out_of(opened))
    if stored := [table.stored_rows for table in opened.values() if isinstance(table, IncrementalTable)]:
        output.report(REUSING, sum(stored))
    results: dict[str, TableResult] = {}
    quarantined, unread = dict[str, int](), dict[str, int]()
    for name, table in opened.items():
        if isinstance(table, IncrementalTable):
            results[name], quarantine = table.read(output)
        else:
            by_file = table if isinstance(table, UntypedTable | TypedTable) else None
            results[name], quarantine = read_whole(name, table, by_file, output)
            for misfits in fixed_misfits(table, quarantine.misfits, results[name].rows):
                misfits.check()
        quarantine.check(results[name].rows)
        quarantined |= quarantine.counts
        unread |= quarantine.cells
    schemas = {name: columns_of(table) for name, table in opened.items()}
    return RawTables(results, quarantined, unread, schemas)


def _open_table(
    name: str,
    recipe: Recipe,
    files: Sequence[DataFile],
    digests: Mapping[str, str | None],
    last: LastIngest | None,
    schema: SchemaVersion,
) -> SourceTable | IncrementalTable:
    """Open a table, and of one that has files in the last version only the other files. Raises RecipeError,
    DataError.
    """
    if last is not None and name in last.columns and schema.agrees(name, last.columns[name]):
        known = last.known_files(name, digests)
        empty = schema.empty(name)
        if known:
            table = IncrementalTable(name, files, known, last, lambda file: open_table([file]), empty)
            if table.has_its_columns:
                return table
    return open_source(recipe.source[name], files, schema.fixed(recipe, name))


def unchanged_sources(
    recipe: Recipe, before: Mapping[str, str | None], store: Store, remote: RemoteSources
) -> tuple[SourceFile, ...]:
    """Return the source files with their digests. Raises DataError when they are not those that were read."""
    files = list_sources(recipe, store, remote)
    after = {each.name: each.sha256 for each in files}
    if changed := sorted(
        path
        for path in before.keys() | after.keys()
        if not after.get(path) or (path not in before) or before[path] not in (None, after[path])
    ):
        raise DataError(
            f"the source data changed while it was read ({len(changed)} of {len(before)} files, such as "
            f"{changed[0]}): run again to read what is there now"
        )
    return files


def _manifest(
    recipe: Recipe,
    tables: RawTables,
    format: Format,
    store: Store,
    scratch: Path,
    storage_class: str,
    content: str,
) -> Manifest:
    main, parts = tables.results[recipe.main], {name: each.parts for name, each in tables.results.items()}
    has_any = tables.quarantined or tables.unread
    quarantine = put_blob(store, scratch / QUARANTINE_FILE) if has_any else ""
    return Manifest(
        name=f"{recipe.name}-raw",
        format=format,
        storage_class=storage_class,
        columns=_columns({name: each.schema for name, each in tables.results.items()}),
        splits=parts,
        rows=main.rows,
        row_bytes=-(-main.decoded_bytes // main.rows),
        size_bytes=sum(part.size_bytes for of_table in parts.values() for part in of_table),
        parents=(content,),
        settings_sha256=digest(canonical_bytes(settings(recipe))),
        quarantined=dict(tables.quarantined),
        unread=dict(tables.unread),
        quarantine=store_layout.blob(quarantine) if quarantine else None,
    )


def _save_version(
    key: str,
    data: str,
    tables: Mapping[str, TableResult],
    sources: Sequence[SourceFile],
    store: Store,
    scratch: Path,
    storage_class: str,
) -> None:
    """Store what the next version builds on, if a table is read file by file. Raises StoreFull."""
    by_file = {name: each for name, each in tables.items() if each.columns is not None}
    if by_file:
        path = scratch / "files.arrow"
        digests = {each.name: each.sha256 for each in sources}
        write_files([file for each in by_file.values() for file in each.files], digests, path)
        files = put_blob(store, path, storage_class)
        columns = {name: IngestedTable.of(each.columns) for name, each in by_file.items() if each.columns}
        save_version(store, key, IngestedVersion(data=data, files=files, tables=columns))


def _columns(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """Return TABLE.COLUMN -> Arrow type."""
    return {
        f"{name}.{column.name}": str(column.type) for name, schema in schemas.items() for column in schema
    }
