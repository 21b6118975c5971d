"""Why a row of a price list is not believed: each reason a sentence with its numbers.

A row is looked at by itself, then beside those that speak of the same thing, then spot beside on-demand. Only what is still believed
is compared: a placeholder does not make its neighbour a liar.
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

# Catalogs write 700.0 for "unknown" beside a TPU machine of 44 cores at 2.70; others a row of nines. The dearest list prices of 2026
# are about $14 for a GPU-hour and $0.15 for a core-hour; several times that is no price.
MAX_USD_PER_CORE_HOUR = Decimal("2.50")
MAX_USD_PER_GPU_HOUR = Decimal("100")
PLACEHOLDERS = frozenset(
    map(Decimal, ("700", "999", "9999", "99999", "999999", "9999999", "999.99", "9999.99", "99999.99"))
)

# The cheapest spot prices seen, $0.077 for an L4 and $0.012 for a core, are several times these. Of a price that a person gave a pool
# of theirs nobody can tell: it may be the electricity.
MIN_USD_PER_CORE_HOUR = Decimal("0.0005")
MIN_USD_PER_GPU_HOUR = Decimal("0.02")

# On-demand prices of one machine differ between regions by half at most. Lists that add up a machine's parts have a GPU machine at the
# price of its cores where its GPUs are not sold: GCP's eight A100 at $6.51 an hour in one region, and from $29.39 in all others.
MIN_REGION_RATIO = Decimal("0.5")
MIN_REGIONS = 5

# A day that is over where the list was made may not have begun here.
MAX_AHEAD = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class MachineSize:
    """What a machine is, as far as it is known."""

    cores: float | None
    gpus: int | None


def validate_rows(
    rows: Sequence[PriceRow],
    body: Callable[[PriceRow], MachineSize],
    most_days: Callable[[PriceRow], int | None],
    today: date,
) -> tuple[list[PriceRow], list[RejectedPrice]]:
    """The rows that are believed, at most one of a key, the newest; and those that are not, each with why. Sorted by key.

    `body` and `most_days` say what is known of a row's machine, and how many days old it may be.
    """
    doubts = [_row_error(row, body(row)) or _date_error(row, most_days(row), today) for row in rows]
    _reject_duplicates(rows, doubts, spot=False)
    _reject_spot_above_on_demand(rows, doubts)
    _reject_duplicates(rows, doubts, spot=True)
    kept: dict[tuple[str, ...], PriceRow] = {}
    for row, why in zip(rows, doubts, strict=True):
        if not why and (row.key not in kept or kept[row.key].as_of < row.as_of):
            kept[row.key] = row
    return [kept[key] for key in sorted(kept)], [
        RejectedPrice(row=row.description, reason=why) for row, why in zip(rows, doubts, strict=True) if why
    ]


def regional_outliers(rows: Sequence[PriceRow]) -> dict[int, str]:
    """By index, why rows are not believed beside what their list asks for the machine in other regions; spot with its on-demand."""
    asked: dict[tuple[str, ...], list[tuple[int, Decimal]]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.market is Market.ON_DEMAND and row.region and not row.pool:
            asked[row.provider.lower(), row.machine.lower()].append((index, row.usd_per_hour))
    doubts: dict[int, str] = {}
    for prices in asked.values():
        if len({rows[index].region for index, _ in prices}) < MIN_REGIONS:
            continue
        usual = median(price for _, price in prices)
        for index, price in prices:
            if 0 < price < usual * MIN_REGION_RATIO:
                doubts[index] = (
                    f"${price} an hour is less than half of the ${usual} that its other regions ask, as if a part were missing"
                )
    odd = {(rows[index].key[1:3], rows[index].key[4]): why for index, why in doubts.items()}
    return doubts | {
        index: f"on-demand beside it is not believed: {odd[row.key[1:3], row.key[4]]}"
        for index, row in enumerate(rows)
        if row.market is not Market.ON_DEMAND and not row.pool and (row.key[1:3], row.key[4]) in odd
    }


def _row_error(row: PriceRow, body: MachineSize) -> str:
    price = row.usd_per_hour
    if price <= 0:
        return f"${price} an hour is not a price: nobody gives {row.name} away"
    if price in PLACEHOLDERS:
        return f"${price} an hour is a placeholder, not a price: lists write it for 'unknown'"
    if why := _gpu_error(row, body):
        return why
    if body.cores is None:
        return ""
    gpus, known = body.gpus or 0, f"{body.cores:g} cores and {body.gpus or 0} GPUs"
    ceiling_usd = Decimal(str(body.cores)) * MAX_USD_PER_CORE_HOUR + gpus * MAX_USD_PER_GPU_HOUR
    if price > ceiling_usd:
        return f"${price} an hour is a placeholder, not a price: {known} cost less than ${ceiling_usd:f}"
    floor_usd = Decimal(str(body.cores)) * MIN_USD_PER_CORE_HOUR + gpus * MIN_USD_PER_GPU_HOUR
    if not row.pool and price < floor_usd:
        return f"${price} an hour is too little to be a price: {known} cost more than ${floor_usd:f}"
    return ""


def _gpu_error(row: PriceRow, body: MachineSize) -> str:
    """A benchmark of a machine of eight GPUs once ran on its cores, since its list said nothing of them."""
    if row.gpu and row.gpu_count == 0:
        return f"it names a GPU, {row.gpu}, and counts none"
    if row.gpu_count and not row.gpu and not row.pool:
        return f"it counts {row.gpu_count} GPUs and names none"
    if row.gpu_count is not None and body.gpus is not None and row.gpu_count != body.gpus:
        return f"it counts {row.gpu_count} GPUs, and the {row.machine or row.pool} that it would price has {body.gpus}"
    return ""


def _date_error(row: PriceRow, most_days: int | None, today: date) -> str:
    if row.as_of > today + MAX_AHEAD:
        return f"it is dated {row.as_of}, and today is {today}"
    days = (today - row.as_of).days
    if most_days is not None and days > most_days:
        return f"it is {days} days old, and {row.market} prices are believed for {most_days}"
    return ""


def _reject_duplicates(rows: Sequence[PriceRow], doubts: list[str], *, spot: bool) -> None:
    """Rows of one key and day, of spot or of the other markets: the same price twice is one, two prices are none."""
    days: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if not doubts[index] and (row.market is Market.SPOT) is spot:
            days[(*row.key, row.as_of)].append(index)
    for alike in days.values():
        prices = sorted({rows[index].usd_per_hour for index in alike})
        first = rows[alike[0]]
        for index in alike if len(prices) > 1 else alike[1:]:
            disagree = f"rows for {first.name} {first.market} disagree: {', '.join(f'${price}' for price in prices)}; keep one"
            doubts[index] = (
                disagree
                if len(prices) > 1
                else f"it says again what another row says: ${prices[0]} on {first.as_of}"
            )


def _reject_spot_above_on_demand(rows: Sequence[PriceRow], doubts: list[str]) -> None:
    newest: dict[tuple[str, ...], PriceRow] = {}
    for row, why in zip(rows, doubts, strict=True):
        if (
            row.market is Market.ON_DEMAND
            and not why
            and (row.key[:-1] not in newest or newest[row.key[:-1]].as_of < row.as_of)
        ):
            newest[row.key[:-1]] = row
    for index, row in enumerate(rows):
        if row.market is not Market.SPOT or doubts[index]:
            continue
        # A list may sell on-demand by region and spot by zone.
        of_region = (*row.key[:3], "", row.key[4])
        above = newest.get(row.key[:-1]) or newest.get(of_region)
        if above:
            doubts[index] = spot_error(row, above.usd_per_hour)


def spot_error(spot: PriceRow, on_demand_usd: Decimal) -> str:
    """Why a spot price is not believed beside an on-demand price; empty when it is."""
    if spot.usd_per_hour < on_demand_usd:
        return ""
    return f"spot at ${spot.usd_per_hour} an hour is not below on-demand at ${on_demand_usd}"
