"""Messy tables whose manner first shows beyond the first megabyte of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from generated_tables import case
from messy_cases import Case, Value
from table_truths import replaced, truth
from table_writer import Manner, Truth
from written_values import ENCODING

ROWS, LATE = 24_000, 23_000
KIND = "late in the file"


@cache
def long_table() -> Truth:
    """Return a table of more than a megabyte."""
    return truth(rows=ROWS)


def with_late(column: str, value: Value, every: int = 200) -> Truth:
    """Return the table with another value in some rows after LATE."""
    table = long_table()
    index = table.names.index(column)
    values: Sequence[Value] = [
        value if number > LATE and number % every == 7 else row[index]
        for number, row in enumerate(table.rows)
    ]
    return replaced(table, column, values)


def families() -> Iterator[Case]:
    assert len(case("late", KIND, long_table()).data) > 1 << 20
    yield case("a line break in quotes, late", KIND, with_late("place", "Oslo\nNorway"))
    yield case("doubled quotes, late", KIND, with_late("place", 'the "old" mill, north'))
    escaped = Manner(quote_all=True, escape="\\")
    yield case("escaped quotes, late", KIND, with_late("place", 'the "old" mill, north'), escaped)
    unstated = with_late("place", "Köln")
    yield case("cp1252, late", KIND, unstated, Manner(encoding="cp1252"), refusal=ENCODING)
    yield case("UTF-8, late", KIND, unstated)
    ragged = Manner(ragged=(30, LATE, LATE + 71), blank_every=1000)
    yield case("ragged rows, late", KIND, long_table(), ragged)
    yield case("stray texts, late", KIND, long_table(), Manner(strays=(LATE, LATE + 71, LATE + 300)))
    yield case("a decimal, late", KIND, with_late("count", 2.5))
    yield case("? for a missing value, late", KIND, with_late("count", None), Manner(missing={"count": "?"}))
    remarks = Manner(before=("# exported",), remarks="# checked")
    yield case("comments between 24,000 rows", KIND, long_table(), remarks)
    footer = Manner(total=True, after=("", "Source: order desk, Springfield"))
    yield case("totals and a source after 24,000 rows", KIND, long_table(), footer)
    yield case("cut in a quoted text, gz", KIND, long_table(), Manner(cut=True, pack="gz"))
