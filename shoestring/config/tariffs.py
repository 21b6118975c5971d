"""What holding and moving bytes costs: prices a person declares, and their arithmetic.

moved   = over the tiers of a route, price x the part of the volume that lies in the tier; nothing inside a region
          where it is not known how much of the month the route has moved before, as if it were what makes it dearest
held    = GB x price a GB-month x hours / 730, for the least days of the shelf at least
read    = GB x what the shelf asks for a GB that is read, each time that a stage reads it

Tiers are marginal: the second one's price is paid for what lies above the first one's end, and for no more.
A GB is what the tariff's own list counts in; sizes here are in 1e9 bytes, which is 7% dearer where a provider bills by 2^30.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator

from shoestring.core.money import MAX_USD, Usd
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HOURS_PER_MONTH = 730.0
NOTHING: Mapping[str, float] = {}
ARROW, ANY = "->", "*"
ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes of S3 from which an object has to be restored, for hours, before it can be read."""

# What the large clouds list for a GB to anywhere, in their first tier that is not free: GCP's premium network 0.12, AWS 0.09, Azure 0.087
# (2026-07-30). Between regions of one of them it is 0.01 to 0.16, mostly 0.02.
DEFAULT_USD_PER_GB = Decimal("0.120000")
"""A GB over a route that no tariff names, where nothing is declared."""


def _at_least_nothing(amount: Decimal) -> Decimal:
    if amount < 0:
        raise ValueError(f"${amount} is not a price: it has to be 0 or more")
    return amount


Price = Annotated[Usd, AfterValidator(_at_least_nothing)]


class PriceTier(Record):
    """A price a GB, up to a volume of a month. Of the last tier: without end."""

    up_to_gb: float | None = Field(
        None, gt=0, description="where the tier ends, in GB of a month; None: nowhere"
    )
    usd_per_gb: Price


class StorageClass(Record):
    """A storage class. What lies on it is read at once, at the store's ordinary speed."""

    usd_per_gb_month: Price
    retrieval_usd_per_gb: Price = Field(Decimal("0.000000"), description="to read it, each time")
    min_days: float = Field(
        0.0, ge=0, description="days that are charged at least, however soon it is deleted"
    )

    def billed_hours(self, hours: float) -> float:
        """For how long it charges what is held so long."""
        return max(hours, self.min_days * 24)


