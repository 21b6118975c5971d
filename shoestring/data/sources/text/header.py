"""Where the rows of a CSV file begin, and the names of their values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from shoestring.core.errors import DataError
from shoestring.data.source import ReadSettings
from shoestring.data.sources.text.dialect import NUMBER_LIKE, Dialect, is_comment, lines_of
from shoestring.data.values import MISSING

LOOKED_AT_ROWS = 1000
MISSING_TEXTS = frozenset(MISSING)
MIN_NUMBERS_SHARE = 0.8
"""A column is one of numbers if at least this share of its first values is."""
MAX_GAPS = 1.1
"""Rows that count up may have gaps, since damaged rows are left out."""
MAX_UNIT_CHARACTERS = 15
BRACKETED = re.compile(r"^[(\[<].*[)\]>]$")
MIN_WORDS = 3
"""Columns of numbers that all have a word in the first row: one that lacks them might have one or two."""
RULE = re.compile(r"^[-=+_:]{3,}$")
UNITS = frozenset(
    (
        *("%", "m", "km", "cm", "mm", "µm", "um", "nm", "ft", "in", "mi", "yd", "g", "kg", "mg", "µg"),
        *("t", "lb", "oz", "s", "sec", "ms", "µs", "min", "h", "hr", "d", "day", "days", "y", "yr"),
        *("l", "ml", "m2", "m²", "m3", "m³", "km2", "km²", "ha", "°c", "°f", "w", "kw", "kwh", "mw"),
        *("mwh", "v", "mv", "ma", "ohm", "hz", "khz", "mhz", "ghz", "pa", "hpa", "kpa", "bar", "mbar"),
        *("j", "kj", "cal", "kcal", "mol", "m/s", "km/h", "mph", "knots", "m/s2", "g/l", "mg/l"),
        *("µg/m3", "µg/m³", "ug/m3", "kg/m3", "ppm", "ppb", "db", "usd", "eur", "gbp", "$", "€", "£"),
        *("deg", "rad", "rpm", "mb", "gb", "kb", "bit", "byte", "years", "months", "hours", "minutes"),
        *("seconds", "degrees"),
    )
)

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Header:
    """The start of a CSV file.

    Args:
        names: of all values of a row, in order.
        unused: those of values that are left out: a count of the rows, or nothing after the last delimiter.
        empty: those of them that have no values in the first rows.
        skipped_bytes: in UTF-8, before the first row.
        first_row: the number of the first row; that of the header is 1.
        remarks: what is left out or named, as parts of a sentence.
    """

    names: tuple[str, ...]
    skipped_bytes: int
    first_row: int
    unused: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = field(default=())


class HeaderFinder:
    """Finds the header in the text at the start of a file."""

    def __init__(
        self, text: str, dialect: Dialect, settings: ReadSettings, name: str, *, is_whole: bool
    ) -> None:
        lines = lines_of(text)
        if not is_whole and len(lines) > 1:
            lines.pop()
        comments = is_comment(lines, dialect) if dialect.comment else [False] * len(lines)
        kept = [index for index, each in enumerate(comments) if not each]
        found = islice(dialect.rows([lines[index] for index in kept]), LOOKED_AT_ROWS)
        self._lines, self._dialect, self._settings, self._name = lines, dialect, settings, name
        # The number of lines up to the end of each row, which are counted without comments.
        self._ends, self._rows = [], list[list[str]]()
        for end, row in found:
            if any(cell.strip() for cell in row):
                self._ends.append(kept[end - 1] + 1)
                self._rows.append(row)
        self._comments = [line for line, each in zip(lines, comments, strict=True) if each]
        counts = Counter(len(row) for row in self._rows)
        # Lines before the header, which have one value, may be more than the rows.
        several = [width for width in counts if width > 1 and counts[width] > 1]
        self._width = max(several or counts or [0], key=lambda width: counts[width])

    def find(self) -> Header:
        """Raises DataError."""
        if not self._rows:
            raise DataError(f"{self._name} is empty: remove it, or put the data in it")
        if self._settings.columns:
            return self._with_names_of_recipe()
        if (line := self._settings.header_line) is not None:
            return self._at(self._row_in(line))
        if (names := self._commented_names()) is not None:
            return self._named(names, -1, [])
        index = self._first_of_rows()
        self._check_names(index)
        before = self._ends[index - 1] if index else 0
        skipped = [f"{before} line{'s' * (before > 1)} before the header left out"] if before else []
        return self._at(index, skipped)

    def _with_names_of_recipe(self) -> Header:
        names = self._settings.columns
        if len(names) != self._width:
            raise DataError(
                f"{self._name}: `columns` names {len(names)} columns, and most rows have {self._width} "
                "values: name each of them"
            )
        return Header(names, 0, 1)

    def _row_in(self, line: int) -> int:
        for index, end in enumerate(self._ends):
            if end >= line:
                return index
        raise DataError(f"{self._name} has no header in line {line}: correct `header_line`")

    def _first_of_rows(self) -> int:
        """Return the first row that names most columns."""
        for index, row in enumerate(self._rows):
            filled = sum(bool(cell.strip()) for cell in row)
            if filled <= self._width / 2 or len(row) < self._width - 1:
                continue
            if len(row) >= self._width or self._lacks_one_name(index):
                return index
        return 0

    def _lacks_one_name(self, index: int) -> bool:
        """Return whether a row may be a header without a name for the row names, or an empty last value."""
        following = self._rows[index + 1 : index + 3]
        is_wide = bool(following) and all(len(row) == self._width for row in following)
        return is_wide and _has_number(following) and not _has_number([self._rows[index]])

    def _commented_names(self) -> list[str] | None:
        """Return the names of columns in the last comment before the first row; None without them."""
        if not self._comments or not self._lines[self._ends[0] - 2].startswith(self._dialect.comment):
            return None
        last = self._lines[self._ends[0] - 2].removeprefix(self._dialect.comment).strip()
        names = next((row for _, row in self._dialect.rows([last])), [])
        first = self._rows[0]
        is_header = len(names) == self._width > 1 and not any(map(is_number, names))
        return names if is_header and any(map(is_number, first)) else None

    def _check_names(self, index: int) -> None:
        """Raise DataError if a header looks like a row."""
        names, rows = self._rows[index], self._rows[index + 1 :]
        columns = _columns(rows, len(names))
        pairs = [(name.strip(), column) for name, column in zip(names, columns, strict=True)]
        numbers = [name for name, column in pairs if is_number(name) and _is_of_numbers(column)]
        known = sum(bool(name) and name in column for name, column in pairs)
        of_numbers = sum(map(_is_of_numbers, columns))
        is_row = (len(numbers) > 1 or len(numbers) * 2 > of_numbers) and not _is_series(numbers)
        is_row |= known > 1 and known * 2 >= len(names)
        if not rows or not is_row:
            return
        line, shown = self._ends[index], self._dialect.delimiter.join(names)[:80]
        raise DataError(
            f"{self._name} seems to have no header: line {line} is {shown!r}, which looks like a row; name "
            f"the {len(names)} columns, such as `read: {{columns: [first, second, ...]}}` in the source of "
            f"the table, or state that this is the header: `read: {{header_line: {line}}}`"
        )

    def _at(self, index: int, remarks: Sequence[str] = ()) -> Header:
        return self._named(self._rows[index], index, remarks)

    def _named(self, cells: Sequence[str], index: int, remarks: Sequence[str]) -> Header:
        """Return the header with these names. `index`: its row; -1: it is in a comment."""
        rows, found, first_row = self._rows[index + 1 :], [*remarks], 2
        end = self._ends[index] if index >= 0 else self._ends[0] - 1
        has_units = self._settings.units_row
        if has_units is None:
            has_units = _are_units(rows, len(cells))
        if has_units and rows:
            found.append(f"the row after the header, {', '.join(filter(None, rows[0]))[:40]}, left out")
            end, rows, first_row = self._ends[index + 1], rows[1:], first_row + 1
        while len(cells) > self._width and not cells[-1].strip():
            cells = cells[:-1]
        names, counter, empty, named = _names(cells, rows)
        skipped = sum(len(line.encode()) for line in self._lines[:end])
        unused, remarks = frozenset(counter | empty), (*found, *named)
        return Header(tuple(names), skipped, first_row, unused, frozenset(empty), remarks)


def _names(cells: Sequence[str], rows: Rows) -> tuple[list[str], set[str], set[str], list[str]]:
    """Return the names of all values of a row, those of a count of the rows, those without values, and
    remarks."""
    names, counter, empty, remarks = [cell.strip() for cell in cells], set[str](), set[str](), list[str]()
    wide = [row for row in rows if len(row) == len(names) + 1]
    if len(wide) * 2 > len(rows):
        if not any(row[-1].strip() for row in wide):
            names.append("")
        elif len({row[0] for row in wide}) == len(wide):
            names.insert(0, "")
    whole = [row for row in rows if len(row) == len(names)]
    for index, name in enumerate(names):
        if whole and not name and not any(row[index].strip() for row in whole):
            empty.add(f"column_{index + 1}")
            remarks.append(f"column_{index + 1}, which has neither a name nor values, left out")
    if not names[0] and _counts_up([row[0] for row in whole]):
        counter.add("column_1")
        remarks.append("the first column, which counts the rows, left out")
    for index, name in enumerate(names):
        if name and name not in names[:index]:
            continue
        names[index] = _new_name(name, index, names)
        if names[index] not in counter | empty:
            of = f"a second {name!r}" if name else "a column without a name"
            remarks.append(f"{of} named {names[index]}")
    return names, counter, empty, remarks


def _new_name(name: str, index: int, names: Sequence[str]) -> str:
    """Return the name of a column without one, or with one that an earlier column has."""
    number = 2 if name else index + 1
    while (new := f"{name or 'column'}_{number}") in names:
        number += 1
    return new


def is_number(cell: str) -> bool:
    """Return whether a value is written like a number."""
    return bool(NUMBER_LIKE.match(cell.strip()))


def _has_number(rows: Rows) -> bool:
    return any(is_number(cell) for row in rows for cell in row)


def _columns(rows: Rows, width: int) -> list[list[str]]:
    return [_column(rows, index) for index in range(width)]


def _column(rows: Rows, index: int) -> list[str]:
    return [row[index].strip() for row in rows if len(row) > index]


def _is_of_numbers(column: Sequence[str]) -> bool:
    others = [cell for cell in column if not NUMBER_LIKE.match(cell)]
    known = len(column) - sum(cell.lower() in MISSING_TEXTS for cell in others)
    return known > 0 and len(column) - len(others) >= MIN_NUMBERS_SHARE * known


def _is_series(names: Sequence[str]) -> bool:
    """Return whether names are years, or whole numbers that rise."""
    if not all(re.fullmatch("[0-9]{1,4}", name) for name in names):
        return False
    numbers = [*map(int, names)]
    return _rises(numbers) and (len(numbers) > 1 or 1800 <= numbers[0] <= 2200)


def _rises(numbers: Sequence[int]) -> bool:
    return all(first < second for first, second in pairwise(numbers))


def _counts_up(cells: Sequence[str]) -> bool:
    """Return whether whole numbers go up by one from row to row, except at a few damaged rows."""
    if len(cells) < 2 or not all(cell.strip().isdecimal() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return _rises(numbers) and numbers[-1] <= numbers[0] + MAX_GAPS * len(numbers)


def _are_units(rows: Rows, width: int) -> bool:
    """Return whether the first row is a line, or has units or other words where the others have numbers."""
    if len(rows) < 4 or len(rows[0]) < width - 1:
        return False
    filled = [cell.strip() for cell in rows[0] if cell.strip()]
    if all(map(RULE.match, filled)) or sum(map(bool, map(BRACKETED.match, filled))) > len(filled) / 2:
        return True
    numbers = [index for index, cell in enumerate(rows[0][:width]) if is_number(cell)]
    if any(_is_of_numbers(_column(rows[1:], index)) for index in numbers):
        return False
    columns = _columns(rows[1:], width)
    units = [cell.strip() for cell, column in zip(rows[0], columns, strict=False) if _is_of_numbers(column)]
    named = [unit for unit in units if unit.lower() not in MISSING_TEXTS]
    if not named or any(len(unit) > MAX_UNIT_CHARACTERS for unit in named):
        return False
    known = sum(bool(BRACKETED.match(unit)) or unit.lower() in UNITS for unit in named)
    are_words = len(named) == len(units) >= MIN_WORDS
    return are_words or (known * 2 >= len(named) and len(named) * 2 >= len(units))
