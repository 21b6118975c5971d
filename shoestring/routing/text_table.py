"""A table of text cells, for a terminal or as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shoestring.core.text import shown_line


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of text. `right`: the columns to align right."""

    caption: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[str] = frozenset()
    note: str = ""


def shown_table(table: TextTable) -> TextTable:
    """Return the table with each text on one line that a terminal can show."""
    rows = [tuple(map(shown_line, row)) for row in table.rows]
    return replace(table, caption=shown_line(table.caption), rows=rows, note=shown_line(table.note))


def text_lines(table: TextTable) -> list[str]:
    """Return the caption, then the table in aligned and indented columns, for a terminal."""
    table = shown_table(table)
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
    header, *rows = (" | ".join(map(escape_markdown, row)) for row in (table.header, *table.rows))
    lines = [f"## {escape_markdown(table.caption)}", "", f"| {header} |", f"|{'|'.join(rule)}|"]
    lines += [f"| {row} |" for row in rows]
    return lines + (["", escape_markdown(table.note)] if table.note else [])


MARKUP = re.compile(r"[\\`*\[\]<|~]|\b_|_\b")


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line: no HTML, link, image, emphasis or table cell."""
    return MARKUP.sub(r"\\\g<0>", " ".join(text.splitlines()))
