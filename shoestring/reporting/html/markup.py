"""HTML and SVG from function calls. Whatever is not already `Html` is escaped, so that no page can forget to."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = frozenset({"br", "col", "hr", "meta"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(*pieces: object) -> Html:
    """Pieces one after another; None is nothing, and what is not Html is escaped."""
    return Html(
        "".join(
            piece if isinstance(piece, Html) else html.escape(str(piece))
            for piece in pieces
            if piece is not None
        )
    )


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """One element. `class_` is `class` and `aria_label` is `aria-label`; an attribute of None is left out, of True stands bare."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>" + ("" if name in VOID else f"{text(*children)}</{name}>"))


Head = tuple[str, str]
"""A column: its words and its class. `name` names the row and comes first, `n` is a number."""

Row = Iterable[object]


def table(
    caption: str,
    heads: Iterable[Head],
    rows: Iterable[Row],
    *,
    totals: Iterable[Row] = (),
    class_: str | None = None,
) -> Html:
    """A table, its totals at the foot.

    The roles are said again: a style that lays rows out as blocks (a phone) would otherwise take the table away from a screen reader.
    """
    columns = tuple(heads)
    head = tag(
        "tr",
        *(tag("th", words, scope="col", role="columnheader", class_=kind or None) for words, kind in columns),
        role="row",
    )
    parts = [tag("thead", head, role="rowgroup"), _rows("tbody", columns, rows)]
    if foot := tuple(totals):
        parts.append(_rows("tfoot", columns, foot))
    return tag("table", tag("caption", caption), *parts, role="table", class_=class_)


def _rows(name: str, columns: tuple[Head, ...], rows: Iterable[Row]) -> Html:
    made = (
        tag("tr", *(_cell(column, cell) for column, cell in zip(columns, row, strict=True)), role="row")
        for row in rows
    )
    return tag(name, *made, role="rowgroup")


def scroll(name: str) -> dict[str, object]:
    """Attributes of a box that scrolls sideways, also by keyboard."""
    return {"class_": "scroll", "tabindex": 0, "role": "region", "aria_label": name}


def _cell(column: Head, cell: object) -> Html:
    words, kind = column
    if kind == "name":
        return tag("th", cell, scope="row", role="rowheader", class_=kind)
    return tag("td", cell, role="cell", class_=kind or None, data_label=words)
