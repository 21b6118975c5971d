"""Quotes of an earlier question, with the prices of now: a stage's pod may not read a new price book."""

from __future__ import annotations

from shoestring.config.world import World
from shoestring.core.money import usd
from shoestring.core.types import Quote
from shoestring.routing.question import Question


def current_quote(world: World, question: Question, quote: Quote) -> Quote:
    """Return a quote of the question with its current price; unchanged where that or its pool is unknown."""
    pools = [pool for pool in question.pools if pool.name == quote.pool]
    usd_per_hour = world.prices.current_usd_per_hour(quote, pools[0]) if pools else None
    return quote.model_copy(update={"usd_per_hour": usd(usd_per_hour)}) if usd_per_hour else quote
