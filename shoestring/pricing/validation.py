"""Validates the rows of price lists. Each rejected row gets one sentence with the reason and its numbers.

A row is checked by itself, then against rows that price the same thing, then spot against on-demand. Only
rows that are still accepted are compared, so that a placeholder does not cause its neighbours to be rejected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from statistics import median

from shoestring.core.types import Market, RejectedPrice
from shoestring.pricing.rows import PriceRow

# Catalogues write 700.0 for "unknown" next to a TPU machine of 44 cores at 2.70; others write a row of nines.
# The most expensive list prices of 2026 are about $14 for a GPU-hour and $0.15 for a core-hour. Several times
# that is not a price.
MAX_USD_PER_CORE_HOUR = Decimal("2.50")
MAX_USD_PER_GPU_HOUR = Decimal("100")
PLACEHOLDERS = frozenset(
    map(Decimal, ("700", "999", "9999", "99999", "999999", "9999999", "999.99", "9999.99", "99999.99"))
)

# The lowest spot prices seen, $0.077 for an L4 and $0.012 for a core, are several times these limits. They do
# not apply to a price that a person gave a pool: it may be the cost of electricity.
MIN_USD_PER_CORE_HOUR = Decimal("0.0005")
MIN_USD_PER_GPU_HOUR = Decimal("0.02")

# Spot prices of one machine differ between regions and days by a factor of 5 at most. A price for a minute is
# a sixtieth.
MIN_KNOWN_SHARE = 15

# On-demand prices of one machine differ between regions by half at most. Lists that add up the prices of a
# machine's parts give a GPU machine the price of its cores in regions without its GPUs: GCP's eight A100 cost
# $6.51 an hour in one region of such a list, and from $29.39 in all others.
MIN_REGION_RATIO = Decimal("0.5")
MIN_REGIONS = 5

MAX_AHEAD = timedelta(days=1)
"""How far a row or an exchange rate may be dated in the future: the day that ended where the list was made
may not have begun here.
"""


@dataclass(frozen=True, slots=True)
class MachineSize:
    """The size of a machine, and the lowest hourly price that is known of it. None where it is unknown."""

    cores: float | None
    gpus: int | None
    lowest_usd: Decimal | None = None


def validate_rows(
    rows: Sequence[PriceRow],
    size_of: Callable[[PriceRow], MachineSize],
    max_days: Callable[[PriceRow], int | None],
    today: date,
) -> tuple[list[PriceRow], list[RejectedPrice]]:
    """Return the accepted rows, sorted by key, with the newest row of each key, and the rejected rows with
    reasons.

    `size_of` returns the size of a row's machine, and `max_days` how many days old the row may be.
    """
    reasons = [_row_error(row, size_of(row)) or date_error(row, max_days(row), today) for row in rows]
    _reject_duplicates(rows, reasons, spot=False)
    _reject_spot_above_on_demand(rows, reasons)
    _reject_duplicates(rows, reasons, spot=True)
    accepted: dict[tuple[str, ...], PriceRow] = {}
    for row, reason in zip(rows, reasons, strict=True):
        if not reason and (row.key not in accepted or accepted[row.key].listed < row.listed):
            accepted[row.key] = row
    rejected = [
        RejectedPrice(row=row.description, reason=reason)
        for row, reason in zip(rows, reasons, strict=True)
        if reason
    ]
    return [accepted[key] for key in sorted(accepted)], rejected


def regional_outliers(rows: Sequence[PriceRow]) -> dict[int, str]:
    """Return index -> reason for rows whose price is far below the price of the same machine in other
    regions.

    The other markets of such a row's machine and region are rejected with its on-demand price.
    """
    by_machine: dict[tuple[str, ...], list[tuple[int, Decimal]]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.market is Market.ON_DEMAND and row.region and not row.pool:
            by_machine[row.provider.lower(), row.machine.lower()].append((index, row.usd_per_hour))
    reasons: dict[int, str] = {}
    for prices in by_machine.values():
        if len({rows[index].region for index, _ in prices}) < MIN_REGIONS:
            continue
        usual = median(price for _, price in prices)
        for index, price in prices:
            if 0 < price < usual * MIN_REGION_RATIO:
                reasons[index] = (
                    f"${price} an hour is less than half of the median ${usual} of its regions, "
                    "as if a part of the machine were missing"
                )
    outliers = {(rows[index].key[1:3], rows[index].key[4]): reason for index, reason in reasons.items()}
    return reasons | {
        index: f"its on-demand price was rejected: {outliers[row.key[1:3], row.key[4]]}"
        for index, row in enumerate(rows)
        if row.market is not Market.ON_DEMAND and not row.pool and (row.key[1:3], row.key[4]) in outliers
    }


def _row_error(row: PriceRow, size: MachineSize) -> str:
    price = row.usd_per_hour
    if price <= 0:
        return f"${price} an hour is not a price: {row.name} is not free"
    if price in PLACEHOLDERS:
        return f"${price} an hour is a placeholder, not a price: price lists write it for 'unknown'"
    if error := _gpu_error(row, size):
        return error
    if size.lowest_usd is not None and price * MIN_KNOWN_SHARE < size.lowest_usd:
        return (
            f"${price} an hour is less than 1/{MIN_KNOWN_SHARE} of ${size.lowest_usd}, "
            "the lowest price known of this machine: it may be a price for a minute or for a core"
        )
    if size.cores is None:
        return ""
    cores, gpus = Decimal(str(size.cores)), size.gpus or 0
    machine = f"{size.cores:g} cores and {gpus} GPUs"
    max_usd = cores * MAX_USD_PER_CORE_HOUR + gpus * MAX_USD_PER_GPU_HOUR
    if price > max_usd:
        return f"${price} an hour is a placeholder, not a price: {machine} cost less than ${max_usd:f}"
    min_usd = cores * MIN_USD_PER_CORE_HOUR + gpus * MIN_USD_PER_GPU_HOUR
    if not row.pool and price < min_usd:
        return f"${price} an hour is too low for a price: {machine} cost more than ${min_usd:f}"
    return ""


def _gpu_error(row: PriceRow, size: MachineSize) -> str:
    """Return why the row's GPUs are inconsistent. Without GPUs in the row, a GPU machine gets the price of
    its cores.
    """
    if row.gpu and row.gpu_count is None:
        return f"it names a GPU, {row.gpu}, without a count: write how many the machine has as `gpu_count`"
    if row.gpu and row.gpu_count == 0:
        return f"it names a GPU, {row.gpu}, but counts none"
    if row.gpu_count and not row.gpu and not row.pool:
        return f"it counts {row.gpu_count} GPUs but names none"
    if row.gpu_count is not None and size.gpus is not None and row.gpu_count != size.gpus:
        priced = row.machine or row.pool
        return f"it counts {row.gpu_count} GPUs, but the {priced} that it prices has {size.gpus}"
    return ""


def date_error(row: PriceRow, max_days: int | None, today: date) -> str:
    """Return why a row of this date is not used; empty: it is."""
    if row.listed > today + MAX_AHEAD:
        return f"it is dated {row.listed}, and today is {today}"
    if row.rate_on and row.rate_on > today + MAX_AHEAD:
        return f"its exchange rate is dated {row.rate_on}, and today is {today}: correct it in `rates`"
    days = (today - row.as_of).days
    if max_days is not None and days > max_days:
        return f"it is {days} days old, and {row.market} prices are accepted for {max_days} days"
    return ""


def _reject_duplicates(rows: Sequence[PriceRow], reasons: list[str], *, spot: bool) -> None:
    """Reject rows of the same key and day: all of them if their prices differ, else all but the first.

    `spot`: check the spot rows, or those of the other markets.
    """
    days: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if not reasons[index] and (row.market is Market.SPOT) is spot:
            days[(*row.key, row.listed)].append(index)
    for same_day in days.values():
        first = rows[same_day[0]]
        prices = sorted({rows[index].usd_per_hour for index in same_day})
        if len(prices) > 1:
            listed = ", ".join(f"${price}" for price in prices)
            for index in same_day:
                reasons[index] = f"rows for {first.name} {first.market} disagree: {listed}; keep one"
        else:
            for index in same_day[1:]:
                reasons[index] = f"it repeats another row: ${prices[0]} on {first.listed}"


def _reject_spot_above_on_demand(rows: Sequence[PriceRow], reasons: list[str]) -> None:
    newest: dict[tuple[str, ...], PriceRow] = {}
    for row, reason in zip(rows, reasons, strict=True):
        target = row.key[:-1]
        is_newer = target not in newest or newest[target].listed < row.listed
        if row.market is Market.ON_DEMAND and not reason and is_newer:
            newest[target] = row
    for index, row in enumerate(rows):
        if row.market is not Market.SPOT or reasons[index]:
            continue
        # A list may sell on-demand by region and spot by zone.
        of_region = (*row.key[:3], "", row.key[4])
        on_demand = newest.get(row.key[:-1]) or newest.get(of_region)
        if on_demand:
            reasons[index] = spot_error(row, on_demand.usd_per_hour)


def spot_error(spot: PriceRow, on_demand_usd: Decimal) -> str:
    """Return why a spot price is rejected against an on-demand price; an empty string if it is accepted."""
    if spot.usd_per_hour < on_demand_usd:
        return ""
    return f"spot at ${spot.usd_per_hour} an hour is not below on-demand at ${on_demand_usd}"
