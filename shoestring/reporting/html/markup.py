"""HTML and SVG from function calls. Anything that is not `Html` is escaped, so no caller can forget to escape
it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = frozenset({"br", "col", "hr", "meta"})


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


def text(*pieces: object) -> Html:
    """Concatenate pieces. None is skipped, and anything that is not Html is escaped."""
    return Html(
        "".join(
            piece if isinstance(piece, Html) else html.escape(str(piece))
            for piece in pieces
            if piece is not None
        )
    )


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return one element.

    `class_` becomes `class`, and `aria_label` becomes `aria-label`. An attribute with the value None is left
    out; one with True has no value.
    """
    attribute_text = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{attribute_text}>" + ("" if name in VOID else f"{text(*children)}</{name}>"))


Head = tuple[str, str]
"""A column: its title and its class. `name` is the first column and names the row; `n` is a number."""

Row = Iterable[object]


def table(
    caption: str,
    heads: Iterable[Head],
    rows: Iterable[Row],
    *,
    totals: Iterable[Row] = (),
    class_: str | None = None,
) -> Html:
    """Return a table, with its totals at the foot.

    Roles are repeated explicitly: a style that lays rows out as blocks (on a phone) would otherwise hide the
    table from screen readers.
    """
    columns = tuple(heads)
    head = tag(
        "tr",
        *(
            tag("th", heading, scope="col", role="columnheader", class_=kind or None)
            for heading, kind in columns
        ),
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


def _cell(column: Head, cell: object) -> Html:
    heading, kind = column
    if kind == "name":
        return tag("th", cell, scope="row", role="rowheader", class_=kind)
    return tag("td", cell, role="cell", class_=kind or None, data_label=heading)
