"""The cost of bytes under the tariffs, in whole micro-dollars: transfer, storage and retrieval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shoestring.config.tariffs import HOURS_PER_MONTH, PriceTier, StorageClass, Tariffs
from shoestring.core.money import MAX_USD

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NO_VOLUMES: Mapping[str, float] = {}


def tiered_microusd(tiers: Sequence[PriceTier], gb: Floats, transferred_gb: Floats | float = 0.0) -> Ints:
    """Return the cost of each volume after `transferred_gb` of the month, each part at the price of its tier,
    rounded up.
    """
    micro = np.zeros_like(gb, dtype=np.float64)
    low = 0.0
    for tier in tiers:
        high = np.inf if tier.up_to_gb is None else tier.up_to_gb
        inside = np.clip(transferred_gb + gb, low, high) - np.clip(transferred_gb, low, high)
        micro += inside * float(tier.usd_per_gb.scaleb(6))
        low = high
    return _up(micro)


def highest_microusd(tiers: Sequence[PriceTier], gb: Floats, min_gb: float, max_gb: float) -> Ints:
    """Return the maximum cost of each volume, if between `min_gb` and `max_gb` of the month precede it.

    The cost is piecewise linear in the preceding volume: its maximum is at `min_gb`, at `max_gb`, or where
    the first or the last GB reaches the end of a tier.
    """
    ends = [tier.up_to_gb for tier in tiers if tier.up_to_gb is not None]
    if max_gb <= min_gb or not ends:
        return tiered_microusd(tiers, gb, min_gb)
    before = [np.full_like(gb, min_gb), np.full_like(gb, max_gb)]
    before += [np.clip(point, min_gb, max_gb) for end in ends for point in (np.full_like(gb, end), end - gb)]
    found: Ints = np.max([tiered_microusd(tiers, gb, transferred_gb) for transferred_gb in before], axis=0)
    return found


Volumes = Mapping[str, float]
"""GB by route."""


def egress_microusd(
    tariffs: Tariffs, source: str, target: str, gb: Floats, earlier_gb: Volumes = NO_VOLUMES
) -> Ints:
    """Return the cost of transferring each volume between two regions, in micro-dollars.

    `earlier_gb`: by route, the maximum volume that may precede it, in addition to the volume that is known.
    """
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
    """Return micro-dollars for each (from, to) pair and each volume, as an array of len(routes) x len(gb).

    `earlier_gb`: for each of the routes, the volumes that may precede it.
    """
    if not earlier_gb:
        # Each price is computed once, whatever the number of region pairs that share it.
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


def storage_microusd(storage_class: StorageClass, gb: Floats, hours: float) -> Ints:
    """Return the cost of storing each volume for `hours`, in micro-dollars."""
    return _up(
        gb
        * float(storage_class.usd_per_gb_month.scaleb(6))
        * (storage_class.billed_hours(hours) / HOURS_PER_MONTH)
    )


def retrieval_microusd(storage_class: StorageClass, gb: Floats) -> Ints:
    """Return the cost of reading each volume once, without its transfer, in micro-dollars."""
    return _up(gb * float(storage_class.retrieval_usd_per_gb.scaleb(6)))


def _up(micro: Floats) -> Ints:
    """Return micro-dollars rounded up, except for the rounding error in the last bits of a product."""
    whole: Ints = np.minimum(np.ceil(np.round(micro, 4)), MAX_USD * 10**6).astype(np.int64)
    return whole
