"""Who used how much of the hours that are paid for: claims in the store, each hour claimed once, however many attempts end at a time.

An attempt claims when it is settled: what it took, as far as anything is left. A claim is the next of a numbered row of objects, put if
absent, and holds the sum of all before it; so no two attempts are given the same hour. What is not claimed (a pod that died without a
word, a store that was away, minutes that a pod's own times add) is paid at the ordinary price: books never hold less than the bill.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from decimal import ROUND_DOWN, Decimal

from pydantic import Field

from shoestring.config.world import CommittedHours
from shoestring.core.errors import DataError, NotInStore, StoreError
from shoestring.core.interfaces import Store
from shoestring.core.money import MICRO
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import Record, record_bytes
from shoestring.data.run_records import read_record
from shoestring.routing.candidates import MS_PER_HOUR
from shoestring.routing.decision import Decision

COMMITMENTS = "commitments/"
MAX_HOURS = 1e9


class HoursClaim(Record):
    """`commitments/NAME/MONTH/NUMBER.json`. `total_claimed_ms`: machine-milliseconds of this claim and all before it."""

    number: int = Field(ge=1)
    run_id: str
    hold: str
    pod: PodRef
    claimed_ms: int = Field(gt=0)
    total_claimed_ms: int = Field(gt=0)


def claim_key(name: str, month: str, number: int) -> str:
    return f"{COMMITMENTS}{name}/{month}/{number:09d}.json"


def last_claim(store: Store, name: str, month: str) -> HoursClaim | None:
    """A store may list late, so what follows is asked for by its number. Raises StoreError."""
    keys = list(store.list(f"{COMMITMENTS}{name}/{month}/"))
    last = read_record(store, keys[-1], HoursClaim) if keys else None
    with suppress(NotInStore):
        while True:
            last = read_record(store, claim_key(name, month, last.number + 1 if last else 1), HoursClaim)
    return last


def with_used_hours(store: Store, committed: Iterable[CommittedHours]) -> tuple[CommittedHours, ...]:
    """With what is claimed of each by now. Raises StoreError."""
    found = tuple(committed)
    used_hours = {place: _used_hours(store, *place) for place in {(each.name, each.month) for each in found}}
    return tuple(each.model_copy(update={"used_hours": used_hours[each.name, each.month]}) for each in found)


def _used_hours(store: Store, name: str, month: str) -> float:
    """All of them, where the claims cannot be read."""
    try:
        last = last_claim(store, name, month)
    except DataError:
        return MAX_HOURS
    return last.total_claimed_ms / MS_PER_HOUR if last else 0.0


def claim_ms(store: Store, committed: CommittedHours, run_id: str, hold: str, pod: PodRef, ms: int) -> int:
    """Claim so many machine-milliseconds; as many as are this attempt's, and nobody else's. Raises StoreError: none may be counted on."""
    most_ms = int(committed.max_hours * MS_PER_HOUR)
    while True:
        last = last_claim(store, committed.name, committed.month)
        total_claimed_ms, number = (last.total_claimed_ms, last.number + 1) if last else (0, 1)
        mine_ms = min(ms, most_ms - total_claimed_ms)
        if mine_ms <= 0:
            return 0
        claim = HoursClaim(
            number=number, run_id=run_id, hold=hold, pod=pod, claimed_ms=mine_ms, total_claimed_ms=total_claimed_ms + mine_ms
        )
        if store.put(claim_key(committed.name, committed.month, number), record_bytes(claim), if_absent=True):
            return mine_ms


def committed_usd(store: Store, decision: Decision, pod: PodRef, took_usd: Decimal, took_s: float) -> Decimal:
    """What of an attempt's dollars a commitment has paid for: its share of the time that could be claimed, rounded down."""
    question, choice = decision.question, decision.choice
    committed = question.commitment(choice.pool, choice.market) if choice else None
    if committed is None or took_s <= 0:
        return Decimal(0)
    took_ms = max(1, int(took_s * 1000 * committed.hours_per_hour))
    with suppress(StoreError, DataError):
        mine_ms = claim_ms(store, committed, question.run_id, str(question.attempt_id), pod, took_ms)
        return (took_usd * mine_ms / took_ms).quantize(MICRO, rounding=ROUND_DOWN)
    return Decimal(0)
