"""What dead pods left in the ledger, settled from their last sign of life."""

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
from shoestring.spending.heartbeat import UNSUPERVISED, Heartbeat, last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_between_usd


@dataclass(frozen=True, slots=True)
class Settlement:
    """What an open hold should be settled at, and the sentence that says why."""

    hold: str
    actual_usd: Decimal
    why: str


def lost_reservations(
    state: AccountState, heartbeats: Mapping[str, Heartbeat], alive: Callable[[PodRef], bool]
) -> tuple[Settlement, ...]:
    """Decide about each open hold of an account. `heartbeats` is by hold; `alive` takes a pod's uid.

    No heartbeat: nothing ran, $0. A dead pod: from its start to one interval after its last heartbeat, and what it read; never above
    what is held.
    A pod that lives settles for itself, and what was let go is settled at the end of its run.
    """
    found = []
    for name, hold in state.reservations.items():
        beat = heartbeats.get(name)
        if beat is None:
            found.append(Settlement(name, from_microusd(0), "no heartbeat: its pod never began"))
        elif beat.state != UNSUPERVISED and not alive(beat.pod):
            seconds = (beat.at - beat.started_at).total_seconds() + beat.interval_s
            prices = beat.prices or (PricePoint(at=beat.started_at, usd_per_hour=beat.usd_per_hour),)
            due_usd = cost_between_usd(prices, beat.started_at, beat.at + timedelta(seconds=beat.interval_s))
            actual_usd = min(due_usd + beat.fees_usd, hold.amount_usd)
            found.append(
                Settlement(
                    name,
                    actual_usd,
                    f"its pod is gone; last heartbeat after {seconds - beat.interval_s:.1f} s",
                )
            )
    return tuple(found)


def settle_lost_pods(
    ledger: Ledger,
    store: Store,
    cluster: Cluster,
    account: str,
    run_id: str,
    *,
    exclude: Collection[str] = (),
) -> list[str]:
    """Settle what the dead pods of a run left in its account, and say so. Only for a run that routes no more: a hold whose pod
    has yet to begin looks like one whose pod never will.

    Raises:
        UnknownName: no such account.
    """
    state = ledger.state(account)
    state = state.model_copy(
        update={"reservations": {name: hold for name, hold in state.reservations.items() if name not in exclude}}
    )
    beats = {name: beat for name in state.reservations if (beat := last_heartbeat(store, run_id, name)) is not None}
    said = []
    for settlement in lost_reservations(state, beats, lambda pod: cluster.lifetime(pod).alive):
        try:
            ledger.settle(account, settlement.hold, settlement.actual_usd, settlement.why)
        except LedgerConflict:
            # Its own frame, or another sweeper, settled it after all.
            continue
        held_usd = state.reservations[settlement.hold].amount_usd
        said.append(
            f"{account}: {settlement.hold} settled at ${settlement.actual_usd} of ${held_usd}: {settlement.why}"
        )
    return said
