"""A bounded sample of a table, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from shoestring.data.sources.data_file import DataFile
from shoestring.data.sources.quarantine import ColumnMisfits, Quarantine
from shoestring.data.sources.table import SourceTable
from shoestring.data.sources.text.type_guess import ColumnReading

MAX_SAMPLE_BYTES = 8 << 20
"""The largest part of a table that is read, as decompressed bytes: about 0.2 s of one core."""

MAX_SAMPLE_FILES = 8
"""The files of a folder that are read: the first, the last, and some between them."""

MAX_SAMPLE_ROWS = 20_000
"""The rows of that part that are kept."""


WHOLE_BYTES = 2 << 20
"""A table of up to this size is read whole, as ingest reads it, in about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class SampleSize:
    """How much of each table is read, as decompressed bytes.

    `whole_bytes`: of a table that is read whole; `part_bytes`: of a larger one. `whole_rows`: the most rows
    that are kept of a main table that is read whole; None: all.
    """

    whole_bytes: int = WHOLE_BYTES
    part_bytes: int = MAX_SAMPLE_BYTES
    whole_rows: int | None = MAX_SAMPLE_ROWS


QUICK = SampleSize()
"""What each plan and run reads."""

THOROUGH = SampleSize(50_000_000, 12_000_000, None)
"""What a data page reads that was asked for: 31 MB of flights take 3 s of one core."""


@dataclass(frozen=True, slots=True)
class WholeTable:
    """All rows of a table as ingest reads them, those of each file, and the rows and values that it would
    quarantine, a line of JSON each."""

    rows: pa.Table
    quarantine: Quarantine
    lines: str
    file_rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TableSample:
    """Rows of one table, with the types that ingest would infer from them alone.

    `rows_read` counts the rows that these were chosen from, and `misfits` those that ingest would quarantine;
    it is known if the table was read whole. `unread`: the values of these rows that do not fit the types, and
    are missing. With `is_whole`, these are all rows of the table. `whole`: the table itself, if it is small.
    `part_read`: which part of the table was read; empty: all of it. `table` reads on; it has these `files`.
    `readings`: of the columns of text, how ingest would read them. `misfit_values`: by column, of those that
    have any. `late`: columns that are text in a later part of a file only, a sentence each.
    """

    rows: pa.Table
    rows_read: int
    misfits: int
    is_whole: bool
    table: SourceTable
    readings: Mapping[str, ColumnReading] = field(default_factory=dict)
    whole: WholeTable | None = None
    misfit_values: Mapping[str, ColumnMisfits] = field(default_factory=dict)
    unread: int = 0
    files: Sequence[DataFile] = ()
    part_read: str = ""
    late: tuple[str, ...] = ()

    @property
    def lost(self) -> Mapping[str, int]:
        """The rows that ingest would quarantine, by reason, of a table that was read whole."""
        return dict(self.whole.quarantine.counts) if self.whole else {}

    @property
    def file_rows(self) -> Mapping[str, int]:
        """The rows of each file, of a table that was read whole."""
        return self.whole.file_rows if self.whole else {}