class Tariffs(Record):
    """What holding and moving bytes costs.

    A route is 'from->to' by region; `*` stands for any region, `internet` for what leaves the cloud. Of several that fit, the one that
    names most is used, and of 'a->*' and '*->b' the first. A pair that none fits costs `default_usd_per_gb`; a region to itself, nothing.
    Regions of another provider than the store's are written PROVIDER/REGION, where both are told: then their names may be alike.
    """

    storage_usd_per_gb_month: Price = Field(
        Decimal("0.023000"), description=f"of the shelf that is called {STANDARD_CLASS}"
    )
    storage_held_hours: float = Field(
        24.0, ge=0, description="how long an intermediate is kept, for its price"
    )
    storage_classes: dict[str, StorageClass] = Field(
        {}, description="other storage classes, by the name that the store knows them by"
    )
    egress_usd_per_gb: dict[str, Price | tuple[PriceTier, ...]] = Field(
        {}, description="by route: a price, or tiers of them"
    )
    default_usd_per_gb: Price | None = Field(
        None,
        description=f"of a pair of regions that no route fits; None: {DEFAULT_USD_PER_GB}, and every decision says so",
    )
    transferred_gb: dict[str, float] = Field(
        {}, description="by route: what others than this store's runs have moved this month"
    )
    store_region: str = "local"
    store_provider: str = Field(
        "", description="whose region that is: aws, gcp, ...; empty: that of every pool"
    )

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        for route in (*self.egress_usd_per_gb, *self.transferred_gb):
            ends = route.split(ARROW)
            if len(ends) != 2 or not all(ends):
                raise ValueError(
                    f"{route!r} is not a route: write it like 'us-east-1->us-west-2', '*' for any region"
                )
        if unpriced := sorted(set(self.transferred_gb) - set(self.egress_usd_per_gb)):
            raise ValueError(
                f"transferred_gb names {', '.join(unpriced)}, which egress_usd_per_gb has no price for"
            )
        for name in self.storage_classes:
            _can_be_a_shelf(name)
        for route, tiers in self.egress_usd_per_gb.items():
            _tiers_rise(route, _tiers(tiers))
        return self

    def storage_class(self, name: str = STANDARD_CLASS) -> StorageClass:
        """A storage class by its name. Raises KeyError."""
        return (
            StorageClass(usd_per_gb_month=self.storage_usd_per_gb_month)
            if name == STANDARD_CLASS
            else self.storage_classes[name]
        )

    def route_end(self, provider: str, region: str) -> str:
        """What a pool's region is called in routes."""
        return (
            f"{provider}/{region}"
            if provider and self.store_provider and provider != self.store_provider
            else region
        )

    @property
    def all_storage_classes(self) -> dict[str, StorageClass]:
        """All storage classes: the standard one, then the others by name."""
        return {name: self.storage_class(name) for name in (STANDARD_CLASS, *sorted(self.storage_classes))}

    @property
    def is_tiered(self) -> bool:
        """Does it matter how much of a month was moved before?"""
        return any(not isinstance(price, Decimal) for price in self.egress_usd_per_gb.values())

    @property
    def default_price_usd_per_gb(self) -> Decimal:
        """Dollars a GB, of a pair of regions that no route fits."""
        return DEFAULT_USD_PER_GB if self.default_usd_per_gb is None else self.default_usd_per_gb

    def tiers(self, source: str, target: str) -> tuple[PriceTier, ...]:
        """What moving from one region to another costs."""
        route = self.route(source, target)
        if route is not None:
            return _tiers(self.egress_usd_per_gb[route])
        return _tiers(Decimal(0) if source == target else self.default_price_usd_per_gb)

    @property
    def route_prices(self) -> list[tuple[str, str]]:
        """Each route and what a GB over it costs, for a person."""
        unnamed = _tiers(self.default_price_usd_per_gb)
        return [(route, _said(_tiers(price))) for route, price in self.egress_usd_per_gb.items()] + [
            ("any other pair", _said(unnamed))
        ]

    @property
    def storage_prices(self) -> list[tuple[str, ...]]:
        """Each storage class, and what a GB costs to keep there for a month, to be read, and is charged for at least, for a person."""
        shelves = self.all_storage_classes.items()
        return [
            (name, f"${each.usd_per_gb_month}", f"${each.retrieval_usd_per_gb}", f"{each.min_days:g} days")
            for name, each in shelves
        ]

    def assumed_routes(self, regions: Iterable[str]) -> dict[str, str]:
        """By route between these regions and the store's that no tariff names, what is taken for it: a sentence."""
        if self.default_usd_per_gb is not None:
            return {}
        store = self.store_region
        ends = [
            each
            for region in sorted(set(regions))
            if region != store
            for each in ((store, region), (region, store))
        ]
        why = f"no route of egress_usd_per_gb fits, so ${DEFAULT_USD_PER_GB} a GB is taken: name it there, or declare default_usd_per_gb"
        return {
            f"{source}{ARROW}{target}": why for source, target in ends if self.route(source, target) is None
        }

    def route(self, source: str, target: str) -> str | None:
        """The route that prices what moves from one region to another; None: there is none."""
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


def _said(tiers: Sequence[PriceTier]) -> str:
    ends = [
        f"${tier.usd_per_gb}" + (f" up to {tier.up_to_gb:g} GB" if tier.up_to_gb else "") for tier in tiers
    ]
    return f"{', '.join(ends)} a month" if len(ends) > 1 else ends[0]


def _can_be_a_shelf(name: str) -> None:
    """Raises ValueError."""
    if name.casefold() == STANDARD_CLASS:
        raise ValueError(
            f"storage_classes: the shelf called {name} is storage_usd_per_gb_month; give this one another name"
        )
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(
            f"storage_classes: {name!r} is no storage class: write it as the store does, like STANDARD_IA"
        )
    if name.upper() in ARCHIVE_CLASSES:
        raise ValueError(
            f"storage_classes: what lies on {name} cannot be read before it is restored, and stages read at once: leave it out"
        )


