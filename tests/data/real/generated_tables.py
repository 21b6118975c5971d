"""Messy tables that a seeded generator writes, each with what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from messy_cases import Case, Reading
from table_truths import COLUMNS, renamed, replaced, truth, without
from table_writer import Manner, Truth, write

NAMES = [name for name, _ in COLUMNS]
NO_HEADER = (r"columns", r"header|first (row|line)")
TITLE = ("Orders of the southern region, 2023", "")
FOOTNOTES = ("", "Source: order desk, Springfield", "Note: amounts include tax")


def case(
    name: str,
    kind: str,
    table: Truth | None = None,
    manner: Manner | None = None,
    *,
    read: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    refusal: tuple[str, ...] = (),
    must_refuse: bool = False,
    suffix: str = "csv",
) -> Case:
    """Write a table as a case. `refusal` alone lets the file be refused, and `must_refuse` demands it."""
    manner = manner or Manner()
    data, reading = write(table or truth(), manner)
    file = f"table.{suffix}" + (f".{manner.pack}" if manner.pack else "")
    wanted: Reading | None = None if must_refuse else reading
    return Case(name, kind, file, data, wanted, refusal, read or {}, kinds or {}, target="paid")


def delimiters() -> Iterator[Case]:
    kind = "another delimiter"
    for name, sign in {"semicolons": ";", "tabs": "\t", "bars": "|"}.items():
        yield case(name, kind, manner=Manner(delimiter=sign), suffix="tsv" if sign == "\t" else "csv")
    decoy = ["a;b;c;d;e;f;g;h", *NAMES[1:]]
    yield case("semicolons in a name", kind, renamed(truth(1), decoy))
    yield case("bars in a name, tabs between", kind, renamed(truth(2), decoy), Manner(delimiter="\t"))
    bars = replaced(truth(3), "place", ["a|b|c|d|e|f|g|h|i|j", "k|l"])
    yield case("bars in every row", kind, bars)
    quoted = renamed(truth(4), ["code; old; or new; or none; at all", *NAMES[1:]])
    yield case("commas between, semicolons in quotes", kind, quoted, Manner(quote_all=True))
    commas = replaced(truth(5), "place", ["one, two, three, four, five, six, seven, eight, nine", "a, b"])
    yield case("semicolons between, commas in texts", kind, commas, Manner(delimiter=";"))
    yield case("the delimiter of the recipe", kind, manner=Manner(delimiter="~"), read={"delimiter": "~"})
    first = Manner(delimiter=";", before=("sep=;",))
    yield case("Excel's line sep=;", kind, manner=first)


def quotes() -> Iterator[Case]:
    kind = "quotes and escapes"
    said = replaced(truth(), "place", ['the "old" mill, north', 'Cy "Bo" Ng', "Oslo"])
    yield case("doubled quotes", kind, said)
    yield case("every text in quotes", kind, said, Manner(quote_all=True))
    yield case("escaped quotes", kind, said, Manner(quote_all=True, escape="\\"))
    backslashes = replaced(truth(), "place", ['C:\\temp\\"x", y', "a\\b, c", 'the "old" mill, north'])
    yield case("escaped backslashes", kind, backslashes, Manner(quote_all=True, escape="\\"))
    yield case("backslashes that escape nothing", kind, replaced(truth(), "place", ["C:\\temp\\x", "D:\\y"]))
    nulls = Manner(delimiter="\t", missing={"count": "\\N", "place": "\\N"}, escape="\\", quote="")
    some = replaced(truth(), "place", ["Oslo", None, "Lima", "Quito", "Leeds"])
    yield case("MySQL's \\N", kind, some, nulls, suffix="tsv")
    single = Manner(quote="'", quote_all=True)
    yield case("single quotes", kind, manner=single)
    yield case("single quotes doubled", kind, replaced(truth(), "place", ["Land's End, UK", "Oslo"]), single)
    yield case(
        "apostrophes are no quotes", kind, replaced(truth(), "place", ["Land's End", "'t Hof", "Oslo"])
    )
    inches = replaced(truth(), "place", ['5" pipe', '19" rack', "hose"])
    bare = Manner(delimiter="\t", quote="")
    yield case("inches without quotes", kind, inches, bare, read={"quote": ""}, suffix="tsv")
    breaks = replaced(truth(), "place", ["first line\nsecond line", "one\n\nthree, four", "Oslo"])
    yield case("line breaks in quotes", kind, breaks)
    yield case(
        "line breaks in quotes, CRLF",
        kind,
        replaced(truth(), "place", ["Oslo, No", "Lima"]),
        Manner(newline="\r\n", quote_all=True),
    )
    yield case(
        "a text of 200,000 characters", kind, replaced(truth(), "place", ["x, " * 66_000, *["Oslo"] * 99])
    )


def lines_around() -> Iterator[Case]:
    kind = "lines before, between and after"
    title, notes = Manner(before=TITLE), Manner(after=FOOTNOTES)
    yield case("a title", kind, manner=title)
    yield case(
        "a title with commas", kind, manner=Manner(before=("Orders, south, 2023", "Printed: 3 Jan 2024", ""))
    )
    yield case(
        "a title as Excel writes it", kind, manner=Manner(before=("Orders of 2023" + "," * 6, "," * 6))
    )
    yield case(
        "the line of the header", kind, manner=Manner(before=("x,y,z", "1,2,3")), read={"header_line": 3}
    )
    comments = ("# orders, exported", "# at 2024-01-03, by hand")
    yield case("comments at the start", kind, manner=Manner(before=comments))
    yield case("comments between", kind, manner=Manner(before=comments, remarks="# checked, page 2"))
    stated = Manner(before=("% orders",), remarks="% a new page, unchecked")
    yield case("comments of the recipe", kind, manner=stated, read={"comment": "%"})
    hashes = replaced(truth(), "code", [f"#{number}" for number in range(200)])
    yield case("# begins a value", kind, hashes)
    units = ("", "", "", "EUR", "pieces", "%", "")
    yield case("units", kind, manner=Manner(units=units))
    yield case("units, stated", kind, manner=Manner(units=units), read={"units_row": True})
    yield case(
        "units in brackets", kind, manner=Manner(units=("[-]", "[-]", "[d]", "[EUR]", "[1]", "[%]", "[-]"))
    )
    yield case("a row of totals", kind, manner=Manner(total=True))
    brand = replaced(truth(), "code", ["Shell", "Total", "Eni", "Repsol", "BP"])
    yield case("Total is a value", kind, brand)
    yield case("a count of rows", kind, manner=Manner(after=("(200 rows)",)))
    yield case("a source", kind, manner=Manner(after=("Source: order desk",)))
    yield case("footnotes", kind, manner=notes)
    yield case("footnotes as Excel writes them", kind, manner=Manner(after=("Source: order desk" + "," * 6,)))
    yield case("totals and footnotes", kind, manner=replace(notes, total=True))
    yield case("blank lines", kind, manner=Manner(blank_every=20))
    yield case(
        "title, units, totals, notes", kind, manner=replace(notes, before=TITLE, units=units, total=True)
    )
    rule = Manner(delimiter="|", pad=True, units=("-----",) * 7, after=("(200 rows)",))
    yield case("psql", kind, manner=rule, suffix="txt")


def headers() -> Iterator[Case]:
    kind = "headers"
    yield case("a delimiter ends every row", kind, manner=Manner(trailing="rows"))
    yield case("a delimiter ends every line", kind, manner=Manner(trailing="all"))
    yield case("row names without a name", kind, manner=Manner(header="one less", quote_all=True))
    counted = Manner(header="one less", index="1", quote_all=True)
    yield case("row numbers without a name", kind, manner=counted)
    yield case("the index of pandas", kind, manner=Manner(index="0"))
    yield case("row numbers from 1", kind, manner=Manner(index="1"))
    yield case("the index of a part, from 100", kind, manner=Manner(index="100"))
    named = renamed(truth(), ["column_1", *NAMES[1:]])
    yield case("an unnamed first column", kind, named, Manner(names=["", *NAMES[1:]]))
    twice = renamed(truth(), ["code", "place", "day", "amount", "count", "amount_2", "paid"])
    yield case(
        "a name twice",
        kind,
        twice,
        Manner(names=["code", "place", "day", "amount", "count", "amount", "paid"]),
    )
    unnamed = renamed(truth(), ["code", "place", "column_3", "amount", "count", "share", "paid"])
    blank = Manner(names=["code", "place", "", "amount", "count", "share", "paid"])
    yield case("a column without a name", kind, unnamed, blank)
    broken = renamed(truth(), ["code", "place", "day of\nthe order", "amount", "count", "share", "paid"])
    yield case("a line break in a name", kind, broken)
    yield case("spaces around everything", kind, without(truth(), "place"), Manner(pad=True))
    yield case("no header", kind, manner=Manner(header="none"), refusal=NO_HEADER, must_refuse=True)
    numbers = without(truth(), "code", "place", "day", "paid")
    bare = case(
        "no header, numbers alone", kind, numbers, Manner(header="none"), refusal=NO_HEADER, must_refuse=True
    )
    yield replace(bare, target="share")
    yield case("no header, named by the recipe", kind, manner=Manner(header="none"), read={"columns": NAMES})
    years = renamed(without(truth(), "code", "place", "day", "paid"), ["2021", "2022", "2023"])
    yield replace(case("years as names", kind, years), target="2023")


def line_ends() -> Iterator[Case]:
    kind = "line ends"
    breaks = replaced(truth(), "place", ["Oslo", "Lima, Peru"])
    yield case("CRLF", kind, breaks, Manner(newline="\r\n"))
    yield case("CR", kind, breaks, Manner(newline="\r"))
    yield case("no line end at the end", kind, breaks, Manner(ends=False))


def families() -> Iterator[Case]:
    for each in (delimiters, quotes, lines_around, headers, line_ends):
        yield from each()
