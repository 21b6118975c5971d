"""Messy tables with several manners at once, which a seed chooses; and files that are no table of text."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import decoys
import generated_tables
import late_tables
import numpy as np
import written_values
from generated_tables import NAMES, TITLE, case
from messy_cases import Case, Reading
from table_truths import COLUMNS, replaced, truth
from table_writer import Manner, Truth
from written_values import GERMAN

COMBINED = 24
ADVICE = r"CSV|Parquet"
CHOICES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "delimiter": tuple({"delimiter": each} for each in ",;\t|"),
    "numbers": ({}, {"group": ","}, {"decimal": ","}, {"decimal": ",", "group": "."}, {"group": " "}),
    "quotes": (
        {},
        {"quote_all": True},
        {"quote_all": True, "escape": "\\"},
        {"quote_all": True, "quote": "'"},
    ),
    "before": ({}, {}, {"before": TITLE}, {"before": ("# exported", "# by hand")}),
    "units": ({}, {}, {"units": ("", "", "", "EUR", "pieces", "%", "")}),
    "after": ({}, {}, {"after": ("(200 rows)",)}, {"after": ("", "Source: order desk")}, {"total": True}),
    "ends": ({}, {"newline": "\r\n"}, {"newline": "\r\n", "ends": False}, {"blank_every": 40}),
    "encoding": (
        {},
        {"mark": codecs.BOM_UTF8},
        {"encoding": "utf-16-le", "mark": codecs.BOM_UTF16_LE},
    ),
    "missing": ({}, {"missing": {"count": "NA"}}, {"missing": {"count": "?"}}),
    "dates": ({}, {"date": "%d.%m.%Y"}, {"date": "%m/%d/%Y"}),
    "trailing": ({}, {}, {"trailing": "rows"}, {"trailing": "all"}, {"index": "0"}),
    "bad": ({}, {"ragged": (20, 81)}, {"strays": (57, 141)}),
    "pack": ({}, {}, {"pack": "gz"}, {"pack": "zip"}),
}


def combined() -> Iterator[Case]:
    for seed in range(COMBINED):
        random = np.random.default_rng(seed)
        chosen: dict[str, Any] = {}
        for each in CHOICES.values():
            chosen |= each[int(random.integers(len(each)))]
        if chosen.get("index"):
            # A title or a unit that leaves the index out is another manner.
            chosen.pop("units", None)
            chosen.pop("total", None)
        yield case(f"combined {seed}", "several at once", truth(seed, places=GERMAN), Manner(**chosen))


def json_rows(table: Truth) -> list[dict[str, Any]]:
    return [
        {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in zip(NAMES, row, strict=True)
        }
        for row in table.rows
    ]


def json_lines() -> Iterator[Case]:
    kind = "JSON lines"
    table = replaced(truth(), "place", ['the "old" mill', "Oslo\nNorway", "Köln"])
    lines = [json.dumps(row) for row in json_rows(table)]
    yield json_case("JSON lines", kind, lines, table)
    yield json_case("packed JSON lines", kind, lines, table, pack=True)
    gone = [
        json.dumps({key: value for key, value in row.items() if value is not None})
        for row in json_rows(table)
    ]
    yield json_case("keys left out", kind, gone, table)
    twice = [*lines]
    twice[80] = twice[80].replace("{", '{"amount": 1.5, ', 1)
    yield json_case("a key twice", kind, twice, table, bad=80)
    cut = [*lines]
    cut[199] = cut[199][:60]
    yield json_case("the last line is cut", kind, cut, table, bad=199)


def json_case(
    name: str, kind: str, lines: list[str], table: Truth, *, bad: int | None = None, pack: bool = False
) -> Case:
    data = ("\n".join(lines) + "\n").encode()
    rows = [row for number, row in enumerate(table.rows) if number != bad]
    numbers = frozenset[int]() if bad is None else frozenset([bad + 1])
    reading = Reading(COLUMNS, len(rows), dict(enumerate(rows)), quarantined=numbers)
    file = "table.jsonl.gz" if pack else "table.jsonl"
    return Case(name, kind, file, gzip.compress(data, mtime=0) if pack else data, reading, target="paid")


def no_tables() -> Iterator[Case]:
    kind = "no table"
    head = (",".join(NAMES) + "\n").encode()

    def refused(name: str, file: str, data: bytes, *refusal: str) -> Case:
        return Case(name, kind, file, data, None, refusal, target="paid")

    yield refused("an empty file", "table.csv", b"", r"table\.csv", r"empty")
    yield refused("blank lines alone", "table.csv", b"\n\n\n", r"table\.csv", r"empty|no rows")
    yield refused("a header alone", "table.csv", head, r"no rows")
    yield refused("a header and comments", "table.csv", b"# none\n" + head + b"# end\n", r"no rows")
    yield refused("a workbook", "table.xlsx", workbook(), ADVICE)
    yield refused("a workbook named .csv", "table.csv", workbook(), r"table\.csv", ADVICE)
    page = (
        b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n<body>\n"
        + b"<p>Sign in, please</p>\n" * 9
    )
    yield refused("a page named .csv", "table.csv", page, r"table\.csv")
    half = gzip.compress(head + b"K-1,Oslo,2023-01-01,1,2,3,true\n" * 4000, mtime=0)[:-40]
    yield refused("half of a gz file", "table.csv.gz", half, r"table\.csv\.gz", r"truncated|damaged")
    ragged = Manner(ragged=tuple(range(1, 200, 4)))
    yield case("25% are ragged", kind, manner=ragged, refusal=(r"row \d+", r"values"), must_refuse=True)


def workbook() -> bytes:
    """Return the least that is a workbook of Excel."""
    with zipfile.ZipFile(found := io.BytesIO(), "w") as archive:
        for name in ("[Content_Types].xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml"):
            archive.writestr(zipfile.ZipInfo(name), f'<?xml version="1.0"?><part name="{name}"/>')
    return found.getvalue()


def generated_cases() -> list[Case]:
    """Return all cases that are generated, which differ in their names."""
    cases = [
        *generated_tables.families(),
        *written_values.families(),
        *late_tables.families(),
        *decoys.families(),
        *json_lines(),
        *no_tables(),
        *combined(),
    ]
    assert len({each.name for each in cases}) == len(cases)
    return cases
