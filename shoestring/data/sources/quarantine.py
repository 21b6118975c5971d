"""The quarantine of rows and single values that could not be used: their place, their text and the reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

from shoestring.core.errors import DataError

MAX_BAD_SHARE = 0.10
"""With a larger share of bad rows, the table is probably not what the recipe expects."""

SHOWN_ROWS = 3


class Misfit(NamedTuple):
    """A value that is not of the kind of its column."""

    column: str
    value: str


class ColumnMisfits(NamedTuple):
    """How many values of a column are not of its kind, and the first of them with its file and row."""

    total: int
    value: str
    file: str
    row_number: int


class Quarantine:
    """The bad rows and values of one table: counted by reason, and written as one line of JSON each. A few
    are shown in errors.

    Args:
        counts: rows.
        cells: values that are missing because they could not be read. Their rows are kept.
    """

    def __init__(self, table: str, lines: IO[str]) -> None:
        self.counts: Counter[str] = Counter()
        self.cells: Counter[str] = Counter()
        self.misfits: dict[str, ColumnMisfits] = {}
        self._table, self._lines = table, lines
        self._shown: list[str] = []
        self._damaged = 0

    def add(self, file: str, row_number: int, reason: str, text: str, *, is_damage: bool = True) -> None:
        """Add a row. The header is row 1, and `text` is the row as it was written.

        `is_damage`: it should have been a row. Each line of `text` counts as one, because an unclosed quote
        merges all following rows into one.
        """
        entry = {"table": self._table, "file": file, "row": row_number, "reason": reason, "text": text}
        self._write(entry if is_damage else entry | {"is_damage": False})

    def add_cell(self, file: str, row_number: int, reason: str, text: str, misfit: Misfit) -> None:
        """Add a value that is read as a missing one; `text` is its row as it was written."""
        entry = {"table": self._table, "file": file, "row": row_number, "reason": reason, "text": text}
        entry |= {"column": misfit.column, "value": misfit.value}
        first = self.misfits.get(misfit.column) or ColumnMisfits(0, misfit.value, file, row_number)
        self.misfits[misfit.column] = first._replace(total=first.total + 1)
        self._write(entry)

    def keep(self, lines: Iterable[str]) -> None:
        """Add rows and values again that were written for an earlier version, which named them. Errors show
        none of them."""
        for line in lines:
            self._count(json.loads(line))
            self._lines.write(line)

    def _count(self, entry: Mapping[str, Any]) -> None:
        reason = f"{self._table}: {entry['reason']}"
        if "column" in entry:
            self.cells[reason] += 1
            return
        rows = 1 + entry["text"].count("\n")
        self.counts[reason] += rows
        if entry.get("is_damage", True):
            self._damaged += rows

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._count(entry)
        self._lines.write(json.dumps(entry) + "\n")
        if len(self._shown) < SHOWN_ROWS:
            place = f"{entry['file']}, row {entry['row']}"
            self._shown.append(f"{place}: {entry['reason']}: {entry['text'][:80]!r}")

    @property
    def shown(self) -> str:
        """A few of the rows, one a line."""
        return "\n  ".join(self._shown)

    def check(self, good: int, bad_before: int = 0) -> None:
        """Raise DataError when there are too many bad rows compared with `good` ones, or no good row at all.

        `bad_before`: rows of the same table that an earlier stage left out.
        """
        bad = self._damaged + bad_before
        if bad > MAX_BAD_SHARE * (good + bad):
            raise DataError(
                f"{bad} of {good + bad} rows of table {self._table} cannot be used; "
                f"at most {MAX_BAD_SHARE:.0%} may be quarantined:\n  {self.shown}"
            )
        if not good:
            raise DataError(f"table {self._table} has no rows: there is nothing to learn from")
