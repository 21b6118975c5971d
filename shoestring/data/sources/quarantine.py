"""The quarantine of rows that could not be used: their place, their text and the reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import IO, NamedTuple

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
    """The bad rows of one table: counted by reason, and written as one line of JSON each. A few are shown
    in errors."""

    def __init__(self, table: str, lines: IO[str]) -> None:
        self.counts: Counter[str] = Counter()
        self.misfits: dict[str, ColumnMisfits] = {}
        self._table, self._lines = table, lines
        self._shown: list[str] = []

    def add(self, file: str, row_number: int, reason: str, text: str, misfit: Misfit | None = None) -> None:
        """Add a row. The header is row 1; `text` is the row as it was written, and `misfit` its first
        value that does not fit.

        Each line of `text` counts as a row, because an unclosed quote merges all following rows into one.
        """
        self.counts[f"{self._table}: {reason}"] += 1 + text.count("\n")
        if len(self._shown) < SHOWN_ROWS:
            self._shown.append(f"{file}, row {row_number}: {reason}: {text[:80]!r}")
        entry = {"table": self._table, "file": file, "row": row_number, "reason": reason, "text": text}
        if misfit is not None:
            entry["value"] = misfit.value
            first = self.misfits.get(misfit.column) or ColumnMisfits(0, misfit.value, file, row_number)
            self.misfits[misfit.column] = first._replace(total=first.total + 1)
        self._lines.write(json.dumps(entry) + "\n")

    def keep(self, lines: Iterable[str]) -> None:
        """Add rows again that were written for an earlier version, which named them. Errors show none of
        them."""
        for line in lines:
            entry = json.loads(line)
            self.counts[f"{self._table}: {entry['reason']}"] += 1 + entry["text"].count("\n")
            self._lines.write(line)

    @property
    def shown(self) -> str:
        """A few of the rows, one a line."""
        return "\n  ".join(self._shown)

    def check(self, good: int) -> None:
        """Raise DataError when there are too many bad rows compared with `good` ones, or no good row at
        all."""
        bad = self.counts.total()
        if bad > MAX_BAD_SHARE * (good + bad):
            raise DataError(
                f"{bad} of {good + bad} rows of table {self._table} cannot be used; "
                f"at most {MAX_BAD_SHARE:.0%} may be quarantined:\n  {self.shown}"
            )
        if not good:
            raise DataError(f"table {self._table} has no rows: there is nothing to learn from")
