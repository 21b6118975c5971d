"""Name what differs from the last version of the data: columns that were added, removed or retyped, and
values that are not of the kind that the first version fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shoestring.data.increments.schema_version import FixedMisfits, SchemaVersion, fixed_misfits
from shoestring.data.inspect.page_records import ColumnEntry, SchemaChange
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.inspect.uses import type_name
from shoestring.data.sources.column_types import arrow_type
from shoestring.data.sources.text.fixed_kinds import KINDS

SINCE = "since the last version of the data"
AGAIN = "all rows are encoded again"


def schema_changes(
    known: SchemaVersion, samples: Mapping[str, TableSample], entries: Sequence[ColumnEntry]
) -> tuple[SchemaChange, ...]:
    """Return the changes of all tables that were in the last version. `entries`: the use of each column."""
    uses = {(each.table, each.name): each.use for each in entries}
    found: list[SchemaChange] = []
    for table, sample in samples.items():
        if (before := known.tables.get(table)) is not None:
            found += _column_changes(
                before, sample, {name: use for (of, name), use in uses.items() if of == table}
            )
        found += (
            SchemaChange(column=each.column, change="misfits", finding=each.sentence)
            for each in _misfits(sample)
        )
    return tuple(found)


def check_misfits(samples: Mapping[str, TableSample]) -> None:
    """Raise DataError if more values than may be quarantined are not of the kind that was fixed."""
    for sample in samples.values():
        for misfits in _misfits(sample):
            misfits.check()


def _column_changes(
    before: Mapping[str, str], sample: TableSample, uses: Mapping[str, str]
) -> Iterator[SchemaChange]:
    schema = sample.rows.schema
    for name in schema.names:
        if name not in before:
            use = uses.get(name, "not used")
            use = use if use == "not used" else f"used as {use}"
            yield SchemaChange(
                column=name, change="added", finding=f"added {SINCE}; it is {use}, and {AGAIN}"
            )
        elif (kind := before[name]) and _type_text(kind) != str(schema.field(name).type):
            today = type_name(schema.field(name).type)
            yield SchemaChange(
                column=name, change="retyped", finding=f"retyped {SINCE}, from {kind} to {today}; {AGAIN}"
            )
    for name in before:
        if name not in schema.names:
            finding = f"removed {SINCE}; models are trained without it, and {AGAIN}"
            yield SchemaChange(column=name, change="removed", finding=finding)


def _type_text(kind: str) -> str:
    """Return the Arrow type of a stored kind."""
    return str(arrow_type(KINDS[kind])) if kind in KINDS else kind


def _misfits(sample: TableSample) -> Iterator[FixedMisfits]:
    rows = sample.whole.rows if sample.whole else sample.rows
    return fixed_misfits(sample.table, sample.misfit_values, int(rows.num_rows))
