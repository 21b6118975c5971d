from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.data.sources.column_types import (
    BOOLEAN,
    COLUMN_TYPES,
    INTEGER,
    TIMESTAMP,
    TIMESTAMP_UTC,
    ColumnKind,
    DistinctTexts,
    can_parse,
    parse_column,
)
from shoestring.data.sources.text.type_guess import ColumnReading, TypeGuess
from shoestring.data.values import DECIMAL_COMMA, NUMBER, TEXT, THOUSANDS, WrittenNumber


def reading_of(*blocks: Sequence[str | None]) -> ColumnReading:
    guess = TypeGuess()
    for block in blocks:
        guess.add(pa.array(block, pa.string()))
    assert guess.reading().kind == guess.kind()
    return guess.reading()


def kind_of(*blocks: Sequence[str | None]) -> ColumnKind:
    return reading_of(*blocks).kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", None], INTEGER),
        (["1", "2.5", "3e7"], NUMBER),
        (["99999999999999999999", "1"], NUMBER),
        (["true", "FALSE"], BOOLEAN),
        (["2013-01-01", "2013-01-02 10:00:00"], TIMESTAMP),
        (["2013-01-01T10:00:00Z"], TIMESTAMP_UTC),
        (["a", "1"], TEXT),
        (["12345", "12345-6789"], TEXT),
        ([None, None], TEXT),
        ([], TEXT),
        ([" 1", "2 "], INTEGER),
    ],
)
def test_the_type_of_a_column_fits_all_its_values(values: list[str | None], kind: pa.DataType) -> None:
    assert kind_of(values) == kind


def test_integers_become_numbers_when_a_later_block_has_fractions() -> None:
    assert kind_of(["1", "2"] * 500, ["3", "4"] * 499 + ["1.5", "2.5"]) == NUMBER


def test_a_few_words_in_a_number_column_are_mismatches_and_many_make_it_text() -> None:
    assert kind_of(["1"] * 99 + ["several"]) == INTEGER
    assert kind_of(["1"] * 90 + ["several"] * 10) == TEXT


def test_clustered_damage_does_not_change_the_type() -> None:
    assert (
        kind_of(
            *[[str(number) for number in range(1000)]] * 9,
            ["1"] * 425 + [f"x{number}" for number in range(150)] + ["1"] * 425,
        )
        == INTEGER
    )


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        ([["3,14", "2", "-0,5"]], DECIMAL_COMMA),
        ([["1", "2"] * 500, ["3", "2,5"]], DECIMAL_COMMA),
        ([["1.234,56 €", "€ 12,00"]], WrittenNumber("€", ",")),
        ([["1.234,5", "2.345,5"]], DECIMAL_COMMA),
        ([["1,234,567", "870"]], THOUSANDS),
        ([["1,234.50", "870", "12,000"]], THOUSANDS),
        ([["1.5", "2.5"], ["1,234", "2.5"]], THOUSANDS),
        ([["1 234", "12\u202f345,5"]], DECIMAL_COMMA),
        ([["1'234.50", "\u22127"]], THOUSANDS),
        ([["12 %", "7%", None, "-3.5 %"]], WrittenNumber("%", ".")),
        ([["12,5 %", "7 %"]], WrittenNumber("%", ",")),
        ([["$3.20", "-$1,000.00", "$ 7"]], WrittenNumber("$", ".")),
        ([["CHF 1'000.50", "3 CHF"]], WrittenNumber("CHF", ".")),
        # The convention that parses most of the values.
        ([["1,234"] * 99 + ["3,14"]], DECIMAL_COMMA),
        ([["1,234"] * 99, ["3,14"] * 99], DECIMAL_COMMA),
        ([["1,234"] * 98 + ["3.14", "3,14"]], THOUSANDS),
        ([["3.14"] * 99 + ["3,14"]], NUMBER),
        # One comma is a thousands comma.
        ([["1,234", "870", "12,000"]], THOUSANDS),
        ([["$1,234", "$870"]], WrittenNumber("$", ".")),
        # No convention parses enough, or they are no numbers of one unit.
        ([["3,14", "3.14"] * 50], TEXT),
        ([["$3.20", "3.20 €"]], TEXT),
        ([["12 %", "7"]], TEXT),
        ([["12,34.5", "1.5"]], TEXT),
        ([["12 %"] * 70, ["many"] * 30], TEXT),
        ([["1", "2"]], INTEGER),
        ([["1.5", "2"]], NUMBER),
        ([["1.234", "2.345"]], NUMBER),
        ([["1.234"] * 50, ["2,5"] * 50], DECIMAL_COMMA),
    ],
)
def test_a_column_has_the_convention_that_parses_most_of_its_values(
    blocks: list[list[str | None]], kind: ColumnKind
) -> None:
    assert kind_of(*blocks) == kind


