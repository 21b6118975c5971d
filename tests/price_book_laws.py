"""Laws that hold for any price book. A test class inherits `BookLaws` and returns its own price list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pytest

from shoestring.config.tariff_costs import egress_microusd
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook
from shoestring.core.money import MICRO
from shoestring.core.types import Market, MarketTerms, Pool
from shoestring.pricing.catalogues import Catalogue, PriceListing
from shoestring.pricing.price_book import applies_to, validated_book
from shoestring.pricing.price_list import Commitment, PriceList
from shoestring.pricing.rows import PriceRow
from shoestring.pricing.validation import (
    MAX_USD_PER_CORE_HOUR,
    MAX_USD_PER_GPU_HOUR,
    PLACEHOLDERS,
)

Poison = Callable[[PriceRow], PriceRow]


def poisoned(**changed: object) -> Poison:
    return lambda row: row.model_copy(update=changed)


POISONS: dict[str, Poison] = {
    "the placeholder of a catalog": poisoned(usd_per_hour=Decimal("700.000000")),
    "a row of nines": poisoned(usd_per_hour=Decimal("99999.000000")),
    "nothing": poisoned(usd_per_hour=Decimal("0.000000")),
    "less than nothing": poisoned(usd_per_hour=Decimal("-1.000000")),
    "a day that has not come": lambda row: row.model_copy(
        update={"as_of": row.as_of + timedelta(days=36_500)}
    ),
    "the same again": poisoned(),
    "spot at the price of on-demand": poisoned(market=Market.SPOT),
    "a GPU that is not counted": poisoned(gpu="H100", gpu_count=0),
}


def pools_of(rows: Sequence[PriceRow]) -> tuple[Pool, ...]:
    """Return a pool for each machine and location of a price list, as the list describes it."""
    found: dict[tuple[str, ...], PriceRow] = {}
    for row in rows:
        found.setdefault((row.provider, row.region, row.zone, row.machine), row)
    return tuple(
        Pool(
            name="/".join(part or "any" for part in key),
            cores=int(row.cores or 1),
            memory_gb=row.memory_gb or 1,
            gpu=row.gpu or None,
            gpu_count=row.gpu_count or 0,
            region=row.region or "local",
            provider=row.provider,
            zone=row.zone,
            machine=row.machine,
            markets=dict.fromkeys(Market, MarketTerms()),
        )
        for key, row in found.items()
    )


class BookLaws:
    """Subclasses define `listing`, and `pools` if they differ from the machines of the price list."""

    today = date(2026, 11, 1)

    def listing(self) -> PriceListing:
        raise NotImplementedError

    def pools(self) -> Sequence[Pool]:
        return pools_of(self.all_rows())

    def all_rows(self) -> list[PriceRow]:
        listing = self.listing()
        lists = [catalogue.read(listing.price_list.rates)[0] for catalogue in listing.catalogues]
        return [*listing.rows, *(row for rows in lists for row in rows)]

    def book(self, listing: PriceListing | None = None) -> PriceBook:
        return validated_book(listing or self.listing(), self.pools(), Tariffs(), self.today)

    def test_some_quotes_exist(self) -> None:
        assert self.book().quotes

    def test_prices_are_positive_whole_micro_dollars_and_not_above_the_list_price(self) -> None:
        for quote in self.book().quotes:
            assert quote.usd_per_hour > 0 and quote.usd_per_hour == quote.usd_per_hour.quantize(MICRO)
            assert quote.usd_per_hour not in PLACEHOLDERS and quote.usd_per_hour <= (
                quote.list_usd_per_hour or quote.usd_per_hour
            )

    def test_a_pool_and_market_have_one_quote_and_quotes_are_sorted(self) -> None:
        keys = [(quote.pool, quote.market) for quote in self.book().quotes]
        assert keys == sorted(set(keys))

    def test_spot_is_listed_below_on_demand(self) -> None:
        listed = {
            (quote.pool, quote.market): quote.list_usd_per_hour or quote.usd_per_hour
            for quote in self.book().quotes
        }
        for (pool, market), price in listed.items():
            assert market != Market.SPOT or price < listed.get((pool, Market.ON_DEMAND), price + 1)

    def test_every_quote_has_a_source_and_no_future_date(self) -> None:
        assert all(
            quote.source and quote.as_of <= self.today + timedelta(days=1) for quote in self.book().quotes
        )

    def test_no_machine_costs_more_than_its_cores_and_gpus_can(self) -> None:
        pools, most = (
            {pool.name: pool for pool in self.pools()},
            {row.machine.lower(): row.cores or 0 for row in self.all_rows()},
        )
        for quote in self.book().quotes:
            pool = pools[quote.pool]
            cores = Decimal(str(max(pool.cores, most.get(pool.machine.lower(), 0))))
            assert quote.usd_per_hour <= cores * MAX_USD_PER_CORE_HOUR + pool.gpu_count * MAX_USD_PER_GPU_HOUR

    def test_every_row_of_a_pool_is_quoted_superseded_or_rejected_with_a_reason(self) -> None:
        book, pools = self.book(), self.pools()
        rejections = Counter(each.row for each in book.rejected)
        assert all(each.reason for each in book.rejected)
        for row in self.all_rows():
            if rejections[row.description]:
                rejections[row.description] -= 1
                continue
            for pool in (pool for pool in pools if applies_to(row, pool)):
                assert (pool.name, row.market) in {(quote.pool, quote.market) for quote in book.quotes}, (
                    row.description
                )

    def test_committed_hours_are_of_a_quoted_pool_and_market_and_unique(self) -> None:
        book, listing, pools = self.book(), self.listing(), self.pools()
        named = [
            Commitment(name=f"c{number}", pool=pool.name, hours_per_month=9, source="deed")
            for number, pool in enumerate(pools)
        ]
        again = [each.model_copy(update={"name": f"z{each.name}"}) for each in named]
        found = self.book(
            replace(
                listing, price_list=listing.price_list.model_copy(update={"commitments": (*named, *again)})
            )
        )
        on_demand = {quote.pool for quote in book.quotes if quote.market is Market.ON_DEMAND}
        assert found.quotes == book.quotes and sorted(each.pool for each in found.committed) == sorted(
            on_demand
        )
        assert all(not each.name.startswith("z") and each.left_hours == 9 for each in found.committed)
        assert len(found.rejected) == len(book.rejected) + 2 * len(pools) - len(on_demand)

    def test_transfers_without_a_declared_price_are_reported_and_not_free(self) -> None:
        pools, tariffs = self.pools(), Tariffs(store_region="nowhere", store_provider="nobody")
        reported = {
            each.row
            for each in validated_book(self.listing(), pools, tariffs, self.today).rejected
            if "no route" in each.reason
        }
        places = {tariffs.route_end(pool.provider, pool.region) for pool in pools}
        assert reported == {
            f"transfer {way}" for place in places for way in (f"nowhere->{place}", f"{place}->nowhere")
        }
        for place in places:
            assert egress_microusd(tariffs, "nowhere", place, np.array([1.0]))[0] > 0

    def test_the_order_of_rows_does_not_matter(self) -> None:
        listing, rows = self.listing(), self.all_rows()
        forth, back = (
            self.book(replace(listing, rows=tuple(order), catalogues=())) for order in (rows, rows[::-1])
        )
        assert forth.quotes == back.quotes
        assert Counter(each.reason for each in forth.rejected) == Counter(
            each.reason for each in back.rejected
        )

    @pytest.mark.parametrize("poison", POISONS)
    def test_a_poisoned_row_is_rejected_and_changes_no_quote(self, poison: str) -> None:
        listing, book = self.listing(), self.book()
        clean = [
            row for row in self.all_rows() if row.description not in {each.row for each in book.rejected}
        ]
        for row in [
            row
            for row in clean
            if row.market is Market.ON_DEMAND and any(applies_to(row, pool) for pool in self.pools())
        ][:8]:
            bad = POISONS[poison](row)
            spiked = self.book(replace(listing, rows=(*listing.rows, bad)))
            assert spiked.quotes == book.quotes
            assert len(spiked.rejected) == len(book.rejected) + 1


def listed(text: str, file: str = "list.csv", **price_list: object) -> PriceListing:
    """Return the text of a price list as a listing."""
    catalogue = Catalogue(
        PriceList.model_validate({"catalogues": [{"file": file} | price_list]}).catalogues[0], text
    )
    return PriceListing((), PriceList(), (catalogue,))
