"""A version of a raw data set, as the next one builds on it: its source files, and the batches that each of
them gave.

The files are one Arrow file, a row for each in reading order, with the columns `file` (TABLE/NAME), `sha256`,
`columns` (its own, where they are not those of the table), and `rows`, `bytes`, `ends`: for each of its
batches the rows, the decoded bytes, and whether a part ends with it. The parts of the manifest
hold the batches in this order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.json
from pydantic import Field

from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord
from shoestring.core.types import Format
from shoestring.data.formats.readers import read_table, write_table
from shoestring.data.increments.raw_parts import StoredUnit, stored_units
from shoestring.data.increments.versions import last_version
from shoestring.data.sources.table import FixedColumns
from shoestring.data.storage.blobs import load_manifest, open_blob
from shoestring.data.storage.part_writer import Unit, part_schema

FILES_SCHEMA = pa.schema(
    {
        "file": pa.string(),
        "sha256": pa.string(),
        "columns": pa.list_(pa.string()),
        "rows": pa.list_(pa.int64()),
        "bytes": pa.list_(pa.int64()),
        "ends": pa.list_(pa.bool_()),
    }
)


class IngestedTable(Record):
    """How the columns of a table are read, except for their types: see `FixedColumns`."""

    written: dict[str, str] = Field({}, exclude_if=lambda written: not written)
    json_types: dict[str, str] = Field({}, exclude_if=lambda types: not types)

    @classmethod
    def of(cls, columns: FixedColumns) -> IngestedTable:
        return cls(written=dict(columns.written), json_types=dict(columns.json_types))


class IngestedVersion(StoredRecord):
    """The record of a version. Only tables that are read file by file are in it."""

    data: str = Field(description="key of the manifest")
    files: str = Field(description="digest of the blob with the files and their batches")
    tables: dict[str, IngestedTable]


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A source file: TABLE/NAME, the columns that it has itself, and its batches."""

    path: str
    columns: Sequence[str]
    units: Sequence[Unit]


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A source file whose rows are in the store."""

    columns: Sequence[str]
    units: Sequence[StoredUnit]

    @property
    def rows(self) -> int:
        return sum(each.unit.rows for each in self.units)


@dataclass(frozen=True, slots=True)
class LastIngest:
    """A version with its manifest, the columns of its tables, and its files by TABLE/NAME and digest."""

    manifest: Manifest
    columns: Mapping[str, FixedColumns]
    files: Mapping[tuple[str, str], KnownFile]

    def known_files(self, table: str, digests: Mapping[str, str | None]) -> dict[str, KnownFile]:
        """Return the files of a table that have not changed, by name. `digests`: TABLE/NAME -> SHA-256."""
        found: dict[str, KnownFile] = {}
        for path, sha256 in digests.items():
            of_table, _, name = path.partition("/")
            if of_table == table and (known := self.files.get((path, sha256 or ""))) is not None:
                found[name] = known
        return found


def write_files(files: Sequence[IngestedFile], digests: Mapping[str, str], path: Path) -> None:
    """Write the files of a version. `digests`: TABLE/NAME -> SHA-256. Equal files give equal bytes."""
    rows = [
        {
            "file": each.path,
            "sha256": digests[each.path],
            "columns": [*each.columns],
            "rows": [unit.rows for unit in each.units],
            "bytes": [unit.size_bytes for unit in each.units],
            "ends": [unit.ends_part for unit in each.units],
        }
        for each in files
    ]
    # `pa.array` would import pandas, which takes 0.3 s.
    data = "\n".join(map(json.dumps, rows)).encode()
    table = pyarrow.json.read_json(
        pa.BufferReader(data),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pyarrow.json.ParseOptions(explicit_schema=FILES_SCHEMA),
    )
    write_table(table, Format.ARROW, path)


def last_ingest(store: Store, key: str, digests: Mapping[str, str | None]) -> LastIngest | None:
    """Return the last version of a raw data set; None where a new one would reuse nothing of it.

    That is so if it has none of the files: `digests`, TABLE/NAME -> SHA-256, None where it is not known yet.
    And if it has just these: then its result is damaged, or it would be used as it is.
    """
    if (version := last_version(store, key, IngestedVersion)) is None:
        return None
    try:
        manifest = load_manifest(store, version.data)
        found = [*_read_files(open_blob(store, version.files))]
        known = {(file.path, sha256) for file, sha256 in found}
        now = {*digests.items()}
        if known == now or not known & now:
            return None
        return LastIngest(
            manifest,
            {name: _columns(store, manifest, name, table) for name, table in version.tables.items()},
            dict(_known_files(manifest, version, found)),
        )
    except (NotInStore, CorruptObject, DataError):
        return None


def _columns(store: Store, manifest: Manifest, name: str, table: IngestedTable) -> FixedColumns:
    schema = part_schema(store, manifest.format, manifest.splits[name][0]).remove_metadata()
    return FixedColumns(schema, table.written, table.json_types)


def _known_files(
    manifest: Manifest, version: IngestedVersion, found: Sequence[tuple[IngestedFile, str]]
) -> Iterator[tuple[tuple[str, str], KnownFile]]:
    for name in version.tables:
        of_table = [(file, sha256) for file, sha256 in found if file.path.startswith(f"{name}/")]
        stored = stored_units(manifest.splits[name], [unit for file, _ in of_table for unit in file.units])
        start = 0
        for file, sha256 in of_table:
            stop = start + len(file.units)
            yield (file.path, sha256), KnownFile(file.columns, stored[start:stop])
            start = stop


def _read_files(path: Path) -> Iterator[tuple[IngestedFile, str]]:
    for row in read_table(path, Format.ARROW).to_pylist():
        units = map(Unit, row["rows"], row["bytes"], row["ends"])
        yield IngestedFile(row["file"], row["columns"], [*units]), row["sha256"]
