"""A table of text cells, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of text. `right`: the columns to align right."""

    caption: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[str] = frozenset()
    note: str = ""


def text_lines(table: TextTable) -> list[str]:
    """Return the caption, then the table in aligned and indented columns."""
    columns = list(zip(*[table.header, *table.rows], strict=True))
    widths = [max(map(len, column)) for column in columns]
    sides = [">" if name in table.right else "<" for name in table.header]
    lines = [table.caption]
    for row in (table.header, *table.rows):
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines + ([f"  {table.note}"] if table.note else [])


def markdown_lines(table: TextTable) -> list[str]:
    """Return the table in Markdown, under a heading."""
    rule = ("---:" if name in table.right else "---" for name in table.header)
    lines = [f"## {table.caption}", "", f"| {' | '.join(table.header)} |", f"|{'|'.join(rule)}|"]
    lines += [f"| {' | '.join(cell_of(cell) for cell in row)} |" for row in table.rows]
    return lines + (["", table.note] if table.note else [])


def cell_of(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
