"""What is written in a convention is read as the number that was written."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shoestring.data.sources.column_types import parse_column
from shoestring.data.sources.text.type_guess import TypeGuess
from shoestring.data.values import MISSING, NUMBER, SIGNS, TEXT, WrittenNumber, known_texts, written_numbers

CONVENTIONS = st.builds(WrittenNumber, st.sampled_from(["", *SIGNS]), st.sampled_from([".", ","]))
NUMBERS = st.decimals(-(10**9), 10**9, places=2)


class Style(NamedTuple):
    """How someone writes the numbers of a column."""

    groups: int
    places: int
    minus: str
    space: str
    form: int

    def write(self, number: Decimal, kind: WrittenNumber) -> str:
        group = ("", "," if kind.decimal == "." else ".", " ", "\u00a0", "\u202f", "'")[self.groups]
        digits = f"{abs(number):,.{self.places}f}".replace(",", "_").replace(".", kind.decimal)
        digits, minus = digits.replace("_", group), self.minus if number < 0 else ""
        return (
            f"{minus}{digits}{self.space if kind.sign else ''}{kind.sign}",
            f"{minus}{kind.sign}{self.space if kind.sign else ''}{digits}",
            f" {kind.sign}{self.space if kind.sign else ''}{minus}{digits} ",
        )[self.form]


STYLES = st.builds(
    Style,
    groups=st.integers(0, 5),
    places=st.sampled_from([2, 5]),
    minus=st.sampled_from(["-", "\u2212"]),
    space=st.sampled_from(["", " ", "\u00a0"]),
    form=st.integers(0, 2),
)


@given(kind=CONVENTIONS, style=STYLES, numbers=st.lists(NUMBERS, min_size=1, max_size=20))
def test_a_number_that_is_written_in_a_convention_is_read_as_it(
    kind: WrittenNumber, style: Style, numbers: list[Decimal]
) -> None:
    texts = pa.array([style.write(each, kind) for each in numbers])
    assert written_numbers(texts, kind).to_pylist() == [float(each) for each in numbers]


@given(
    kind=CONVENTIONS,
    styles=st.tuples(STYLES, STYLES, STYLES),
    numbers=st.lists(NUMBERS, min_size=3, max_size=12),
    spelling=st.sampled_from([each for each in MISSING if each]),
    cut=st.integers(0, 62),
)
def test_a_column_is_read_by_the_convention_of_most_of_its_values_in_any_blocks(
    kind: WrittenNumber, styles: tuple[Style, ...], numbers: list[Decimal], spelling: str, cut: int
) -> None:
    # 1234567.89 shows its decimal sign.
    column = [*(numbers * 20)[:58], Decimal("1234567.89")]
    texts = [styles[index % 3].write(each, kind) for index, each in enumerate(column)]
    texts += [spelling.upper(), styles[0].write(Decimal("7654321.98"), kind.other)]
    guess = TypeGuess()
    for block in (texts[:cut], texts[cut:]):
        guess.add(pa.array(block, TEXT))
    read = guess.kind()
    # A few values at the end are a block that is damaged more than a block may be.
    assert cut > 50 or read in ((kind, NUMBER) if kind == WrittenNumber("", ".") else (kind,))
    if read == kind:
        values, bad = parse_column(pa.array(texts, TEXT), read)
        assert values.to_pylist()[: len(column)] == [float(each) for each in column]
        assert bad.tolist() == [False] * (len(texts) - 1) + [True]


@given(texts=st.lists(st.sampled_from([*MISSING, " NA ", "0", "x", "-1", "n", "nano"]) | st.none()))
def test_only_spellings_of_a_missing_value_are_missing(texts: list[str | None]) -> None:
    kept = known_texts(pa.array(texts, TEXT)).to_pylist()
    assert kept == [None if each is None or each.strip() in {*MISSING, "NA"} else each for each in texts]
