"""Rows that could not be used: where they stood, what they said, and why they were left out."""

from __future__ import annotations

import json
from collections import Counter
from typing import IO

from shoestring.core.errors import DataError

MAX_BAD_SHARE = 0.10
"""With more bad rows than this share, a table is not what the recipe takes it for."""

SHOWN_ROWS = 3


class Quarantine:
    """The bad rows of one table, counted by reason; the first few sentences are kept, every row is written as a line of JSON."""

    def __init__(self, table: str, lines: IO[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._table, self._lines = table, lines
        self._sentences: list[str] = []

    def add(self, file: str, record: int, reason: str, text: str) -> None:
        """`record` counts the header as 1; `text` is the row as it was written.

        Each of its lines counts as a row: a quote that is never closed makes one of all that follow.
        """
        self.counts[f"{self._table}: {reason}"] += 1 + text.count("\n")
        if len(self._sentences) < SHOWN_ROWS:
            self._sentences.append(f"{file}, row {record}: {reason}: {text[:80]!r}")
        self._lines.write(
            json.dumps({"table": self._table, "file": file, "row": record, "reason": reason, "text": text})
            + "\n"
        )

    def check(self, good: int) -> None:
        """Raises DataError when there are too many bad rows beside `good` ones, or no row at all."""
        bad = self.counts.total()
        if bad > MAX_BAD_SHARE * (good + bad):
            first = "\n  ".join(self._sentences)
            raise DataError(
                f"{bad} of {good + bad} rows of table {self._table} cannot be used, and up to {MAX_BAD_SHARE:.0%} are set aside:\n  {first}"
            )
        if not good:
            raise DataError(f"table {self._table} has no rows: there is nothing to learn from")
