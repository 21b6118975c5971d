"""Read a table of source files into parts: all of its files, or those that the last version lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

import pyarrow as pa

from shoestring.core import store_layout
from shoestring.core.datasets import DatasetPart, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store, VerifiedMarks
from shoestring.data.increments.ingested_version import IngestedFile, KnownFile, LastIngest
from shoestring.data.increments.raw_parts import RawPartWriter
from shoestring.data.sources.column_types import MAX_MISMATCH_SHARE
from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.table import FilesTable, FixedColumns, SourceTable, TypesChanged
from shoestring.data.sources.untyped_table import misfit_reasons
from shoestring.data.storage.blobs import open_blob
from shoestring.data.storage.part_writer import PartWriter, ReportRows, Unit, open_part


@dataclass(frozen=True, slots=True)
class TableResult:
    """The parts of a table. `files`: what the next version builds on, with `columns`; None for a table that
    is read as a whole."""

    parts: tuple[DatasetPart, ...]
    rows: int
    decoded_bytes: int
    schema: pa.Schema
    columns: FixedColumns | None
    files: Sequence[IngestedFile]


@dataclass(frozen=True, slots=True)
class TableOutput:
    """Where the rows of a table go. `lines`: the quarantined rows of all tables."""

    store: Store
    new_writer: Callable[[], PartWriter]
    lines: IO[str]
    report: ReportRows


def read_whole(
    name: str, table: SourceTable, by_file: FilesTable | None, output: TableOutput
) -> tuple[TableResult, Quarantine]:
    """Read all rows; once more from the first when their types change on the way.

    `by_file`: the table, if it is read file by file. Raises DataError, StoreFull.
    """
    start, rows = output.lines.tell(), 0
    while True:
        writer, quarantine = output.new_writer(), Quarantine(name, output.lines)
        units: dict[str, list[Unit]] = {} if by_file is None else {each: [] for each in by_file.file_names}
        try:
            for batch in table.batches(quarantine):
                unit = writer.add_unit(batch)
                if by_file is not None and unit.rows:
                    units[by_file.file].append(unit)
                rows = max(rows, writer.rows)
                output.report(name, rows)
        except TypesChanged:
            output.lines.seek(start)
            output.lines.truncate()
            continue
        parts, columns, own = writer.close(), None, dict[str, Sequence[str]]()
        if by_file is not None:
            columns, own = by_file.columns, dict(by_file.own_names())
        found = [IngestedFile(f"{name}/{file}", own.get(file, ()), of) for file, of in units.items()]
        result = TableResult(parts, writer.rows, writer.decoded_bytes, table.schema, columns, found)
        return result, quarantine


class IncrementalTable:
    """A table some of whose files are in the store. The others are opened, and read with its columns."""

    def __init__(
        self,
        name: str,
        files: Sequence[DataFile],
        known: Mapping[str, KnownFile],
        last: LastIngest,
        open_file: Callable[[DataFile], FilesTable],
        empty: Collection[str] = (),
    ) -> None:
        """`known`: the stored files by name. `empty`: the columns without a value yet, which have no kind.
        Raises DataError.
        """
        self.columns = last.columns[name]
        self.names = [*self.columns.schema.names]
        self.empty = empty
        self._name, self._files, self._known, self._last = name, files, known, last
        self._new: dict[str, FilesTable] = {}
        for file in files:
            if file.name not in known:
                self._new[file.name] = open_file(file)

    @property
    def stored_rows(self) -> int:
        """The rows of its files that are in the store."""
        return sum(file.rows for file in self._known.values())

    @property
    def has_its_columns(self) -> bool:
        """Return whether the files together have the columns of the last version."""
        own = [each.columns for each in self._known.values()]
        for table in self._new.values():
            own += table.own_names().values()
            if not table.own_names() and set(table.names) != set(self.names):
                return False
        return not any(own) or {name for names in own for name in names} == set(self.names)

    def read(self, output: TableOutput) -> tuple[TableResult, Quarantine]:
        """Read the rows of the files that are not stored.

        Raises DataError: too many rows do not fit the columns of the first version; StoreFull, NotInStore,
        CorruptObject; TypesChanged for the first value of a column.
        """
        manifest = self._last.manifest
        quarantine = Quarantine(self._name, output.lines)
        quarantine.keep(_kept_lines(self._name, manifest, self._known, output.store))
        writer = RawPartWriter(
            output.new_writer(),
            partial(open_part, output.store, manifest),
            lambda part: _require_whole(output.store, part),
        )
        found: list[IngestedFile] = []
        rows = 0
        for file in self._files:
            if (known := self._known.get(file.name)) is not None:
                for stored in known.units:
                    writer.reuse(stored)
                own, units = known.columns, [each.unit for each in known.units]
            else:
                own, units = self._read_file(file, writer, quarantine, output.report, rows)
                rows += sum(unit.rows for unit in units)
            found.append(IngestedFile(f"{self._name}/{file.name}", own, units))
        parts, done = writer.close(), writer.writer
        self._check_fit(quarantine, done.rows)
        schema = self.columns.schema
        return TableResult(parts, done.rows, done.decoded_bytes, schema, self.columns, found), quarantine

    def _read_file(
        self, file: DataFile, writer: RawPartWriter, quarantine: Quarantine, report: ReportRows, before: int
    ) -> tuple[Sequence[str], list[Unit]]:
        table = self._new.pop(file.name)
        table.fix(self.columns)
        units: list[Unit] = []
        for batch in table.batches(quarantine):
            if any(batch[name].null_count < batch.num_rows for name in self.empty):
                raise TypesChanged
            if batch.num_rows:
                units.append(writer.add(batch))
                before += batch.num_rows
            report(self._name, before)
        return table.own_names().get(file.name, ()), units

    def _check_fit(self, quarantine: Quarantine, rows: int) -> None:
        """Raise DataError when a column has more misfits than would be inferred as its kind."""
        for reason in misfit_reasons(self.columns):
            if (count := quarantine.cells[f"{self._name}: {reason}"]) > MAX_MISMATCH_SHARE * rows:
                raise DataError(
                    f"{count:,} of {rows:,} values of a column of table {self._name} do not fit its kind, "
                    f"which is that of its first version: {reason}. At most {MAX_MISMATCH_SHARE:.0%} may be "
                    f"read as missing:\n  {quarantine.shown}\nCorrect them, or give the recipe another "
                    "`name`: under a new one, all kinds are inferred again"
                )


def _require_whole(store: Store, part: DatasetPart) -> None:
    """Raise NotInStore or CorruptObject for a damaged part, where that is known without fetching it."""
    if isinstance(store, VerifiedMarks):
        open_blob(store, part.sha256)


def _kept_lines(table: str, manifest: Manifest, files: Mapping[str, KnownFile], store: Store) -> list[str]:
    """Return the quarantined rows of stored files, as they were written."""
    if manifest.quarantine is None:
        return []
    path = open_blob(store, manifest.quarantine.removeprefix(store_layout.BLOBS))
    with path.open(encoding="utf-8") as lines:
        entries = ((line, json.loads(line)) for line in lines)
        return [line for line, each in entries if each["table"] == table and each["file"] in files]
