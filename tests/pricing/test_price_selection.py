"""The price of a pool: the most specific row, discounts, currencies, and comparisons between lists."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError
from test_catalogues import TARIFFS, TODAY, quotes_of

from shoestring.config.world import PriceBook
from shoestring.core.errors import WorldError
from shoestring.core.types import Market, Pool
from shoestring.pricing.catalogues import Catalogue, PriceListing, read_listing
from shoestring.pricing.price_book import validated_book
from shoestring.pricing.price_list import CatalogueFile, PriceList
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


EUR = {"usd": "1.10", "as_of": "2026-10-01", "source": "ECB"}


def euro_row(**fields: object) -> dict[str, Any]:
    return {
        "machine": "m6i.xlarge",
        "market": "on-demand",
        "per_hour": "0.20",
        "currency": "EUR",
        "as_of": TODAY,
        "source": "list",
    } | fields


def euro_book(*rows: dict[str, Any], **rate: str) -> PriceBook:
    file = PriceList.model_validate({"rates": {"EUR": EUR | rate}, "prices": rows})
    return validated_book(read_listing(file, open_none), [pool()], TARIFFS, TODAY)


def open_none(file: CatalogueFile) -> Catalogue:
    raise AssertionError(f"{file.file} is not asked for")


def test_a_price_in_another_currency_is_as_old_as_the_older_of_itself_and_its_rate() -> None:
    raw = euro_row()
    file = PriceList.model_validate({"rates": {"EUR": EUR}, "prices": [raw]})
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


@pytest.mark.parametrize(
    ("row_day", "rate_day", "reason"),
    [
        (
            "2026-10-01",
            "2031-01-01",
            "its exchange rate is dated 2031-01-01, and today is 2026-11-01: correct it in `rates`",
        ),
        ("2031-01-01", "2026-10-01", "it is dated 2031-01-01, and today is 2026-11-01"),
        ("2026-10-01", "2025-01-01", "it is 669 days old, and on-demand prices are accepted for 366 days"),
    ],
)
def test_a_price_and_its_exchange_rate_are_both_of_a_day_that_may_be(
    row_day: str, rate_day: str, reason: str
) -> None:
    book = euro_book(euro_row(as_of=row_day), as_of=rate_day)
    assert book.quotes == () and [each.reason for each in book.rejected] == [reason]


def test_a_rate_of_tomorrow_is_used_as_a_row_of_tomorrow_is() -> None:
    for row_day, rate_day in (("2026-11-02", "2026-11-01"), ("2026-11-01", "2026-11-02")):
        (quote,) = euro_book(euro_row(as_of=row_day), as_of=rate_day).quotes
        assert (quote.usd_per_hour, quote.as_of) == (Decimal("0.22"), TODAY)
    assert not euro_book(euro_row(), as_of="2026-11-03").quotes


def test_of_two_prices_at_one_rate_the_newer_counts() -> None:
    book = euro_book(euro_row(as_of="2026-10-20"), euro_row(as_of="2026-10-10", per_hour="0.30"))
    assert [quote.usd_per_hour for quote in book.quotes] == [Decimal("0.22")] and not book.rejected


@pytest.mark.parametrize(
    ("rates", "what"),
    [
        ({"EUR": EUR | {"usd": "0"}}, "greater than 0"),
        ({"EUR": EUR | {"usd": "-1.1"}}, "greater than 0"),
        ({"EUR": EUR | {"usd": "nan"}}, "'nan' is not an amount of dollars"),
        ({"USD": EUR}, "a rate is of a currency other than USD, by its code, such as EUR"),
        ({" ": EUR}, "a rate is of a currency other than USD, by its code, such as EUR"),
        ({"EUR": EUR, "eur": EUR}, "rates named twice: EUR; keep one of each"),
    ],
)
def test_a_rate_that_cannot_be_is_refused(rates: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        PriceList.model_validate({"rates": rates})


def test_the_code_of_a_currency_may_be_written_in_small_letters() -> None:
    file = PriceList.model_validate({"rates": {"eur": EUR}})
    (row,) = parse_rows([euro_row(currency="Eur")], file.rates)
    assert row.usd_per_hour == Decimal("0.22")


def test_a_price_that_is_too_large_in_dollars_is_refused_with_its_field() -> None:
    file = PriceList.model_validate({"rates": {"EUR": EUR | {"usd": "900000000"}}})
    with pytest.raises(WorldError, match=r"price row 1 \(m6i.xlarge\): per_hour: .* more than the ledger's"):
        parse_rows([euro_row(per_hour="900000000")], file.rates)


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
