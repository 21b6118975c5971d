"""The price of a pool: the most specific row, discounts, currencies, and comparisons between lists."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from test_catalogues import TARIFFS, TODAY, quotes_of

from shoestring.core.errors import WorldError
from shoestring.core.types import Market, Pool
from shoestring.pricing.catalogues import PriceListing
from shoestring.pricing.price_book import validated_book
from shoestring.pricing.price_list import PriceList
from shoestring.pricing.rows import PriceRow, parse_rows


def pool(**fields: str) -> Pool:
    return Pool.model_validate(
        {
            "name": "p",
            "cores": 4,
            "memory_gb": 16,
            "provider": "aws",
            "machine": "m6i.xlarge",
            "region": "us-east-1",
        }
        | fields
    )


def own_row(usd_per_hour: str, **fields: object) -> PriceRow:
    fields_of_all = {
        "machine": "m6i.xlarge",
        "provider": "aws",
        "market": "on-demand",
        "as_of": TODAY,
        "source": "list",
    }
    return PriceRow.model_validate(fields_of_all | {"usd_per_hour": usd_per_hour} | fields)


def test_the_most_specific_row_prices_a_pool() -> None:
    rows = [
        own_row("0.20"),
        own_row("0.21", region="us-east-1"),
        own_row("0.22", region="us-east-1", zone="a"),
        own_row("0.9", region="elsewhere"),
    ]
    named = PriceRow.model_validate(
        {"pool": "p", "market": "on-demand", "as_of": "2020-01-01", "source": "mine", "usd_per_hour": "0.5"}
    )
    for expected, count, zone in (
        ("0.5", 5, "a"),
        ("0.22", 4, "a"),
        ("0.21", 2, "a"),
        ("0.2", 1, "a"),
        ("0.21", 4, ""),
    ):
        listing = PriceListing(tuple([*rows[:3], rows[3], named][:count]), PriceList())
        assert quotes_of(listing, pool(zone=zone)) == {("p", Market.ON_DEMAND): expected}


def test_a_pool_in_any_zone_costs_as_much_as_the_most_expensive_zone() -> None:
    rows = tuple(
        own_row(price, region="us-east-1", zone=zone)
        for zone, price in (("a", "0.20"), ("b", "0.23"), ("c", "0.21"))
    )
    assert quotes_of(PriceListing(rows, PriceList()), pool()) == {("p", Market.ON_DEMAND): "0.23"}


def test_a_spot_price_is_compared_with_the_on_demand_price_of_another_list() -> None:
    named = PriceRow.model_validate(
        {"pool": "p", "market": "on-demand", "as_of": TODAY, "source": "mine", "usd_per_hour": "0.1"}
    )
    listing = PriceListing((named, own_row("0.12", market="spot"), own_row("0.2")), PriceList())
    book = validated_book(listing, [pool()], TARIFFS, TODAY)
    assert [each.reason for each in book.rejected] == [
        "spot at $0.120000 an hour is not below on-demand at $0.100000"
    ]


def test_discounts_compound_and_the_list_price_stays_in_the_quote() -> None:
    price_list = PriceList.model_validate(
        {
            "discounts": [
                {"share": "0.2", "machine": "m6i*"},
                {"share": "0.5", "market": "on-demand"},
                {"share": "0.9", "provider": "gcp"},
            ]
        }
    )
    (quote,) = validated_book(
        PriceListing((own_row("0.192001"),), price_list), [pool()], TARIFFS, TODAY
    ).quotes
    assert (quote.usd_per_hour, quote.list_usd_per_hour) == (Decimal("0.076801"), Decimal("0.192001"))


def test_a_price_in_another_currency_is_as_old_as_the_older_of_itself_and_its_rate() -> None:
    rates = {"EUR": {"usd": "1.10", "as_of": "2026-10-01", "source": "ECB"}}
    raw = {
        "machine": "m6i.xlarge",
        "market": "on-demand",
        "per_hour": "0.20",
        "currency": "EUR",
        "as_of": TODAY,
        "source": "list",
    }
    file = PriceList.model_validate({"rates": rates, "prices": [raw]})
    (row,) = parse_rows(file.prices, file.rates)
    assert (row.usd_per_hour, row.as_of, row.source) == (
        Decimal("0.220000"),
        date(2026, 10, 1),
        "list, at $1.100000 per EUR (ECB)",
    )
    with pytest.raises(
        WorldError,
        match=r"no exchange rate for 'CHF' \(known: EUR\): declare it in `rates`, with its date",
    ):
        parse_rows([raw | {"currency": "CHF"}], file.rates)
    with pytest.raises(WorldError, match="usd_per_hour is in dollars: write per_hour and currency"):
        parse_rows([{**raw, "usd_per_hour": "1"}], file.rates)


def test_a_declared_maximum_age_applies_to_a_pools_own_rows_too() -> None:
    named = PriceRow.model_validate(
        {"pool": "p", "market": "on-demand", "as_of": "2020-01-01", "source": "mine", "usd_per_hour": "0.1"}
    )
    assert quotes_of(PriceListing((named,), PriceList()), pool())
    (rejected_row,) = validated_book(
        PriceListing((named,), PriceList.model_validate({"max_age_days": {"on-demand": 30}})),
        [pool()],
        TARIFFS,
        TODAY,
    ).rejected
    assert rejected_row.reason == "it is 2496 days old, and on-demand prices are accepted for 30 days"