@pytest.mark.parametrize(
    ("blocks", "others"),
    [
        ([["1,234", "870"]], (DECIMAL_COMMA,)),
        ([["870"], ["12,000"], ["1,234"]], (DECIMAL_COMMA,)),
        ([["1,234"] * 99 + ["3,14"]], (THOUSANDS,)),
        ([["about 1,234", *["1,234"] * 99]], (DECIMAL_COMMA,)),
        ([["$1,234", "$870"]], (WrittenNumber("$", ","),)),
        ([["1,234", "1,234.5"]], ()),
        ([["12 %", "7 %"]], ()),
        ([["1.234"]], ()),
        ([["25/12/2025"]], ()),
    ],
)
def test_another_convention_that_fits_as_well_is_named(
    blocks: list[list[str | None]], others: tuple[ColumnKind, ...]
) -> None:
    found = reading_of(*blocks)
    assert found.others == others
    assert not others or found.example in {"1,234", "12,000", "$1,234"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], INTEGER),
        (["1.5", "2"], NUMBER),
        (["3,5", "7"], DECIMAL_COMMA),
        (["12 %", "7 %"], WrittenNumber("%", ".")),
        (["2026-01-02", "2026-02-03"], TIMESTAMP),
        (["true", "false"], BOOLEAN),
        (["a", "b"], TEXT),
    ],
)
@pytest.mark.parametrize("spelling", ["?", "-", ".", "NA", "None", "n/a", " null", "nan", "unknown"])
def test_a_missing_value_is_one_only_where_the_rest_is_no_text(
    values: list[str], kind: ColumnKind, spelling: str
) -> None:
    texts: list[str | None] = [spelling, *values * 5, spelling, *values * 5, None]
    for blocks in ([texts], [texts[:1], texts[1:]], [texts[:5], texts[5:]]):
        found = reading_of(*blocks)
        assert found.kind == kind
        assert found.missing == ({} if kind == TEXT else {spelling.strip(): 2})
        assert kind == TEXT or found.values == 20
    parsed, bad = parse_column(pa.array(texts), kind)
    assert not bad.any()
    assert parsed.null_count == (1 if kind == TEXT else 3)


def test_a_column_of_nothing_but_missing_values_is_text() -> None:
    assert kind_of(["-"] * 9) == TEXT
    assert kind_of(["-"] * 9, ["1"]) == INTEGER


def test_text_that_is_nearly_numbers_names_the_first_value_that_is_not() -> None:
    found = reading_of(["1.5"] * 95 + ["many", "1.5", "few", "few", "few", "few"])
    assert (found.kind, found.nearest, found.misfits, found.values) == (TEXT, NUMBER, 5, 101)
    assert found.example == "many"


def test_written_numbers_are_parsed_and_others_are_misfits() -> None:
    texts = ["1,234.50", " -12,000 ", "7", None, "12,34", "1.5", "1e3", "$3"]
    values, bad = parse_column(pa.array(texts), THOUSANDS)
    assert values.to_pylist() == [1234.5, -12000, 7, None, None, 1.5, 1000, None]
    assert bad.tolist() == [False] * 4 + [True, False, False, True]
    values, bad = parse_column(
        pa.array(["$3.20", "-$1,000.5", "$-2", "$ 7", "3", "€3"]), WrittenNumber("$", ".")
    )
    assert values.to_pylist() == [3.2, -1000.5, -2, 7, None, None]


def test_decimal_commas_are_parsed() -> None:
    values, bad = parse_column(
        pa.array(["3,14", " -2,5 ", "7", None, "1,2,3", "1.5", "1.500"]), DECIMAL_COMMA
    )
    assert values.to_pylist() == [3.14, -2.5, 7.0, None, None, None, 1500]
    assert bad.tolist() == [False, False, False, False, True, True, False]


@given(
    values=st.lists(
        st.sampled_from(["1", "2", " 3", "4.5", "x", "é", None, "true", "2013-01-01"]), max_size=60
    ),
    kind=st.sampled_from(COLUMN_TYPES),
)
def test_mismatches_are_exactly_the_values_that_do_not_parse(
    values: list[str | None], kind: pa.DataType
) -> None:
    column = pa.array(values, pa.string())
    bad = DistinctTexts(column).mismatches(kind, len(values))
    alone = [value is not None and not can_parse(pa.array([value.strip()]), kind) for value in values]
    assert bad is not None
    assert bad.tolist() == alone
    if sum(alone):
        assert DistinctTexts(column).mismatches(kind, sum(alone) - 1) is None
    parsed, marked = parse_column(column, kind)
    assert parsed.type == kind
    assert marked.tolist() == alone
    assert [value is None for value in parsed.to_pylist()] == [
        value is None or gone for value, gone in zip(values, alone, strict=True)
    ]


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1), seed=st.integers(0, 99))
def test_integers_survive_a_round_trip_through_text_in_any_blocks(values: list[Any], seed: int) -> None:
    texts = [None if value is None else str(value) for value in values]
    cut = int(np.random.default_rng(seed).integers(0, len(texts) + 1))
    expected = INTEGER if any(value is not None for value in values) else TEXT
    assert kind_of(texts[:cut], texts[cut:]) == expected
    assert parse_column(pa.array(texts, pa.string()), INTEGER)[0].to_pylist() == values
