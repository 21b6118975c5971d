"""What machines cost at each moment, and when spot machines are taken away: as made by chance, or as recorded."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from shoestring.backends.local import FilePrices, WorldFile
from shoestring.config.world import PriceBook
from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Market, Pool, Quote
from shoestring.simulation.scenario import MarketModel
from shoestring.simulation.traces import RecordedMarket, load_trace
from shoestring.spending.meter import cost_usd

# A walk stays between these shares of where it began, and below on-demand.
MIN_WALK_FACTOR, MAX_WALK_FACTOR = 0.25, 4.0
MAX_SHARE_OF_ON_DEMAND = 0.99


class SimulatedMarket:
    """Prices by step, the same for everybody. Seconds are from the beginning of the simulation."""

    def __init__(self, model: MarketModel, file: WorldFile, starts_at: datetime, seed: int) -> None:
        self._model, self._starts_at, self._seed = model, starts_at, seed
        self._first = FilePrices(file).book()
        self._pools = {pool.name: pool for pool in file.pools}
        self._prices = {
            (quote.pool, quote.market): microusd(quote.usd_per_hour) for quote in self._first.quotes
        }
        self._recorded: RecordedMarket | None = (
            load_trace(model, file.pools, starts_at) if model.trace else None
        )
        self._walks: dict[str, tuple[Random, list[float]]] = {}
        self._books: dict[int, PriceBook] = {}

    def step(self, at_s: float) -> int:
        return max(0, int(at_s // self._model.step_s))

    def book(self, at_s: float) -> PriceBook:
        """What the provider says then, as of that day."""
        step = self.step(at_s)
        if step not in self._books:
            day = (self._starts_at + timedelta(seconds=step * self._model.step_s)).date()
            quotes = tuple(
                Quote(
                    pool=quote.pool,
                    market=quote.market,
                    usd_per_hour=from_microusd(self.micro(quote.pool, quote.market, step)),
                    as_of=day,
                    source="simulated",
                )
                for quote in self._first.quotes
            )
            self._books = {
                step: PriceBook(quotes, self._first.rejected, self._first.tariffs, self._first.committed)
            }
        return self._books[step]

    def micro(self, pool: str, market: Market, step: int) -> int:
        """Micro-dollars an hour in a step."""
        first = self._prices[pool, market]
        if (
            self._recorded
            and (found := self._recorded.micro(pool, market, first, step * self._model.step_s)) is not None
        ):
            return found
        if market is not Market.SPOT or not self._model.log_sd_per_day:
            return first
        walked = round(first * math.exp(self._walk(pool, step)))
        on_demand = self._prices.get((pool, Market.ON_DEMAND))
        return walked if on_demand is None else min(walked, int(on_demand * MAX_SHARE_OF_ON_DEMAND))

    def _walk(self, pool: str, step: int) -> float:
        dice, path = self._walks.setdefault(pool, (Random(f"{self._seed}/price/{pool}"), [0.0]))
        sd = self._model.log_sd_per_day * math.sqrt(self._model.step_s / 86400)
        while len(path) <= step:
            path.append(
                min(max(path[-1] + dice.gauss(0, sd), math.log(MIN_WALK_FACTOR)), math.log(MAX_WALK_FACTOR))
            )
        return path[step]

    def next_price_change_s(self, market: Market, at_s: float) -> float:
        """When a price may move next; infinity: never."""
        moving = self._recorded is not None or (market is Market.SPOT and self._model.log_sd_per_day > 0)
        return (self.step(at_s) + 1) * self._model.step_s if moving else math.inf

    def bill_usd(self, pool: str, market: Market, from_s: float, to_s: float) -> Decimal:
        """What the provider asks for a whole machine over this time, as its price moved."""
        total, at_s = Decimal(0), from_s
        while at_s < to_s:
            step = self.step(at_s)
            ends_s = min(to_s, (step + 1) * self._model.step_s)
            total += cost_usd(from_microusd(self.micro(pool, market, step)), ends_s - at_s)
            at_s = ends_s
        return total

    def is_available(self, pool: str, market: Market, at_s: float) -> bool:
        """Whether a machine can be had now; on demand always."""
        return market is not Market.SPOT or self._recorded is None or self._recorded.is_available(pool, at_s)

    def preempted_s(self, pool: Pool, market: Market, from_s: float, dice: Random) -> float:
        """When a machine that is had from then on is taken away again; infinity: never."""
        if market is not Market.SPOT:
            return math.inf
        if self._recorded and pool.name in self._recorded.zones:
            return self._recorded.preempted_s(pool.name, from_s)
        an_hour = pool.markets[market].preemptions_per_hour * self._model.preemption_factor
        return from_s + until_next_s(an_hour, dice)


def until_next_s(an_hour: float, dice: Random) -> float:
    """When what happens so often an hour, at random, happens next; infinity: never."""
    a_second = an_hour / 3600
    return dice.expovariate(a_second) if a_second else math.inf
