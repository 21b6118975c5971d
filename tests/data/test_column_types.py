from __future__ import annotations

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
    NUMBER,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_UTC,
    TypeGuess,
    can_parse,
    mismatches,
    parse_column,
)
from shoestring.data.sources.text.written_numbers import DecimalSign, WrittenNumber, written_kinds

DECIMAL_COMMA, THOUSANDS = WrittenNumber("", ","), WrittenNumber("", ".")


def kind_of(*blocks: list[str | None]) -> pa.DataType:
    guess = TypeGuess()
    for block in blocks:
        guess.add(pa.array(block, pa.string()))
    return guess.kind()


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
    assert kind_of(["1"] * 99 + ["unknown"]) == INTEGER
    assert kind_of(["1"] * 90 + ["unknown"] * 10) == TEXT


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
        ([["1", "2"] * 500, ["3,1"] * 5, ["7"] * 500], DECIMAL_COMMA),
        # A thousands comma is never taken for a decimal one.
        ([["1,234", "12,500", "7"]], TEXT),
        ([["1,234"] * 99 + ["3,14"]], TEXT),
        ([["1,234"] * 80 + ["3,14"] * 20], DECIMAL_COMMA),
        ([["1,234,567", "2,345,678"]], TEXT),
        # Nor is a column with both signs guessed.
        ([["3,14", "3.14"] * 50], TEXT),
        ([["3.14"] * 99 + ["3,14"]], NUMBER),
        ([["1.234,5", "2.345,5"]], TEXT),
    ],
)
def test_decimal_commas_are_read_when_they_cannot_be_anything_else(
    blocks: list[list[str | None]], kind: pa.DataType
) -> None:
    guess = TypeGuess((*COLUMN_TYPES, DECIMAL_COMMA))
    for block in blocks:
        guess.add(pa.array(block, pa.string()))
    assert guess.kind() == kind


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        ([["1,234.50", "870", "12,000"]], THOUSANDS),
        ([["1,234,567", "870"]], THOUSANDS),
        ([["1.5", "2.5"], ["1,234", "2.5"]], THOUSANDS),
        ([["1", "2"], ["1,234", "2.5"]], THOUSANDS),
        ([["12 %", "7%", None, "-3.5 %"]], WrittenNumber("%", ".")),
        ([["12,5 %", "7 %"]], WrittenNumber("%", ",")),
        ([["$3.20", "-$1,000.00", "$ 7"]], WrittenNumber("$", ".")),
        ([["3,20 €", "1,5 €"]], WrittenNumber("€", ",")),
        # These may be thousands or decimals, or are no numbers of one unit.
        ([["1,234", "870", "12,000"]], TEXT),
        ([["$1,234", "$870"]], TEXT),
        ([["$3.20", "3.20 €"]], TEXT),
        ([["12 %", "7"]], TEXT),
        ([["12,34.5", "1.5"]], TEXT),
        ([["1", "2"]], INTEGER),
        ([["1.5", "2"]], NUMBER),
        ([["12 %"] * 70, ["many"] * 30], TEXT),
    ],
)
def test_written_numbers_are_read_when_they_cannot_be_anything_else(
    blocks: list[list[str | None]], kind: pa.DataType
) -> None:
    guess = TypeGuess((*COLUMN_TYPES, *written_kinds(None)))
    for block in blocks:
        guess.add(pa.array(block, pa.string()))
    assert guess.kind() == kind


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_known_decimal_sign_decides_what_a_comma_is(decimal: DecimalSign) -> None:
    guess = TypeGuess((*COLUMN_TYPES, *written_kinds(decimal)))
    guess.add(texts := pa.array(["1,234 €", "870 €"]))
    assert guess.kind() == WrittenNumber("€", decimal, is_certain=True)
    assert parse_column(texts, guess.kind())[0].to_pylist() == [1234 if decimal == "." else 1.234, 870]


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
    values, bad = parse_column(pa.array(["3,14", " -2,5 ", "7", None, "1,2,3", "1.5"]), DECIMAL_COMMA)
    assert values.to_pylist() == [3.14, -2.5, 7.0, None, None, None]
    assert bad.tolist() == [False, False, False, False, True, True]


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
    bad = mismatches(column, kind, len(values))
    alone = [value is not None and not can_parse(pa.array([value.strip()]), kind) for value in values]
    assert bad is not None
    assert bad.tolist() == alone
    if sum(alone):
        assert mismatches(column, kind, sum(alone) - 1) is None
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
