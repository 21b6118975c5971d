"""The cost of storing and transferring bytes, as declared. `tariff_costs.py` holds the arithmetic.

transfer  = over the tiers of a route, price x the part of the volume inside the tier; free inside a region.
            Where the volume carried this month is uncertain, the most expensive possible volume is used.
storage   = GB x price per GB-month x hours / 730, for at least the minimum days of the storage class
retrieval = GB x the storage class's price per GB read, for each stage that reads the data

Tiers are marginal: the price of the second tier applies only to the volume above the end of the first.
A GB is the unit of the provider's list. Sizes here are in 1e9 bytes; a provider that bills by 2^30 bytes
charges 7% less for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from shoestring.core.money import Usd
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS

HOURS_PER_MONTH = 730.0
ARROW, ANY = "->", "*"
ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes of S3 whose objects must be restored, for hours, before they can be read."""

# List prices per GB to the internet, first paid tier: GCP premium network 0.12, AWS 0.09, Azure 0.087
# (2026-07-30). Between two regions of one provider: 0.01 to 0.16, mostly 0.02.
DEFAULT_USD_PER_GB = Decimal("0.120000")
"""Dollars per GB over a route without a declared price, if the tariffs declare no default."""


def _not_negative(amount: Decimal) -> Decimal:
    if amount < 0:
        raise ValueError(f"${amount} is not a price: it must be 0 or more")
    return amount


TariffUsd = Annotated[Usd, AfterValidator(_not_negative)]


class PriceTier(Record):
    """A price per GB up to a monthly volume. The last tier has no upper end."""

    up_to_gb: float | None = Field(
        None, gt=0, description="upper end of the tier, in GB per month; null: none"
    )
    usd_per_gb: TariffUsd


class StorageClass(Record):
    """The prices of a storage class. Its objects can be read at once, at the store's usual speed."""

    usd_per_gb_month: TariffUsd
    retrieval_usd_per_gb: TariffUsd = Field(Decimal("0.000000"), description="price per GB for each read")
    min_days: float = Field(
        0.0, ge=0, description="minimum billed days, even if the object is deleted earlier"
    )

    def billed_hours(self, hours: float) -> float:
        """Return the billed hours of an object that is stored for `hours`."""
        return max(hours, self.min_days * 24)


