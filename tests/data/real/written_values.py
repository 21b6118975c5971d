"""Messy tables whose text, numbers, dates and missing values are written in many ways."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import replace

from generated_tables import case
from messy_cases import Case
from table_truths import replaced, truth
from table_writer import Manner, write

GERMAN = ("Köln, Süd", "Zürich", "Düsseldorf", "Gießen", "Nürnberg", "Münster „Mitte“", "Lübeck – Hafen")
POLISH = ("Łódź, Śródmieście", "Gdańsk", "Białystok", "Wałbrzych", "Częstochowa", "Żywiec")
RUSSIAN = ("Москва, центр", "Санкт-Петербург", "Нижний Новгород", "Екатеринбург", "Владивосток")
JAPANESE = ("東京都, 千代田区", "大阪府大阪市", "北海道札幌市", "京都府ソース市", "福岡県表示町")
CHINESE = ("北京市, 朝阳区", "上海市浦东新区", "广州市天河区", "深圳市南山区", "成都市武侯区")
ENCODING = (r"encoding",)


def encodings() -> Iterator[Case]:
    """Yield tables in encodings: those that a file states must be read, others read or refused with the
    key, and read with the key."""
    kind = "encodings"
    yield case("UTF-8", kind, truth(places=GERMAN))
    yield case("UTF-8 with a mark", kind, truth(places=GERMAN), Manner(mark=codecs.BOM_UTF8))
    for order, mark in {"le": codecs.BOM_UTF16_LE, "be": codecs.BOM_UTF16_BE}.items():
        for known in (mark, b""):
            manner = Manner(encoding=f"utf-16-{order}", mark=known)
            name = f"UTF-16 {order} {'with' if known else 'without'} a mark"
            yield case(name, kind, truth(places=GERMAN), manner, refusal=() if known else ENCODING)
    manner = Manner(encoding="utf-16-le", mark=codecs.BOM_UTF16_LE, delimiter="\t", newline="\r\n")
    yield case("Excel's Unicode text", kind, truth(places=GERMAN), manner, suffix="txt")
    for encoding, places in {
        "latin-1": tuple(place.translate({0x201E: '"', 0x201C: '"', 0x2013: "-"}) for place in GERMAN),
        "cp1252": GERMAN,
        "cp1250": POLISH,
        "cp1251": RUSSIAN,
        "shift_jis": JAPANESE,
        "gb18030": CHINESE,
    }.items():
        table, manner = truth(places=places), Manner(encoding=encoding)
        yield case(encoding, kind, table, manner, refusal=ENCODING)
        yield case(f"{encoding}, stated", kind, table, manner, read={"encoding": encoding})
    yield bad_byte()


def bad_byte() -> Case:
    """Return a UTF-8 file with one byte that is none, in a cell of row 150."""
    table = replaced(truth(places=GERMAN), "place", [*GERMAN])
    good = case("one bad byte", "encodings", table)
    code, place = str(table.rows[150][0]), str(table.rows[150][1])
    before, after = good.data.split(code.encode(), 1)
    broken = before + code.encode() + after.replace(place.encode()[:2], b"Q\xff", 1)
    assert good.reading is not None
    known = {
        row: (*each[:1], None, *each[2:]) if row == 150 else each for row, each in good.reading.known.items()
    }
    return replace(
        good, data=broken, reading=replace(good.reading, known=known, unread=frozenset([(152, "place")]))
    )


def missing_values() -> Iterator[Case]:
    kind = "missing values"
    for spelling in ("?", "NA", "-", "n/a", "NULL", "#N/A", "."):
        yield case(f"{spelling} in numbers", kind, manner=Manner(missing={"count": spelling}))
    coded = Manner(missing={"count": "-999"})
    yield case("-999, stated", kind, manner=coded, read={"missing": ["-999"]})
    places = replaced(truth(), "place", ["Oslo", None, "Lima", None, "Leeds"])
    stated = Manner(missing={"place": "NA", "count": "NA"})
    yield case("NA in texts, stated", kind, places, stated, read={"missing": ["NA"]})
    namibia = replaced(truth(), "place", ["NA", "DE", "NO", "PE"])
    yield case("NA is Namibia", kind, namibia)
    none = replaced(truth(), "place", ["None", "Slate", "Metal"])
    yield case("None is a roof", kind, none)


def numbers() -> Iterator[Case]:
    kind = "written numbers"
    yield case("thousands commas", kind, manner=Manner(group=","))
    yield case("decimal comma", kind, manner=Manner(delimiter=";", decimal=","))
    yield case("decimal comma in quotes", kind, manner=Manner(decimal=","))
    german = Manner(delimiter=";", decimal=",", group=".")
    yield case("decimal comma, thousands points", kind, manner=german)
    yield case("thousands spaces", kind, manner=Manner(delimiter=";", decimal=",", group="\u202f"))
    yield case("thousands apostrophes", kind, manner=Manner(group="'"))
    yield case("dollars", kind, manner=Manner(group=",", signs={"amount": ("$", "")}))
    yield case("euros", kind, manner=replace(german, signs={"amount": ("", " €")}))
    yield case("percent", kind, manner=Manner(signs={"share": ("", "%")}))
    three = replaced(truth(), "amount", [1.234, 20.125, 3.75, 812.5, 44.201])
    stated = Manner(delimiter=";", decimal=",")
    yield case("three decimals after a comma", kind, three, stated)
    only = replaced(truth(), "amount", [1.234, 20.125, 3.751, 812.516, 44.201])
    yield case("three decimals alone, stated", kind, only, stated, read={"decimal": ","})
    yield case("a stray text in 1%", kind, manner=Manner(strays=(57, 141)))
    late = truth(rows=2000)
    yield case("stray texts in 1%, late", kind, late, Manner(strays=(*range(1900, 1918, 2), 33)))
    yield case(
        "codes with zeros, stated",
        kind,
        replaced(truth(), "code", ["007", "042", "118"]),
        kinds={"code": "text"},
    )
    long = replaced(truth(), "count", [9007199254740993, 9007199254740995, 12])
    yield case("whole numbers above 2^53", kind, long)


def dates() -> Iterator[Case]:
    kind = "dates"
    for name, form in {
        "day first": "%d.%m.%Y",
        "day first, slashes": "%d/%m/%Y",
        "month first": "%m/%d/%Y",
        "year first, slashes": "%Y/%m/%d",
        "ISO without dashes in times": "%Y-%m-%dT%H:%M:%S",
        "the month as a word": "%d %b %Y",
    }.items():
        yield case(name, kind, truth(hours="T" in form), Manner(date=form))
    early = truth(days=12)
    yield case("day first, stated", kind, early, Manner(date="%d/%m/%Y"), read={"dates": "day first"})
    yield case("month first, stated", kind, early, Manner(date="%m/%d/%Y"), read={"dates": "month first"})
    open_ = case("day or month first", kind, early, Manner(date="%d/%m/%Y"))
    texts = [row[2].strftime("%d/%m/%Y") for row in early.rows]  # type: ignore[union-attr]
    yield replace(open_, reading=write(replaced(early, "day", texts, "text"), Manner())[1])
    zoned = truth(hours=True, zone=True)
    yield case("dates with Z", kind, zoned, Manner(date="%Y-%m-%dT%H:%M:%SZ"))
    yield case("dates with +00:00", kind, zoned, Manner(date="%Y-%m-%d %H:%M:%S+00:00"))
    yield case("dates with UTC", kind, zoned, Manner(date="%Y-%m-%d %H:%M:%S UTC"))


def bad_rows() -> Iterator[Case]:
    kind = "bad rows"
    yield case("2% are ragged", kind, manner=Manner(ragged=(20, 81, 120, 171)))
    yield case(
        "ragged rows in a file with a title",
        kind,
        manner=Manner(ragged=(20, 81, 120, 171), before=("Orders of 2023", ""), blank_every=20),
    )
    quoted = replaced(truth(), "place", ["Oslo\nNorway", "Lima, Peru", "Leeds", "Springfield, IL"])
    yield case("ragged after quoted line breaks", kind, quoted, Manner(ragged=(81, 120)))
    yield case("cut in a quoted text", kind, manner=Manner(cut=True))
    yield case("packed as gz", kind, manner=Manner(pack="gz", ragged=(81,)))
    yield case("packed as zip", kind, manner=Manner(pack="zip", delimiter=";"))


def families() -> Iterator[Case]:
    for each in (encodings, missing_values, numbers, dates, bad_rows):
        yield from each()
