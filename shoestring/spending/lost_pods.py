"""Settles the reservations of lost pods, from their last heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from shoestring.core.interfaces import PodLifetime, Store
from shoestring.spending.end_evidence import EndCost, EndEvidence
from shoestring.spending.ends import cost_of_end, how_it_ended
from shoestring.spending.heartbeat import UNSUPERVISED, Heartbeat, last_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import settle_at_cost


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """The cost of a lost attempt, and the ledger's reason."""

    cost: EndCost
    reason: str


def lost_attempt(
    heartbeat: Heartbeat | None, lifetime: Callable[[Heartbeat], PodLifetime]
) -> LostAttempt | None:
    """Return what the attempt of an open reservation pays if its pod is lost, by its last heartbeat; None: it
    is not lost.

    A pod that is alive settles itself. An unsupervised component is settled at the end of its run.
    """
    if heartbeat is None:
        return _of_evidence(EndEvidence())
    if heartbeat.state == UNSUPERVISED or (life := lifetime(heartbeat)).alive:
        return None
    return _of_evidence(EndEvidence(pod_reason=life.reason, heartbeat=heartbeat))


def _of_evidence(evidence: EndEvidence) -> LostAttempt:
    reason, last = how_it_ended(evidence).reason, evidence.heartbeat
    if last is not None:
        reason += f"; last heartbeat after {(last.at - last.started_at).total_seconds():.1f} s"
    return LostAttempt(cost_of_end(evidence), reason)


def settle_lost_pods(
    ledger: Ledger,
    store: Store,
    lifetime: Callable[[Heartbeat], PodLifetime],
    account: str,
    run_id: str,
    *,
    exclude: Collection[str] = (),
) -> list[str]:
    """Settle the reservations that lost pods of a run left in its account. Returns a sentence for each.

    Only for a run that routes no more stages: a reservation whose pod has not started yet looks like one
    whose pod never will. `lifetime`: of the pod of a heartbeat. `exclude` names reservations to leave as they
    are.

    Raises:
        UnknownName: there is no such account.
    """
    settled = []
    for name, reservation in ledger.state(account).reservations.items():
        if name in exclude:
            continue
        found = lost_attempt(last_heartbeat(store, run_id, name), lifetime)
        reserved_usd = reservation.amount_usd
        if (
            found
            and settle_at_cost(ledger, account, name, found.cost, reserved_usd, found.reason) is not None
        ):
            spent_usd = min(found.cost.usd, reserved_usd) if found.cost.is_capped else found.cost.usd
            settled.append(f"{account}: {name} settled at ${spent_usd} of ${reserved_usd}: {found.reason}")
    return settled


def settle_ended(ledger: Ledger, account: str, ended: Heartbeat, reason: str = "") -> bool:
    """Settle the reservation of an attempt that has ended, by the heartbeat that records it; return whether
    that was done. `reason`: of its end, where the heartbeat has none.

    Raises:
        UnknownName: there is no such account.
    """
    name, found = str(ended.attempt_id), _of_evidence(EndEvidence(heartbeat=ended))
    reservation = ledger.state(account).reservations.get(name)
    if reservation is None:
        return False
    amount_usd, why = reservation.amount_usd, reason or found.reason
    return settle_at_cost(ledger, account, name, found.cost, amount_usd, why) is not None
