"""How a CSV file is written: its delimiter, quotes, escapes and comments, found in its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shoestring.data.source import ReadSettings

DELIMITERS = ",;\t| "
"""Of two that fit equally well, the first is taken."""
NO_DELIMITER = "\x1f"
"""The delimiter of a file with one column: a control character that text does not contain."""

LOOKED_AT_CHARACTERS = 1 << 16
LOOKED_AT_ROWS = 500
MIN_SCORE = 0.35
"""A worse delimiter divides text, not columns."""

LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
NUMBER_LIKE = re.compile(r"^[^\w.,+-]{0,3}[-+]?[0-9][0-9.,' ]*(?:[eE][-+]?[0-9]+)?[^\w.,]{0,3}$")
DIVIDED = re.compile(r"[^\s,][,;|\t][^\s,]|[^\s;];\s")
"""What is left of another delimiter in a value that is divided at the wrong one."""

SENTENCES_PENALTY = 0.6
SPACES_PENALTY = 0.2
"""Spaces divide words more often than columns."""

WRAPPED = {
    quote: re.compile(rf"(?:^|[,;|\t]) *{quote}[^{quote}\r\n]*{quote} *(?=[,;|\t\r\n]|$)", re.M)
    for quote in "\"'"
}
MIN_WRAPPED = 3
"""Values in single quotes that show these to be quotes."""


class Dialect(NamedTuple):
    """How a CSV file is written.

    Args:
        quote: around values; empty: none.
        has_escapes: a quote in a quoted value follows a backslash, and is not doubled.
        has_padding: spaces may follow a delimiter before a quote.
        comment: the start of lines that are left out; empty: none.
    """

    delimiter: str
    quote: str = '"'
    has_escapes: bool = False
    has_padding: bool = False
    comment: str = ""

    def plain(self, text: str) -> str:
        """Return text with doubled quotes only, and no padding before them."""
        if self.has_escapes and "\\" in text:
            text = re.sub(r'\\(["\'\\])', lambda found: self._unescaped(found[1]), text)
        if self.has_padding:
            text = re.sub(rf"(?<={re.escape(self.delimiter)}) +(?={self.quote})", "", text)
        return text

    def _unescaped(self, character: str) -> str:
        return character * 2 if character == self.quote else character

    def rows(self, lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """Yield the values of the rows, each with the number of lines up to its end. Stops at a row that
        cannot be read."""
        reader = csv.reader(
            (self.plain(line) for line in lines),
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
        )
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error:
            return


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends."""
    return [found for found in LINE.findall(text) if found]


def is_comment(lines: Sequence[str], dialect: Dialect, *, is_quoted: bool = False) -> list[bool]:
    """Return which lines are comments: those that begin with the prefix, outside of quotes."""
    found: list[bool] = []
    for line in lines:
        found.append(not is_quoted and line.startswith(dialect.comment))
        if not found[-1] and dialect.quote:
            is_quoted ^= bool(line.count(dialect.quote) % 2)
    return found


def find_dialect(text: str, settings: ReadSettings) -> Dialect:
    """Return how a file that begins with `text` is written, except for what the recipe states."""
    text = text[:LOOKED_AT_CHARACTERS]
    lines = lines_of(text)
    if len(text) == LOOKED_AT_CHARACTERS:
        lines.pop()
    comment = settings.comment
    if comment is None:
        first = next((line for line in lines if line.strip()), "")
        comment = "#" if first.startswith("#") else ""
    if comment:
        lines = [line for line in lines if not line.startswith(comment)]
    best, best_score = Dialect(NO_DELIMITER, settings.quote or '"', comment=comment), MIN_SCORE
    for each in _candidates("".join(lines), settings):
        score = _score([row for _, row in islice(each.rows(lines), LOOKED_AT_ROWS)])
        if each.delimiter == " ":
            score *= 1 - SPACES_PENALTY if each.delimiter in next(iter(lines), "").strip() else 0
        if score > best_score + 1e-9:
            best, best_score = each._replace(comment=comment), score
    if settings.delimiter is not None:
        return best._replace(delimiter=settings.delimiter)
    return best


def _candidates(text: str, settings: ReadSettings) -> Iterator[Dialect]:
    """Yield dialects; of two that fit equally well, the first is taken."""
    delimiters = DELIMITERS if settings.delimiter is None else settings.delimiter
    wrapped = {quote: len(each.findall(text)) for quote, each in WRAPPED.items()}
    quote = "'" if wrapped["'"] >= MIN_WRAPPED and wrapped["'"] > wrapped['"'] else '"'
    quote = quote if settings.quote is None else settings.quote
    if settings.escape is not None:
        escapes = [bool(settings.escape)]
    else:
        escapes = [False, True] if quote and f"\\{quote}" in text else [False]
    for has_escapes in escapes:
        for delimiter in delimiters:
            if delimiter in text:
                padding = bool(quote) and delimiter != " " and f"{delimiter} {quote}" in text
                yield Dialect(delimiter, quote, has_escapes, padding)


def _score(rows: Sequence[Sequence[str]]) -> float:
    """Return how much rows look like those of a table, from 0 to 1: equally many values in each, which are
    numbers, or text that is not divided."""
    counts = Counter(len(row) for row in rows if any(cell.strip() for cell in row))
    several = [width for width, count in counts.items() if width > 1 and (count > 1 or len(counts) == 1)]
    if not several:
        return 0.0
    width = max(several, key=counts.__getitem__)
    cells = [cell.strip() for row in rows if len(row) == width for cell in row]
    wholes = sum(bool(NUMBER_LIKE.match(cell)) or not DIVIDED.search(cell) for cell in cells)
    later = [cell for row in rows if len(row) == width for cell in row[1:]]
    # Sentences below a name that holds no delimiter.
    spaced = sum(cell.startswith(" ") for cell in later) / len(later) if len(rows[0]) == 1 else 0.0
    share = counts[width] / counts.total()
    return share * (wholes / len(cells)) * (1 - 1 / width**2) * (1 - SENTENCES_PENALTY * spaced)
