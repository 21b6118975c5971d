"""Tables that only look messy, and manners that are seen less often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from generated_tables import NAMES, case
from messy_cases import Case, Value
from table_truths import renamed, replaced, truth, without
from table_writer import Manner, Truth, write
from written_values import ENCODING

TITLES = {
    "names and values": ("Region: South", "Printed by: K. Olsen", "Pages: 3", ""),
    "pairs": ("Region,South", "Year,2023", "Printed,2024-01-03", "Rows,200", ""),
    "thirty lines": (*(f"{number}. All amounts include tax" for number in range(30)), ""),
    "a rule": ("ORDERS 2023", "===========", ""),
}
FOOTERS = {
    "Summe": ("Summe,,,1234567.5,,,",),
    "TOTAL:": ("TOTAL:,,,1234567.5,8080,,",),
    "Average": ("Average,,,1234.5,40,51.2,",),
    "a rule and totals": ("-----,-----,-----,-----,-----,-----,-----", "Total,,,1234567.5,8080,,"),
    "End of report": ("", "End of report"),
    "200 records": ("200 records",),
    "asterisks": ("", "* preliminary", "** estimated"),
    "Stand:": ("Stand: 03.01.2024",),
}
TOWNS = {
    "cp1250": ("Kraków, Dębniki", "Poznań", "Toruń", "Rzeszów", "Zielona Góra"),
    "cp1252": ("São Paulo, centro", "Málaga", "Besançon", "Tromsø", "Århus"),
    "cp1251": ("Київ, центр", "Львів", "Харків", "Одеса"),
    "cp1253": ("Αθήνα, κέντρο", "Θεσσαλονίκη", "Πάτρα"),
    "cp1254": ("İstanbul, Şişli", "Çankırı", "Muğla", "Iğdır"),
    "cp1256": ("القاهرة, مركز", "الرياض"),
    "iso8859_2": ("Łódź, Śródmieście", "Gdańsk", "Žilina"),
    "cp850": ("Köln, Süd", "Zürich"),
    "koi8_r": ("Москва, центр", "Казань"),
    "euc_kr": ("서울, 중구", "부산", "대구"),
    "big5": ("臺北, 中正", "高雄", "臺中"),
}
UNITS = {
    "EUR, pcs": ("", "", "", "EUR", "pcs", "%", ""),
    "forms of dates": ("", "", "yyyy-mm-dd", "EUR", "pieces", "percent", "true/false"),
    "round brackets": ("(-)", "(-)", "(date)", "(EUR)", "(1)", "(%)", "(-)"),
    "in words": ("order", "town", "date", "in euros", "number", "in percent", "yes or no"),
}


def last_row(table: Truth, values: tuple[Value, ...]) -> Truth:
    return Truth(table.columns, (*table.rows[:-1], values))


def decoys() -> Iterator[Case]:
    """Yield tables in which nothing is left out."""
    kind = "decoys"
    yield case("a last row that lacks all but its code", kind, last_row(truth(), ("K-199", *[None] * 6)))
    brand = replaced(truth(), "code", ["Shell", "Eni", "BP", "Total"])
    yield case("Total is the last value, and others", kind, brand)
    yield case(
        "codes begin with Sum", kind, replaced(truth(), "code", [f"Sum {each}" for each in range(200)])
    )
    yield case(
        "codes begin with Note", kind, replaced(truth(), "code", [f"Note: {each}" for each in range(200)])
    )
    yield case("an id that counts from 0", kind, replaced(truth(), "code", [*range(200)], "number"))
    shuffled = [int(each) for each in np.random.default_rng(5).permutation(200)]
    shuffled_table = renamed(replaced(truth(), "code", shuffled, "number"), ["column_1", *NAMES[1:]])
    yield case("numbers without a name", kind, shuffled_table, Manner(names=["", *NAMES[1:]]))
    paths = replaced(truth(), "place", ["C:\\temp\\", 'the "old" mill, north', "D:\\x, y\\", "Oslo"])
    yield case("paths that end in a backslash", kind, paths, Manner(quote_all=True))
    single = replaced(truth(), "place", ["'Oslo'", "Lima, Peru", "'Turin'", "Quito"])
    yield case("single quotes in double quotes", kind, single, Manner(quote_all=True))
    yield case(
        "an early text as long as a title", kind, replaced(truth(), "code", ["A long title, and more", "B"])
    )
    yield case(
        "a damaged text as it is", kind, replaced(truth(), "place", ["M\ufffdnster", "K\ufffdln", "Oslo"])
    )
    names = replaced(truth(), "place", ["m", "kg", "s", "EUR"])
    yield case("units are the values", kind, names)
    quoted = without(replaced(truth(), "place", ["Oslo, No", "Lima", "Turin; It", "a|b"]), *NAMES[2:], "code")
    yield replace(case("one column", kind, quoted), target="place")
    two = without(truth(), *NAMES[1:5], "paid")
    yield replace(case("two columns", kind, two), target="share")
    years = replaced(truth(), "count", [2019, 2020, 2021])
    yield case("years are numbers", kind, years)
    few = truth(rows=4)
    yield case("four rows", kind, few)
    yield case("four rows, semicolons, decimal commas", kind, few, Manner(delimiter=";", decimal=","))


def around() -> Iterator[Case]:
    kind = "lines around, in other words"
    for name, before in TITLES.items():
        yield case(f"a title: {name}", kind, manner=Manner(before=before))
    for name, after in FOOTERS.items():
        yield case(f"a footer: {name}", kind, manner=Manner(after=after))
    for name, units in UNITS.items():
        yield case(f"units: {name}", kind, manner=Manner(units=units))
    commented = Manner(before=("# exported", "#" + ",".join(NAMES)), header="none")
    named = case("the header is a comment", kind, manner=commented)
    yield replace(named, reading=write(truth(), Manner())[1])
    slashes = Manner(before=("// exported", "// by hand"))
    yield case("comments with //", kind, manner=slashes)
    yield case("comments with %", kind, manner=Manner(before=("% exported", "% by hand")))
    semicolons = Manner(before=("Orders, south, 2023", ""), delimiter=";", decimal=",", total=True)
    yield case("a title with commas, semicolons below", kind, manner=semicolons)


def values() -> Iterator[Case]:
    kind = "values, in other words"
    some = truth()
    for form in ("%m/%d/%Y %I:%M %p", "%d.%m.%Y %H:%M", "%m/%d/%y", "%d-%b-%y", "%d-%b-%Y", "%B %d, %Y"):
        yield case(f"dates as {form}", kind, truth(hours="%M" in form), Manner(date=form))
    yield signed("negative numbers", kind, "-{:,}", "{:,}")
    yield signed("minus signs of typesetters", kind, "\u2212{}")
    yield signed("brackets for negative numbers", kind, "({})")
    yield signed("minus signs at the end", kind, "{}-")
    yield signed("plus signs", kind, "-{}", "+{}")
    yield signed("powers of ten", kind, "-{}E+00", "{}e0")
    yield case(
        "percent with a space", kind, manner=Manner(delimiter=";", decimal=",", signs={"share": ("", " %")})
    )
    yield case("thousands spaces without a fraction", kind, truth(decimals=0), Manner(group=" "))
    for spelling in ("#DIV/0!", "n.a.", "NaN", "missing", "\u2014"):
        yield case(f"{spelling} for a missing number", kind, manner=Manner(missing={"count": spelling}))
    gone = replaced(some, "day", [row[2] if number % 9 else None for number, row in enumerate(some.rows)])
    for spelling in ("0000-00-00", "NULL", "-"):
        yield case(f"{spelling} for a missing date", kind, gone, Manner(missing={"day": spelling}))
    for encoding, towns in TOWNS.items():
        table, manner = truth(7, places=towns), Manner(encoding=encoding)
        yield case(f"{encoding}, other towns", kind, table, manner, refusal=ENCODING)
    few = replaced(some, "place", ["Oslo", *["Lima"] * 60, "Café des Amis – 5 €"])
    yield case("cp1252 in three rows", kind, few, Manner(encoding="cp1252"), refusal=ENCODING)
    roman = Manner(encoding="mac_roman")
    yield case("mac_roman, stated", kind, few, roman, read={"encoding": "mac_roman"})


def signed(name: str, kind: str, negative: str, positive: str = "{}") -> Case:
    """Return a table whose amounts are written with other signs."""
    amounts = [-1234.5, 20.25, -7.75, 81234.125, -0.5]
    texts = [(negative if each < 0 else positive).format(abs(each)) for each in amounts]
    written = case(name, kind, replaced(truth(), "amount", texts, "text"))
    return replace(written, reading=write(replaced(truth(), "amount", amounts), Manner())[1])


def families() -> Iterator[Case]:
    for each in (decoys, around, values):
        yield from each()
