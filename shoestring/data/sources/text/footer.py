"""The end of a table in its file: totals and notes below the rows, and a last row that was half written."""

from __future__ import annotations

import re

import pyarrow as pa

NOTE_REASON = "a note below the rows"
MAX_FOOTER_ROWS = 5
LOOKED_AT_ROWS = 1000
"""The rows before the last ones whose first values are compared: where others are called total, a row is one
of them."""
TOTALS = re.compile(
    r"^\W*((grand |sub)?totals?|sum|averages?|avg|means?|summe|gesamt|insgesamt|mittelwert|somme|suma|totale)"
    r"\b\W*$",
    re.IGNORECASE,
)
RULE = re.compile(r"^[-=_]{3,}$")
NOTE = re.compile(
    r"^\W*((data )?sources?|notes?|quelle|(grand |sub)?totals?|generated|created|exported|printed|copyright|"
    r"end of|eof|[0-9][0-9.,]* (rows?|records?|lines?|entries))\b|^\s*(©|\*\*?\s?\w)",
    re.IGNORECASE,
)


MARKED_NOTE = re.compile(
    r"^\W*((data )?sources?|notes?|quelle|generated|created|exported|printed)\b[^:]{0,20}:", re.I
)


def is_note(line: str) -> bool:
    """Return whether a line is written below a table, and is no row of it."""
    return bool(NOTE.match(line.strip().strip('"')))


def footer_reasons(block: pa.RecordBatch) -> list[str]:
    """Return why the last rows of a table are none, in order: as many reasons as there are such rows."""
    found: list[str] = []
    alone: list[str] = []
    for index in range(block.num_rows - 1, max(-1, block.num_rows - 1 - MAX_FOOTER_ROWS), -1):
        filled = [place for place, column in enumerate(block.columns) if column[index].is_valid]
        first = block.column(filled[0])[index].as_py() if filled else ""
        cells = [block.column(place)[index].as_py() for place in filled]
        if block.num_columns > 1 and not filled:
            alone.append("an empty row")
        elif all(map(RULE.match, cells)):
            alone.append("a line below the rows")
        elif block.num_columns > 2 and len(filled) == 1 and not is_note(first):
            alone.append(NOTE_REASON)  # A line of a note, if a note is above it.
        elif reason := _reason(block, index, first, len(filled)):
            found += [*alone, reason]
            alone = []
        else:
            break
    found += [reason for reason in alone if reason != NOTE_REASON] if NOTE_REASON not in alone else []
    return found[::-1]


def _reason(block: pa.RecordBatch, index: int, first: str, filled: int) -> str:
    if filled == 1 and block.num_columns > 2 and is_note(first):
        return NOTE_REASON
    before = max(0, index - LOOKED_AT_ROWS), max(0, index - MAX_FOOTER_ROWS)
    words = [word for word in block.column(0)[before[0] : before[1]].to_pylist() if word]
    if block.num_columns < 2 or first in words:
        return ""
    if TOTALS.match(first):
        return "a row of totals"
    return NOTE_REASON if MARKED_NOTE.match(first) and not any(map(MARKED_NOTE.match, words)) else ""


def is_unclosed(block: pa.RecordBatch, tail: str, delimiter: str, quote: str) -> bool:
    """Return whether the quote that opens the last value is never closed. `tail`: the end of the file."""
    if not quote or not block.num_rows or (last := block.columns[-1][-1].as_py()) is None:
        return False
    tail, written = tail.rstrip("\r\n"), last.rstrip("\r\n").replace(quote, quote * 2)
    if len(written) >= len(tail):
        return bool(tail) and written.endswith(tail)
    start = len(tail) - len(written)
    before = tail[max(0, start - 2) : start]
    return tail.endswith(written) and before[-1:] == quote and before[:1] in (delimiter, "\n", "\r")
