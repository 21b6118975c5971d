"""What holding and moving bytes costs: prices a person declares, and their arithmetic.

moved   = over the tiers of a route, price x the part of the volume that lies in the tier; nothing inside a region
held    = GB x price a GB-month x hours / 730, for the least days of the shelf at least; reading from it may cost by the GB

Tiers are marginal: the second one's price is paid for what lies above the first one's end, and for no more.
A GB is what the tariff's own list counts in; sizes here are in 1e9 bytes, which is 7% dearer where a provider bills by 2^30.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator

from shoestring.model import Noun
from shoestring.money import MOST_USD, Usd

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HOURS_PER_MONTH = 730.0
ARROW, ANY = "->", "*"
STANDARD = "standard"


def _at_least_nothing(amount: Decimal) -> Decimal:
    if amount < 0:
        raise ValueError(f"${amount} is not a price: it has to be 0 or more")
    return amount


Price = Annotated[Usd, AfterValidator(_at_least_nothing)]


class Tier(Noun):
    """A price a GB, up to a volume of a month. Of the last tier: without end."""

    up_to_gb: float | None = Field(None, gt=0, description="where the tier ends, in GB of a month; None: nowhere")
    usd_per_gb: Price


class Shelf(Noun):
    """A storage class."""

    usd_per_gb_month: Price
    retrieval_usd_per_gb: Price = Field(Decimal("0.000000"), description="to read it, each time")
    least_days: float = Field(0.0, ge=0, description="days that are charged at least, however soon it is deleted")


class Tariffs(Noun):
    """What holding and moving bytes costs.

    A route is 'from->to' by region; `*` stands for any region, `internet` for what leaves the cloud. Of several that fit, the one that
    names most is used, and of 'a->*' and '*->b' the first. A pair that no route fits is free, and so is any region to itself.
    """

    storage_usd_per_gb_month: Price = Field(Decimal("0.023000"), description=f"of the shelf that is called {STANDARD}")
    storage_held_hours: float = Field(24.0, ge=0, description="how long an intermediate is kept, for its price")
    storage_tiers: dict[str, Shelf] = Field({}, description="other storage classes, by name")
    egress_usd_per_gb: dict[str, Price | tuple[Tier, ...]] = Field({}, description="by route: a price, or tiers of them")
    moved_gb: dict[str, float] = Field({}, description="by route: what this month has moved already, where its tiers go on")
    store_region: str = "local"

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        for route in (*self.egress_usd_per_gb, *self.moved_gb):
            ends = route.split(ARROW)
            if len(ends) != 2 or not all(ends):
                raise ValueError(f"{route!r} is not a route: write it like 'us-east-1->us-west-2', '*' for any region")
        if unpriced := sorted(set(self.moved_gb) - set(self.egress_usd_per_gb)):
            raise ValueError(f"moved_gb names {', '.join(unpriced)}, which egress_usd_per_gb has no price for")
        if STANDARD in self.storage_tiers:
            raise ValueError(f"storage_tiers: the shelf called {STANDARD} is storage_usd_per_gb_month; give this one another name")
        for route, tiers in self.egress_usd_per_gb.items():
            _tiers_rise(route, _tiers(tiers))
        return self

    def shelf(self, name: str = STANDARD) -> Shelf:
        """A storage class by its name. Raises KeyError."""
        return Shelf(usd_per_gb_month=self.storage_usd_per_gb_month) if name == STANDARD else self.storage_tiers[name]

    def route(self, source: str, target: str) -> str | None:
        """The route that prices what moves from one region to another; None: it is free."""
        if source == target:
            return None
        named = (f"{source}{ARROW}{target}", f"{source}{ARROW}{ANY}", f"{ANY}{ARROW}{target}", f"{ANY}{ARROW}{ANY}")
        return next((route for route in named if route in self.egress_usd_per_gb), None)


def _tiers(price: Decimal | tuple[Tier, ...]) -> tuple[Tier, ...]:
    return (Tier(usd_per_gb=price),) if isinstance(price, Decimal) else price


def _tiers_rise(route: str, tiers: tuple[Tier, ...]) -> None:
    ends = [tier.up_to_gb for tier in tiers]
    if not ends or ends[-1] is not None:
        raise ValueError(f"egress_usd_per_gb: {route}: the last tier has to be without up_to_gb, for all that is more")
    below = [end for end in ends[:-1] if end is not None]
    if len(below) != len(ends) - 1 or any(second <= first for first, second in pairwise(below)):
        raise ValueError(f"egress_usd_per_gb: {route}: up_to_gb has to rise from tier to tier: {', '.join(map(str, ends))}")


def tiered_microusd(tiers: Sequence[Tier], gb: Floats, moved_gb: float = 0.0) -> Ints:
    """What each of these volumes costs after `moved_gb` of the month: each tier's price for the part that lies in it, rounded up."""
    micro = np.zeros_like(gb, dtype=np.float64)
    low = 0.0
    for tier in tiers:
        high = np.inf if tier.up_to_gb is None else tier.up_to_gb
        inside = np.clip(moved_gb + gb, low, high) - np.clip(moved_gb, low, high)
        micro += inside * float(tier.usd_per_gb.scaleb(6))
        low = high
    return _up(micro)


def egress_microusd(tariffs: Tariffs, source: str, target: str, gb: Floats) -> Ints:
    """What moving each of these volumes from one region to another costs, by itself: as if nothing else moved this month but `moved_gb`."""
    route = tariffs.route(source, target)
    if route is None:
        return np.zeros(len(gb), dtype=np.int64)
    return tiered_microusd(_tiers(tariffs.egress_usd_per_gb[route]), gb, tariffs.moved_gb.get(route, 0.0))


def egress_table(tariffs: Tariffs, routes: Sequence[tuple[str, str]], gb: Floats) -> Ints:
    """Micro-dollars for each of these (from, to) and each of these volumes: len(routes) x len(gb)."""
    priced = {route: egress_microusd(tariffs, *route, gb) for route in sorted(set(routes))}
    return np.stack([priced[route] for route in routes]) if routes else np.zeros((0, len(gb)), dtype=np.int64)


def held_microusd(shelf: Shelf, gb: Floats, hours: float) -> Ints:
    """What keeping each of these volumes so long costs."""
    billed_hours = max(hours, shelf.least_days * 24)
    return _up(gb * float(shelf.usd_per_gb_month.scaleb(6)) * (billed_hours / HOURS_PER_MONTH))


def read_microusd(shelf: Shelf, gb: Floats) -> Ints:
    """What reading each of these volumes once costs, beside moving it."""
    return _up(gb * float(shelf.retrieval_usd_per_gb.scaleb(6)))


def _up(micro: Floats) -> Ints:
    """Rounded up to the micro-dollar, but for what the last bits of a product add to a whole one."""
    return np.minimum(np.ceil(np.round(micro, 4)), MOST_USD * 10**6).astype(np.int64)
