"""Claims on prepaid machine-hours: each hour is claimed once, by one attempt.

An attempt claims hours when it is settled, as many as it used and as are left. A claim is the next object of
a numbered series. It is put only if absent, and holds the sum of all claims before it, so two attempts never
get the same hour.

Hours that no attempt claims are paid at the ordinary price: those of a pod that died without settling, those
used while the store was unreachable, and the minutes that a pod's own times add afterwards. So the ledger
never holds less than the bill.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from decimal import ROUND_DOWN, Decimal

from pydantic import Field

from shoestring.config.world import CommittedHours
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import DataError, NotInStore, StoreError
from shoestring.core.interfaces import Store
from shoestring.core.money import MICRO
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import Record, record_bytes
from shoestring.data.run_records import read_record
from shoestring.routing.candidates import MS_PER_HOUR
from shoestring.routing.decision import Decision

# Stands for "all hours are used" where the claims cannot be read.
MAX_HOURS = 1e9


class HoursClaim(Record):
    """One attempt's claim on a commitment of a month, in machine-milliseconds.

    `total_claimed_ms` is the sum of this claim and all claims before it.
    """

    number: int = Field(ge=1)
    run_id: str
    reservation: str
    pod: PodRef
    claimed_ms: int = Field(gt=0)
    total_claimed_ms: int = Field(gt=0)


def last_claim(store: Store, name: str, month: str) -> HoursClaim | None:
    """Return the newest claim; None: there is no claim. Raises StoreError.

    A store's listing may be late, so the claims that follow the last listed one are read by their numbers.
    """
    keys = list(store.list(store_layout.commitments(name, month)))
    last = read_record(store, keys[-1], HoursClaim) if keys else None
    with suppress(NotInStore):
        while True:
            number = last.number + 1 if last else 1
            last = read_record(store, store_layout.commitment_claim(name, month, number), HoursClaim)
    return last


def with_used_hours(store: Store, commitments: Iterable[CommittedHours]) -> tuple[CommittedHours, ...]:
    """Return the commitments with the hours that attempts have claimed so far. Raises StoreError."""
    found = tuple(commitments)
    used_hours = {key: _used_hours(store, *key) for key in {(each.name, each.month) for each in found}}
    return tuple(each.model_copy(update={"used_hours": used_hours[each.name, each.month]}) for each in found)


def _used_hours(store: Store, name: str, month: str) -> float:
    """Return the claimed hours of a month; MAX_HOURS where the claims cannot be read."""
    try:
        last = last_claim(store, name, month)
    except DataError:
        return MAX_HOURS
    return last.total_claimed_ms / MS_PER_HOUR if last else 0.0


def claim_ms(store: Store, committed: CommittedHours, attempt: AttemptId, pod: PodRef, ms: int) -> int:
    """Claim at most `ms` machine-milliseconds for an attempt; return how many it got.

    Raises StoreError: the claim may or may not be in the store, so the caller must not count on it.
    """
    max_ms = int(committed.max_hours * MS_PER_HOUR)
    while True:
        last = last_claim(store, committed.name, committed.month)
        claimed_before_ms, number = (last.total_claimed_ms, last.number + 1) if last else (0, 1)
        granted_ms = min(ms, max_ms - claimed_before_ms)
        if granted_ms <= 0:
            return 0
        claim = HoursClaim(
            number=number,
            run_id=attempt.run_id,
            reservation=str(attempt),
            pod=pod,
            claimed_ms=granted_ms,
            total_claimed_ms=claimed_before_ms + granted_ms,
        )
        key = store_layout.commitment_claim(committed.name, committed.month, number)
        if store.put(key, record_bytes(claim), if_absent=True):
            return granted_ms


def committed_usd(
    store: Store, decision: Decision, pod: PodRef, cost_usd: Decimal, seconds: float
) -> Decimal:
    """Return the part of an attempt's cost that a commitment has paid for.

    It is the claimed share of the attempt's time, rounded down to the micro-dollar. 0 where nothing could be
    claimed.
    """
    question, choice = decision.question, decision.choice
    committed = question.commitment(choice.pool, choice.market) if choice else None
    if committed is None or seconds <= 0:
        return Decimal(0)
    needed_ms = max(1, int(seconds * 1000 * committed.hours_per_hour))
    with suppress(StoreError, DataError):
        granted_ms = claim_ms(store, committed, question.attempt_id, pod, needed_ms)
        return (cost_usd * granted_ms / needed_ms).quantize(MICRO, rounding=ROUND_DOWN)
    return Decimal(0)