class Tariffs(Record):
    """The cost of storing and transferring bytes.

    A route is 'from->to' by region; `*` matches any region, `internet` any target outside the cloud. Of
    several matching routes the most specific one applies, and of 'a->*' and '*->b' the first. A pair without
    a route costs `default_usd_per_gb`; transfers inside a region are free. Regions of a provider other than
    the store's are written PROVIDER/REGION, since two providers may use the same region name.
    """

    storage_usd_per_gb_month: TariffUsd = Field(
        Decimal("0.023000"), description=f"price of the storage class {STANDARD_CLASS}"
    )
    storage_held_hours: float = Field(
        24.0, ge=0, description="hours for which the storage of an intermediate data set is charged"
    )
    storage_classes: dict[str, StorageClass] = Field(
        {}, description="further storage classes, by their names in the store"
    )
    egress_usd_per_gb: dict[str, TariffUsd | tuple[PriceTier, ...]] = Field(
        {}, description="by route: one price, or a list of tiers"
    )
    default_usd_per_gb: TariffUsd | None = Field(
        None,
        description=f"price for region pairs that no route matches; null: {DEFAULT_USD_PER_GB}, noted in "
        "every decision",
    )
    transferred_gb: dict[str, float] = Field(
        {}, description="by route: GB transferred this month by others than this store's runs"
    )
    store_region: str = "local"
    store_provider: str = Field(
        "", description="provider of the store's region: aws, gcp, ...; empty: the provider of every pool"
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for route in (*self.egress_usd_per_gb, *self.transferred_gb):
            ends = route.split(ARROW)
            if len(ends) != 2 or not all(ends):
                raise ValueError(
                    f"{route!r} is not a route: write it like 'us-east-1->us-west-2', '*' for any region"
                )
        if unpriced := sorted(set(self.transferred_gb) - set(self.egress_usd_per_gb)):
            raise ValueError(
                f"transferred_gb names {', '.join(unpriced)}, for which egress_usd_per_gb has no price"
            )
        for name in self.storage_classes:
            _check_storage_class(name)
        for route, tiers in self.egress_usd_per_gb.items():
            _check_tiers(route, _tiers(tiers))
        return self

    def storage_class(self, name: str = STANDARD_CLASS) -> StorageClass:
        """Return a storage class by its name. Raises KeyError."""
        return (
            StorageClass(usd_per_gb_month=self.storage_usd_per_gb_month)
            if name == STANDARD_CLASS
            else self.storage_classes[name]
        )

    def route_end(self, provider: str, region: str) -> str:
        """Return the name of a pool's region in routes."""
        return (
            f"{provider}/{region}"
            if provider and self.store_provider and provider != self.store_provider
            else region
        )

    @property
    def all_storage_classes(self) -> dict[str, StorageClass]:
        """Return all storage classes: the standard class, then the others by name."""
        return {name: self.storage_class(name) for name in (STANDARD_CLASS, *sorted(self.storage_classes))}

    @property
    def is_tiered(self) -> bool:
        """True if the price depends on the volume already transferred in the month."""
        return any(not isinstance(price, Decimal) for price in self.egress_usd_per_gb.values())

    @property
    def default_price_usd_per_gb(self) -> Decimal:
        """Return dollars per GB for region pairs that no route matches."""
        return DEFAULT_USD_PER_GB if self.default_usd_per_gb is None else self.default_usd_per_gb

    def tiers(self, source: str, target: str) -> tuple[PriceTier, ...]:
        """Return the price tiers of a transfer between two regions."""
        route = self.route(source, target)
        if route is not None:
            return _tiers(self.egress_usd_per_gb[route])
        return _tiers(Decimal(0) if source == target else self.default_price_usd_per_gb)

    @property
    def route_prices(self) -> list[tuple[str, str]]:
        """Return each route with its price per GB, as text."""
        unnamed = _tiers(self.default_price_usd_per_gb)
        return [(route, _tiers_text(_tiers(price))) for route, price in self.egress_usd_per_gb.items()] + [
            ("any other pair", _tiers_text(unnamed))
        ]

    @property
    def storage_prices(self) -> list[tuple[str, ...]]:
        """Return each storage class with its monthly price, retrieval price and minimum days, as text."""
        classes = self.all_storage_classes.items()
        return [
            (name, f"${each.usd_per_gb_month}", f"${each.retrieval_usd_per_gb}", f"{each.min_days:g} days")
            for name, each in classes
        ]

    def assumed_routes(self, regions: Iterable[str]) -> dict[str, str]:
        """Return a sentence for each route between these regions and the store that has no declared price, by
        route.
        """
        if self.default_usd_per_gb is not None:
            return {}
        store = self.store_region
        ends = [
            each
            for region in sorted(set(regions))
            if region != store
            for each in ((store, region), (region, store))
        ]
        reason = (
            f"no route of egress_usd_per_gb matches, so ${DEFAULT_USD_PER_GB} per GB is assumed: "
            "add the route, or declare default_usd_per_gb"
        )
        return {
            f"{source}{ARROW}{target}": reason
            for source, target in ends
            if self.route(source, target) is None
        }

    def route(self, source: str, target: str) -> str | None:
        """Return the route whose price applies between two regions; None if no route matches."""
        if source == target:
            return None
        named = (
            f"{source}{ARROW}{target}",
            f"{source}{ARROW}{ANY}",
            f"{ANY}{ARROW}{target}",
            f"{ANY}{ARROW}{ANY}",
        )
        return next((route for route in named if route in self.egress_usd_per_gb), None)


def _tiers(price: Decimal | tuple[PriceTier, ...]) -> tuple[PriceTier, ...]:
    return (PriceTier(usd_per_gb=price),) if isinstance(price, Decimal) else price


def _tiers_text(tiers: Sequence[PriceTier]) -> str:
    ends = [
        f"${tier.usd_per_gb}" + (f" up to {tier.up_to_gb:g} GB" if tier.up_to_gb else "") for tier in tiers
    ]
    return f"{', '.join(ends)} a month" if len(ends) > 1 else ends[0]


def _check_storage_class(name: str) -> None:
    """Raises ValueError."""
    if name.casefold() == STANDARD_CLASS:
        raise ValueError(
            f"storage_classes: the price of {name} is storage_usd_per_gb_month; choose another name for "
            "this class"
        )
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(
            f"storage_classes: {name!r} is not a storage class: write its name in the store, such as "
            "STANDARD_IA"
        )
    if name.upper() in ARCHIVE_CLASSES:
        raise ValueError(
            f"storage_classes: objects on {name} must be restored before they can be read, and stages read "
            "at once: leave it out"
        )


def _check_tiers(route: str, tiers: tuple[PriceTier, ...]) -> None:
    ends = [tier.up_to_gb for tier in tiers]
    if not ends or ends[-1] is not None:
        raise ValueError(f"egress_usd_per_gb: {route}: the last tier must have no up_to_gb")
    below = [end for end in ends[:-1] if end is not None]
    if len(below) != len(ends) - 1 or any(second <= first for first, second in pairwise(below)):
        raise ValueError(
            f"egress_usd_per_gb: {route}: up_to_gb must increase from tier to tier: "
            f"{', '.join(map(str, ends))}"
        )
