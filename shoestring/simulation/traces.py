"""Read recorded markets from a folder with two CSV files, or from one CSV file of price changes.

The files are plain or compressed (.gz).

    availability.csv    tick,ZONE,...       1, true or a number of machines = spot capacity was available,
                                            0 or false = none; one row each `tick_s`
    prices.csv          tick,ZONE,...       spot dollars an hour by tick; constant: zone,spot_usd_per_hour
    changes.csv         from_date,machine_type,region,market,usd_per_hour

The machines of a zone need not be those of the pool: from a folder, a pool's own spot price follows the
relative changes of its zone. Prices of a changes file are used unchanged; they apply to the pool with that
name and region. A recording that ends starts again.
"""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TextIO

from shoestring.core.errors import WorldError
from shoestring.core.money import microusd, usd
from shoestring.core.types import Market, Pool
from shoestring.simulation.scenario import MarketModel

CHANGE_FIELDS = ("from_date", "machine_type", "region", "market", "usd_per_hour")


@dataclass(frozen=True, slots=True)
class RecordedMarket:
    """A recorded market.

    `zones`: pool -> availability by tick. `price_factors`: pool -> price by tick, divided by the first
    price. `changes`: pool and market -> dates with their prices in micro-dollars an hour.
    """

    starts_at: datetime
    tick_s: float = 1.0
    zones: dict[str, Sequence[bool]] = field(default_factory=dict)
    price_factors: dict[str, Sequence[float]] = field(default_factory=dict)
    changes: dict[tuple[str, Market], list[tuple[date, int]]] = field(default_factory=dict)

    def is_available(self, pool: str, at_s: float) -> bool:
        """Return True if spot machines of the pool are available at this time, or if nothing is recorded
        for it.
        """
        ticks = self.zones.get(pool)
        return ticks is None or ticks[int(at_s // self.tick_s) % len(ticks)]

    def preempted_s(self, pool: str, from_s: float) -> float:
        """Return the start of the next tick without availability; infinity if there is none."""
        ticks, first = self.zones[pool], int(from_s // self.tick_s)
        gone = (tick for tick in range(first, first + len(ticks)) if not ticks[tick % len(ticks)])
        return max(from_s, next(gone, float("inf")) * self.tick_s)

    def micro(self, pool: str, market: Market, first: int, at_s: float) -> int | None:
        """Return the price in micro-dollars an hour, given the first price; None if nothing is recorded."""
        if market is Market.SPOT and (price_factors := self.price_factors.get(pool)):
            return max(1, round(first * price_factors[int(at_s // self.tick_s) % len(price_factors)]))
        if known := self.changes.get((pool, market)):
            today = (self.starts_at + timedelta(seconds=at_s)).date()
            return known[max(0, bisect_right(known, (today, 1 << 62)) - 1)][1]
        return None


def load_trace(model: MarketModel, pools: Sequence[Pool], starts_at: datetime) -> RecordedMarket:
    """Read the recording for these pools. Raises WorldError if it is missing or invalid."""
    assert model.trace is not None
    if not model.trace.is_dir():
        return RecordedMarket(starts_at, changes=_changes(model.trace, pools, starts_at))
    if not model.zones:
        raise WorldError(f"{model.trace}: name the zone of each pool in the scenario, under market.zones")
    availability = _table(_file(model.trace, "availability.csv"))
    zones: dict[str, Sequence[bool]] = {
        pool: [_has_capacity(value, model.trace) for value in _column(availability, zone, model.trace)]
        for pool, zone in model.zones.items()
    }
    prices = _table(_file(model.trace, "prices.csv"))
    price_factors: dict[str, Sequence[float]] = {}
    if "tick" in prices[0]:
        for pool, zone in model.zones.items():
            column = [float(_price(value, model.trace)) for value in _column(prices, zone, model.trace)]
            price_factors[pool] = [value / column[0] for value in column]
    return RecordedMarket(starts_at, model.tick_s, zones, price_factors)


def _changes(
    path: Path, pools: Sequence[Pool], starts_at: datetime
) -> dict[tuple[str, Market], list[tuple[date, int]]]:
    rows, regions = _table(path), {pool.name: pool.region for pool in pools}
    if missing := [name for name in CHANGE_FIELDS if name not in rows[0]]:
        raise WorldError(
            f"{path} has no column {', '.join(missing)}; price changes have {', '.join(CHANGE_FIELDS)}"
        )
    found: dict[tuple[str, Market], list[tuple[date, int]]] = {}
    for row in rows:
        if regions.get(row["machine_type"]) == row["region"]:
            try:
                key, since = (
                    (row["machine_type"], Market(row["market"])),
                    date.fromisoformat(row["from_date"]),
                )
            except ValueError as error:
                raise WorldError(f"{path}: {error}") from None
            found.setdefault(key, []).append((since, microusd(_price(row["usd_per_hour"], path))))
    if not found:
        raise WorldError(f"{path} has no price of {', '.join(sorted(regions))} in their regions")
    first, last = (pick(since for changes in found.values() for since, _ in changes) for pick in (min, max))
    if last < starts_at.date():
        raise WorldError(
            f"{path} ends on {last}, before the simulation starts on {starts_at.date()}, so no price would "
            f"change; start between {first} and {last}, with --from or starts_at of the scenario"
        )
    return {key: sorted(changes) for key, changes in found.items()}


def _has_capacity(text: str, path: Path) -> bool:
    machines = {"true": 1.0, "false": 0.0}.get(text.strip().lower())
    if machines is None:
        with suppress(ValueError):
            machines = float(text)
    if machines is None or not machines.is_integer() or machines < 0:
        raise WorldError(
            f"{path}: {text!r} is not an availability: write 1 or true where there was spot capacity, 0 or "
            "false where there was none, or how many machines there were"
        )
    return machines > 0


def _price(text: str, path: Path) -> Decimal:
    try:
        amount_usd = usd(Decimal(text))
    except (ValueError, InvalidOperation):
        amount_usd = Decimal(0)
    if amount_usd <= 0:
        raise WorldError(f"{path}: {text!r} is not a price")
    return amount_usd


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise WorldError(
        f"there is no {name} in {folder}: a recorded market needs availability.csv and prices.csv"
    )


def _opened(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _table(path: Path) -> list[dict[str, str]]:
    try:
        with _opened(path) as file:
            rows = list(csv.DictReader(file, skipinitialspace=True, restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WorldError(f"cannot read {path}: {error}") from None
    if not rows:
        raise WorldError(f"{path} has no rows")
    return rows


def _column(rows: list[dict[str, str]], zone: str, path: Path) -> Iterator[str]:
    if zone not in rows[0]:
        raise WorldError(
            f"{path} has no zone {zone}; it has: {', '.join(name for name in rows[0] if name != 'tick')}"
        )
    return (row[zone] for row in rows)
