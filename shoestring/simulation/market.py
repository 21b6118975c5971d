"""Simulate prices and spot preemptions: random, or replayed from a recording."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from shoestring.backends.local import FilePrices, WorldFile
from shoestring.config.world import PriceBook
from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Market, Pool, Quote
from shoestring.pricing.price_book import committed_hours
from shoestring.routing.policy.start_time import price_factor
from shoestring.simulation.event_loop import EventLoop
from shoestring.simulation.scenario import MarketModel
from shoestring.simulation.traces import RecordedMarket, load_trace
from shoestring.spending.meter import cost_usd

# A random walk stays between these multiples of its first price, and below the on-demand price.
MIN_WALK_FACTOR, MAX_WALK_FACTOR = 0.25, 4.0
MAX_SHARE_OF_ON_DEMAND = 0.99


class SimulatedMarket:
    """Prices by time step. Times are seconds from the start of the simulation."""

    def __init__(self, model: MarketModel, file: WorldFile, starts_at: datetime, seed: int) -> None:
        self._model, self._starts_at, self._seed = model, starts_at, seed
        self._first, self._file = FilePrices(file).book(), file
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
        """Return the number of the price step at this time."""
        return max(0, int(at_s // self._model.step_s))

    def book(self, at_s: float) -> PriceBook:
        """Return the provider's price book at this time."""
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
            committed, _ = committed_hours(self._file.commitments, self._file.pools, quotes, day)
            self._books = {step: PriceBook(quotes, self._first.rejected, self._first.tariffs, committed)}
        return self._books[step]

    def micro(self, pool: str, market: Market, step: int) -> int:
        """Return the price in a step, in micro-dollars an hour."""
        first = self._prices[pool, market]
        if (
            self._recorded
            and (found := self._recorded.micro(pool, market, first, step * self._model.step_s)) is not None
        ):
            return found
        if market is not Market.SPOT or not self._varies:
            return first
        moment = self._starts_at + timedelta(seconds=step * self._model.step_s)
        walk = self._walk(pool, step) if self._model.log_sd_per_day else 0.0
        walked = max(1, round(first * math.exp(walk) * price_factor(self._model.windows, moment)))
        on_demand = self._prices.get((pool, Market.ON_DEMAND))
        return walked if on_demand is None else min(walked, int(on_demand * MAX_SHARE_OF_ON_DEMAND))

    @property
    def _varies(self) -> bool:
        return self._model.log_sd_per_day > 0 or bool(self._model.windows)

    def _walk(self, pool: str, step: int) -> float:
        rng, path = self._walks.setdefault(pool, (Random(f"{self._seed}/price/{pool}"), [0.0]))
        sd = self._model.log_sd_per_day * math.sqrt(self._model.step_s / 86400)
        while len(path) <= step:
            path.append(
                min(max(path[-1] + rng.gauss(0, sd), math.log(MIN_WALK_FACTOR)), math.log(MAX_WALK_FACTOR))
            )
        return path[step]

    def next_price_change_s(self, market: Market, at_s: float) -> float:
        """Return the time of the next possible price change; infinity if prices are constant."""
        varies = self._recorded is not None or (market is Market.SPOT and self._varies)
        return (self.step(at_s) + 1) * self._model.step_s if varies else math.inf

    def bill_usd(self, pool: str, market: Market, from_s: float, to_s: float) -> Decimal:
        """Return what the provider bills for a whole machine over this time, at its changing prices."""
        total, at_s = Decimal(0), from_s
        while at_s < to_s:
            step = self.step(at_s)
            ends_s = min(to_s, (step + 1) * self._model.step_s)
            total += cost_usd(from_microusd(self.micro(pool, market, step)), ends_s - at_s)
            at_s = ends_s
        return total

    def is_available(self, pool: str, market: Market, at_s: float) -> bool:
        """Return True if a machine is available at this time. On-demand machines always are."""
        return market is not Market.SPOT or self._recorded is None or self._recorded.is_available(pool, at_s)

    def preempted_s(self, pool: Pool, market: Market, from_s: float, rng: Random) -> float:
        """Return the time at which a machine acquired at `from_s` is preempted; infinity if never."""
        if market is not Market.SPOT:
            return math.inf
        if self._recorded and pool.name in self._recorded.zones:
            return self._recorded.preempted_s(pool.name, from_s)
        rate_per_hour = pool.markets[market].preemptions_per_hour * self._model.preemption_factor
        return from_s + until_next_s(rate_per_hour, rng)


class SimulatedPrices:
    """The prices of the market at the current simulated time."""

    def __init__(self, market: SimulatedMarket, loop: EventLoop) -> None:
        self._market, self._loop = market, loop

    def book(self) -> PriceBook:
        return self._market.book(self._loop.now_s)

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return next(
            (
                each.usd_per_hour
                for each in self.book().quotes
                if (each.pool, each.market) == (quote.pool, quote.market)
            ),
            None,
        )

    def charged_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return self.current_usd_per_hour(quote, pool)


def until_next_s(rate_per_hour: float, rng: Random) -> float:
    """Draw the seconds until the next event of a Poisson process; infinity at a rate of 0."""
    rate_per_s = rate_per_hour / 3600
    return rng.expovariate(rate_per_s) if rate_per_s else math.inf
