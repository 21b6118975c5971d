"""Write a table of typed rows as a file in some manner, and return with it what the file means."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from messy_cases import Kind, Reading, Value


@dataclass(frozen=True, slots=True)
class Truth:
    """Typed rows of named columns."""

    columns: tuple[tuple[str, Kind], ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a table is written. `signs`: column -> what is written before and after each of its numbers.

    `names`: the names in the header, where they are not those of the reading. `index`: a first column that
    counts the rows from 0 or 1, without a name. `missing`: column -> the spelling of its missing values.
    `strays`: the rows in which the column `amount` holds a remark. `ragged`: those with a value too many or
    too few. `cut`: the file ends inside the last row, which begins with a quoted text.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    quote_all: bool = False
    pad: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    newline: str = "\n"
    encoding: str = "utf-8"
    mark: bytes = b""
    before: Sequence[str] = ()
    header: Literal["names", "one less", "none"] = "names"
    names: Sequence[str] = ()
    units: Sequence[str] = ()
    index: Literal["", "0", "1", "100"] = ""
    remarks: str = ""
    blank_every: int = 0
    trailing: Literal["", "rows", "all"] = ""
    total: bool = False
    after: Sequence[str] = ()
    decimal: str = "."
    group: str = ""
    signs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    date: str = "%Y-%m-%d"
    strays: tuple[int, ...] = ()
    ragged: tuple[int, ...] = ()
    cut: bool = False
    ends: bool = True
    pack: Literal["", "gz", "zip"] = ""


def text_of(value: Value, name: str, manner: Manner) -> str:
    """Return a value as it is written, without quotes."""
    if value is None:
        return manner.missing.get(name, "")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime(manner.date)
    if isinstance(value, str):
        return value
    before, after = manner.signs.get(name, ("", ""))
    whole, _, fraction = f"{value:,}".partition(".")
    number = whole.replace(",", manner.group) + (manner.decimal + fraction if fraction else "")
    return before + number + after


def cell(text: str, manner: Manner, *, is_text: bool) -> str:
    """Return a text with the quotes and escapes that it needs."""
    escape, quote = manner.escape, manner.quote
    special = {manner.delimiter, "\n", "\r", quote} & set(text)
    if not quote or not (special or (manner.quote_all and is_text)):
        plain = text.replace("\\", "\\\\") if escape and text != "\\N" else text
        return f" {plain} " if manner.pad else plain
    inner = text.replace("\\", "\\\\") if escape else text
    return quote + inner.replace(quote, (escape or quote) + quote) + quote


def record(texts: Sequence[str], manner: Manner, kinds: Sequence[Kind | None], *, ends: bool) -> str:
    cells = [
        cell(text, manner, is_text=kind != "number" and text != "\\N")
        for text, kind in zip(texts, kinds, strict=True)
    ]
    return manner.delimiter.join(cells) + (manner.delimiter if ends else "")


def records(truth: Truth, manner: Manner) -> Iterator[tuple[str, bool]]:
    """Yield the lines below the header, and whether each is a row of the table."""
    kinds = [kind for _, kind in truth.columns]
    for number, values in enumerate(truth.rows):
        texts = [text_of(value, name, manner) for value, name in zip(values, truth.names, strict=True)]
        if number in manner.strays:
            texts[truth.names.index("amount")] = "see note"
        index = [str(number + int(manner.index))] if manner.index else []
        all_texts, all_kinds = [*index, *texts], [*([None] if index else []), *kinds]
        if number in manner.ragged:
            extra = number % 2 == 0
            all_texts = [*all_texts, "more"] if extra else all_texts[:-2]
            all_kinds = [*all_kinds, None] if extra else all_kinds[:-2]
        line = record(all_texts, manner, all_kinds, ends=bool(manner.trailing))
        if manner.cut and number == len(truth.rows) - 1:
            quoted = next(kind for kind, text in zip(kinds, texts, strict=True) if manner.delimiter in text)
            assert quoted == "text", "the last row needs a quoted text to be cut in"
            line = line[: line.index(manner.quote) + 4]
        yield line, True
        if manner.remarks and number % 50 == 17:
            yield manner.remarks, False
        if manner.blank_every and number % manner.blank_every == 3:
            yield "", False


def header(truth: Truth, manner: Manner) -> list[str]:
    if manner.header == "none":
        return []
    names = [*(manner.names or truth.names)]
    if manner.header == "one less" and not manner.index:
        names = names[1:]
    if manner.index and manner.header == "names":
        names = ["", *names]
    lines = [record(names, manner, ["text"] * len(names), ends=manner.trailing == "all")]
    if manner.units:
        lines.append(record(manner.units, manner, [None] * len(manner.units), ends=bool(manner.trailing)))
    return lines


def totals(truth: Truth, manner: Manner) -> list[str]:
    """Return the row of totals, which begins with "Total"."""
    if not manner.total:
        return []
    sums: list[Value] = [
        round(sum(row[index] for row in truth.rows if row[index] is not None), 2)  # type: ignore[misc]
        if kind == "number"
        else None
        for index, (_, kind) in enumerate(truth.columns)
    ]
    named = zip(sums, truth.names, strict=True)
    texts = ["" if each is None else text_of(each, name, manner) for each, name in named]
    kinds = [kind for _, kind in truth.columns]
    return [record(["Total", *texts[1:]], manner, kinds, ends=bool(manner.trailing))]


def write(truth: Truth, manner: Manner) -> tuple[bytes, Reading]:
    """Return the file, and what it means."""
    lines = [*manner.before, *header(truth, manner)]
    first = len(header(truth, manner))
    rows = [*records(truth, manner)]
    footers = [*totals(truth, manner), *manner.after]
    text = "\n".join([*lines, *(text for text, _ in rows), *footers])
    text += "\n" if manner.ends and not manner.cut else ""
    data = manner.mark + text.replace("\n", manner.newline).encode(manner.encoding)
    below = first + len(truth.rows) + 1
    left_out = {*range(below, below + len(footers)), *([first] if manner.units else [])}
    return packed(data, manner.pack), reading_of(truth, manner, first + 1, frozenset(left_out))


def reading_of(truth: Truth, manner: Manner, first: int, left_out: frozenset[int]) -> Reading:
    """Return what the file means. `first`: the number of the first row below the header."""
    bad = {*manner.ragged, *([len(truth.rows) - 1] if manner.cut else [])}
    good = []
    for number, values in enumerate(truth.rows):
        row = list(values)
        if number in manner.strays:
            row[truth.names.index("amount")] = None
        if number not in bad:
            good.append(row)
    columns = truth.columns
    if manner.header == "one less" and not manner.index:
        columns = (("column_1", columns[0][1]), *columns[1:])
    return Reading(
        columns=columns,
        rows=len(good),
        known=dict(enumerate(good)),
        quarantined=frozenset(first + number for number in bad),
        left_out=left_out,
        unread=frozenset((first + number, "amount") for number in manner.strays),
    )


def packed(data: bytes, pack: str) -> bytes:
    if pack == "gz":
        return gzip.compress(data, mtime=0)
    if pack == "zip":
        with zipfile.ZipFile(found := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("table.csv"), data)
        return found.getvalue()
    return data
