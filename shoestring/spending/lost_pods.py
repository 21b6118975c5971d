"""Settles the reservations of lost pods, from their last heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from shoestring.core.errors import LedgerConflict
from shoestring.core.interfaces import Cluster, Store
from shoestring.core.money import from_microusd
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import PricePoint
from shoestring.spending.heartbeat import BROKE, LOST, SILENT, UNSUPERVISED, Heartbeat, last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.overruns import book_cost
from shoestring.spending.meter import cost_between_usd

ENDED_REASONS = {
    SILENT: "it wrote no heartbeats and was ended",
    BROKE: "its money was used up and it was ended",
    LOST: "its supervisor died; its last process ended",
}
"""By the state in the last heartbeat of an attempt that was ended from outside."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The amount that an open reservation should be settled at, and the reason."""

    reservation: str
    actual_usd: Decimal
    reason: str


def lost_reservations(
    state: AccountState, heartbeats: Mapping[str, Heartbeat], is_alive: Callable[[PodRef], bool]
) -> tuple[Settlement, ...]:
    """Return the settlements of the account's reservations whose pods are lost. `heartbeats` is by
    reservation.

    - Without a heartbeat nothing ran: $0.
    - A dead pod pays from its start to one interval after its last heartbeat, plus fees, at most the reserved
      amount. One that was ended from outside pays up to its end, whatever was reserved.
    - A pod that is alive settles itself. An unsupervised component is settled at the end of its run.
    """
    found = []
    for name, reservation in state.reservations.items():
        heartbeat = heartbeats.get(name)
        if heartbeat is None:
            found.append(Settlement(name, from_microusd(0), "no heartbeat: its pod never started"))
        elif heartbeat.state != UNSUPERVISED and not is_alive(heartbeat.pod):
            cost_usd, lived_s = _cost_usd(heartbeat), (heartbeat.at - heartbeat.started_at).total_seconds()
            actual_usd, reason = min(cost_usd, reservation.amount_usd), "its pod is gone; last heartbeat"
            if heartbeat.state in ENDED_REASONS:
                actual_usd, reason = cost_usd, ENDED_REASONS[heartbeat.state]
            found.append(Settlement(name, actual_usd, f"{reason} after {lived_s:.1f} s"))
    return tuple(found)


def _cost_usd(heartbeat: Heartbeat) -> Decimal:
    """Return the cost of a pod until one interval after its last heartbeat, fees included."""
    # The moment at which a pod was ended from outside is known.
    later_s = 0.0 if heartbeat.state in ENDED_REASONS else heartbeat.interval_s
    began, ended = heartbeat.started_at, heartbeat.at + timedelta(seconds=later_s)
    prices = heartbeat.prices or (PricePoint(at=began, usd_per_hour=heartbeat.usd_per_hour),)
    return cost_between_usd(prices, began, ended) + heartbeat.fees_usd


def settle_lost_pods(
    ledger: Ledger,
    store: Store,
    cluster: Cluster,
    account: str,
    run_id: str,
    *,
    exclude: Collection[str] = (),
) -> list[str]:
    """Settle the reservations that lost pods of a run left in its account. Returns a sentence for each.

    Only for a run that routes no more stages: a reservation whose pod has not started yet looks like one
    whose pod never will. `exclude` names reservations to leave as they are.

    Raises:
        UnknownName: there is no such account.
    """
    state = ledger.state(account)
    open_ = {name: each for name, each in state.reservations.items() if name not in exclude}
    found = ((name, last_heartbeat(store, run_id, name)) for name in open_)
    heartbeats = {name: heartbeat for name, heartbeat in found if heartbeat is not None}
    state = state.model_copy(update={"reservations": open_})
    settled = []
    for each in lost_reservations(state, heartbeats, lambda pod: cluster.lifetime(pod).alive):
        reserved_usd = open_[each.reservation].amount_usd
        if book_settlement(ledger, account, each, reserved_usd):
            spent = f"settled at ${each.actual_usd} of ${reserved_usd}"
            settled.append(f"{account}: {each.reservation} {spent}: {each.reason}")
    return settled


def settle_ended(ledger: Ledger, account: str, ended: Heartbeat) -> None:
    """Settle the reservation of an attempt that was ended from outside, by the heartbeat that records it.

    Raises:
        UnknownName: there is no such account.
    """
    state, name = ledger.state(account), f"{ended.stage}-{ended.attempt}"
    own = {each: reservation for each, reservation in state.reservations.items() if each == name}
    state = state.model_copy(update={"reservations": own})
    for each in lost_reservations(state, {name: ended}, lambda _: False):
        book_settlement(ledger, account, each, own[name].amount_usd)


def book_settlement(ledger: Ledger, account: str, found: Settlement, reserved_usd: Decimal) -> bool:
    """Settle a reservation, and book what it cost beyond that. Returns False if it was settled already."""
    name, cost_usd, reason = found.reservation, found.actual_usd, found.reason
    try:
        ledger.settle(account, name, min(cost_usd, reserved_usd), reason)
        if cost_usd > reserved_usd:
            book_cost(ledger, account, name, cost_usd, reason, id=name)
    except LedgerConflict:
        # Its own supervisor, or another reaper, settled it in the meantime.
        return False
    return True