def _tiers_rise(route: str, tiers: tuple[PriceTier, ...]) -> None:
    ends = [tier.up_to_gb for tier in tiers]
    if not ends or ends[-1] is not None:
        raise ValueError(
            f"egress_usd_per_gb: {route}: the last tier has to be without up_to_gb, for all that is more"
        )
    below = [end for end in ends[:-1] if end is not None]
    if len(below) != len(ends) - 1 or any(second <= first for first, second in pairwise(below)):
        raise ValueError(
            f"egress_usd_per_gb: {route}: up_to_gb has to rise from tier to tier: {', '.join(map(str, ends))}"
        )


def tiered_microusd(tiers: Sequence[PriceTier], gb: Floats, transferred_gb: Floats | float = 0.0) -> Ints:
    """What each of these volumes costs after `transferred_gb` of the month: each tier's price for the part that lies in it, rounded up."""
    micro = np.zeros_like(gb, dtype=np.float64)
    low = 0.0
    for tier in tiers:
        high = np.inf if tier.up_to_gb is None else tier.up_to_gb
        inside = np.clip(transferred_gb + gb, low, high) - np.clip(transferred_gb, low, high)
        micro += inside * float(tier.usd_per_gb.scaleb(6))
        low = high
    return _up(micro)


def highest_microusd(tiers: Sequence[PriceTier], gb: Floats, least_gb: float, most_gb: float) -> Ints:
    """The most that each of these volumes may cost, where between `least_gb` and `most_gb` of the month were moved before.

    What a volume costs is linear in what was moved before it, but where its first or its last GB comes to a tier's end: there, or at
    the least or the most, it is dearest.
    """
    ends = [tier.up_to_gb for tier in tiers if tier.up_to_gb is not None]
    if most_gb <= least_gb or not ends:
        return tiered_microusd(tiers, gb, least_gb)
    before = [np.full_like(gb, least_gb), np.full_like(gb, most_gb)]
    before += [
        np.clip(point, least_gb, most_gb) for end in ends for point in (np.full_like(gb, end), end - gb)
    ]
    found: Ints = np.max([tiered_microusd(tiers, gb, transferred_gb) for transferred_gb in before], axis=0)
    return found


Volumes = Mapping[str, float]
"""GB by route."""


def egress_microusd(
    tariffs: Tariffs, source: str, target: str, gb: Floats, earlier_gb: Volumes = NOTHING
) -> Ints:
    """What moving each of these volumes from one region to another costs. `earlier_gb`: by route, the most that may have moved before it
    beside what is known to have."""
    if source == target:
        return np.zeros(len(gb), dtype=np.int64)
    route = tariffs.route(source, target) or ""
    transferred_gb = tariffs.transferred_gb.get(route, 0.0)
    return highest_microusd(
        tariffs.tiers(source, target), gb, transferred_gb, transferred_gb + earlier_gb.get(route, 0.0)
    )


def egress_table(
    tariffs: Tariffs, routes: Sequence[tuple[str, str]], gb: Floats, earlier_gb: Sequence[Volumes] = ()
) -> Ints:
    """Micro-dollars for each of these (from, to) and each of these volumes: len(routes) x len(gb). `earlier_gb`: for each of the routes."""
    if not earlier_gb:
        # Each price once, however many pairs of regions it is for.
        named = [(tariffs.route(*ends), ends[0] == ends[1]) for ends in routes]
        priced = {
            name: egress_microusd(tariffs, *ends, gb)
            for name, ends in dict(zip(named, routes, strict=True)).items()
        }
        rows = [priced[name] for name in named]
    else:
        rows = [
            egress_microusd(tariffs, *route, gb, earlier)
            for route, earlier in zip(routes, earlier_gb, strict=True)
        ]
    return np.stack(rows) if rows else np.zeros((0, len(gb)), dtype=np.int64)


def held_microusd(shelf: StorageClass, gb: Floats, hours: float) -> Ints:
    """What keeping each of these volumes so long costs."""
    return _up(gb * float(shelf.usd_per_gb_month.scaleb(6)) * (shelf.billed_hours(hours) / HOURS_PER_MONTH))


def read_microusd(shelf: StorageClass, gb: Floats) -> Ints:
    """What reading each of these volumes once costs, beside moving it."""
    return _up(gb * float(shelf.retrieval_usd_per_gb.scaleb(6)))


def _up(micro: Floats) -> Ints:
    """Rounded up to the micro-dollar, but for what the last bits of a product add to a whole one."""
    return np.minimum(np.ceil(np.round(micro, 4)), MAX_USD * 10**6).astype(np.int64)
