"""On what terms a stage runs now: the price in force and the money that it may spend, which the frame hears of and tells its child."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from shoestring.core.money import Usd, usd
from shoestring.core.record import Record, record_bytes
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.spending.meter import Meter

LIMITS_FILE = "terms.json"
READ_EVERY_S = 0.1


class SpendLimits(Record):
    """`terms.json` of a stage's scratch folder. `moves` are a Meter's."""

    limit_usd: Usd
    moves: tuple[tuple[float, Usd], ...] = ()
    deadline_s: float | None = None


def update_price(attempt: Attempt) -> None:
    """Go by the price of now from now on, on a market whose price moves. What the files say of the past is not looked for."""
    choice, question = attempt.choice, attempt.decision.question
    if choice.market not in attempt.world.policy.floating_markets:
        return
    quote = next(
        (each for each in question.quotes if (each.pool, each.market) == (choice.pool, choice.market)), None
    )
    pool = next((each for each in question.pools if each.name == choice.pool), None)
    now_usd = attempt.world.prices.current_usd_per_hour(quote, pool) if quote and pool else None
    if quote is None or now_usd is None:
        return
    # What was decided may be less than was quoted: a discount holds for the price of now, too.
    usd_per_hour = usd(choice.usd_per_hour * now_usd / quote.usd_per_hour)
    if usd_per_hour != attempt.usd_per_hour:
        attempt.rate_changes += ((attempt.world.clock.monotonic_s(), usd_per_hour),)


def send_limits(attempt: Attempt, scratch: Path) -> None:
    """Tell the child, if anything has changed. On a disk that is full it is told the next time."""
    meter = attempt.meter()
    terms = (max(Decimal(0), meter.limit_usd), attempt.rate_changes, meter.deadline_s)
    if terms != attempt.sent_limits:
        with suppress(OSError):
            write_whole(scratch / LIMITS_FILE, record_bytes(SpendLimits(limit_usd=terms[0], moves=terms[1], deadline_s=terms[2])))
            attempt.sent_limits = terms


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of a scratch folder, whole or not at all."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(data)
    temporary.replace(path)


class LimitsReader:
    """Brings a child's meter to the terms of its frame, again and again."""

    def __init__(self, path: Path, meter: Meter) -> None:
        self._path, self._meter, self._heard = path, meter, b""
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self) -> None:
        said = self._path.read_bytes() if self._path.exists() else b""
        if said != self._heard:
            terms, self._heard = SpendLimits.model_validate_json(said), said
            self._meter.update(terms.limit_usd, terms.moves, terms.deadline_s)

    def _listen(self) -> None:
        while True:
            self.hear()
            time.sleep(READ_EVERY_S)
