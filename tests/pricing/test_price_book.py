"""The price book accepts possible prices, rejects impossible ones, and refuses malformed rows."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoestring.backends.local import WorldFile
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook
from shoestring.config.yaml_files import parse
from shoestring.core.errors import WorldError
from shoestring.core.types import Market, Pool
from shoestring.pricing.catalogues import Catalogue, read_listing
from shoestring.pricing.price_book import build_price_book
from shoestring.pricing.price_list import CatalogueFile, PriceList

POOLS = (
    Pool(name="cpu", cores=4, memory_gb=16),
    Pool(name="tpu", cores=44, memory_gb=176),
    Pool(name="gpu", cores=8, memory_gb=32, gpu_count=1),
)


TODAY = date(2026, 11, 1)


def opened(file: CatalogueFile) -> Catalogue:
    raise AssertionError(f"{file.file} is not asked for")


def row(
    pool: str = "cpu", usd_per_hour: object = "0.16", market: str = "on-demand", **fields: object
) -> dict[str, Any]:
    return {
        "pool": pool,
        "market": market,
        "usd_per_hour": usd_per_hour,
        "as_of": "2026-07-30",
        "source": "list",
    } | fields


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in row().items() if name != field}


def book_of(*rows: dict[str, Any]) -> PriceBook:
    return build_price_book(read_listing(PriceList(prices=rows), opened), POOLS, Tariffs(), TODAY)


def rejection_reasons(*rows: dict[str, Any]) -> list[str]:
    return [each.reason for each in book_of(*rows).rejected]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (without("source"), r"price row 2 \(cpu\): missing source; a row has pool"),
        (without("pool"), r"price row 2 \(no pool\): missing pool"),
        (row(as_of=None), "missing as_of"),
        (row(source=""), "missing source"),
        (row(usd_per_day="1"), "unknown field usd_per_day"),
        (row(market="sopt"), "'sopt' is not a market; known: spot, on-demand, reserved"),
        (row(pool="cpux"), "no pool called 'cpux'; known: cpu, gpu, tpu"),
        (row(usd_per_hour="cheap"), "'cheap' is not an amount of dollars"),
        (row(usd_per_hour=True), "True"),
        (row(usd_per_hour=Decimal("nan")), "must be finite"),
        (row(as_of="30 July"), "'30 July' is not a date: write it like 2026-07-30"),
    ],
)
def test_a_malformed_row_is_refused_by_number_with_the_reason(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(WorldError, match=what):
        book_of(row(), wrong)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row(usd_per_hour="0")], "$0.000000 an hour is not a price: cpu is not free"),
        ([row(usd_per_hour="-0.10")], "$-0.100000 an hour is not a price: cpu is not free"),
        (
            [row("tpu", "700.0")],
            "$700.000000 an hour is a placeholder, not a price: price lists write it for 'unknown'",
        ),
        (
            [row(), row(usd_per_hour="0.16", market="spot")],
            "spot at $0.160000 an hour is not below on-demand at $0.160000",
        ),
        (
            [row(), row(usd_per_hour="0.30", market="spot")],
            "spot at $0.300000 an hour is not below on-demand at $0.160000",
        ),
    ],
)
def test_an_impossible_price_is_rejected_with_its_numbers(rows: list[dict[str, Any]], reason: str) -> None:
    assert rejection_reasons(*rows) == [reason]


def test_the_other_rows_are_still_used() -> None:
    """A placeholder does not cause the prices next to it to be rejected."""
    book = book_of(row("tpu", "700.0"), row("tpu", "2.70", source="older"), row())
    assert [(quote.pool, quote.usd_per_hour) for quote in book.quotes] == [
        ("cpu", Decimal("0.160000")),
        ("tpu", Decimal("2.700000")),
    ]
    assert len(book.rejected) == 1


def test_disagreeing_rows_are_both_rejected_and_equal_rows_count_once() -> None:
    assert (
        rejection_reasons(row(), row(usd_per_hour="0.20"))
        == ["rows for cpu on-demand disagree: $0.160000, $0.200000; keep one"] * 2
    )
    book = book_of(row(), row(as_of="2026-08-30"))
    assert [quote.as_of for quote in book.quotes] == [date(2026, 8, 30)] and not book.rejected


def test_spot_is_not_compared_with_a_rejected_on_demand_price() -> None:
    book = book_of(row(usd_per_hour="-1"), row(usd_per_hour="0.05", market="spot"))
    assert [quote.market for quote in book.quotes] == [Market.SPOT]


def test_a_gpu_machine_may_cost_more_than_cores() -> None:
    assert rejection_reasons(row("gpu", "14.24")) == [] and len(rejection_reasons(row("cpu", "14.24"))) == 1


def committed(**fields: object) -> dict[str, Any]:
    return {"name": "deed", "pool": "cpu", "hours_per_month": 730, "source": "deed"} | fields


def book_with(*commitments: dict[str, Any]) -> PriceBook:
    listing = read_listing(PriceList.model_validate({"prices": [row()], "commitments": commitments}), opened)
    return build_price_book(listing, POOLS, Tariffs(), TODAY)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (committed(pool=""), "commitment deed: name a pool, or a machine with its provider and region"),
        (committed(machine="n2"), "name a pool, or a machine"),
        (committed(hours_per_month=0), "greater than 0"),
        (committed(name="a/b"), "should match pattern"),
        (committed(source=""), "at least 1 character"),
        (
            committed(from_day="2026-05-01", until_day="2026-04-01"),
            "it ends on 2026-04-01, before it begins on 2026-05-01",
        ),
    ],
)
def test_an_impossible_commitment_is_refused_with_the_fix(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        book_with(wrong)


def test_commitments_with_duplicate_names_or_unknown_pools_are_refused() -> None:
    with pytest.raises(ValidationError, match="commitments named twice: deed"):
        book_with(committed(), committed())
    with pytest.raises(
        WorldError, match="commitment deed: there is no pool called 'cpux'; known: cpu, gpu, tpu"
    ):
        book_with(committed(pool="cpux"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"until_day": "2026-10-31"}, "it ended on 2026-10-31: the on-demand price applies"),
        ({"from_day": "2026-11-02"}, "it begins on 2026-11-02"),
        (
            {"market": "spot"},
            "no spot price of cpu was accepted, so the price after the hours are used up is unknown",
        ),
        ({"pool": "", "machine": "n2"}, "it covers none of the pools: n2"),
    ],
)
def test_an_inactive_commitment_is_rejected_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    book = book_with(committed(**fields))
    assert book.committed == () and [each.reason for each in book.rejected] == [reason]


@given(st.integers(1, 10**6))
def test_an_unquoted_yaml_price_is_read_exactly(micro: int) -> None:
    written = format(Decimal(micro).scaleb(-6), "f")
    text = (
        "store: s\npools: [{name: cpu, cores: 1, memory_gb: 1}]\n"
        f"prices: [{{usd_per_hour: {written}, as_of: 2026-07-30}}]"
    )
    (read,) = parse(text, WorldFile, "world.yaml", WorldError).prices
    quotes = book_of(row(**read)).quotes
    assert [quote.usd_per_hour for quote in quotes] == [Decimal(written)]


prices = st.integers(-10, 200).map(lambda cents: f"{cents / 100}") | st.sampled_from(["700.0", "10000"])


@given(
    st.lists(
        st.builds(row, st.sampled_from(["cpu", "tpu", "gpu"]), prices, st.sampled_from(list(Market))),
        max_size=12,
    )
)
def test_accepted_prices_are_positive_unique_and_lower_on_spot(rows: list[dict[str, Any]]) -> None:
    book = book_of(*rows)
    accepted = {(quote.pool, quote.market): quote.usd_per_hour for quote in book.quotes}
    assert len(accepted) == len(book.quotes) and all(price > 0 for price in accepted.values())
    for (pool, market), price in accepted.items():
        assert market != Market.SPOT or price < accepted.get((pool, Market.ON_DEMAND), price + 1)
    mentioned = {f"{quote.pool} {quote.market}" for quote in book.quotes} | {
        " ".join(each.row.split()[:2]) for each in book.rejected
    }
    assert mentioned == {f"{each['pool']} {each['market']}" for each in rows}
