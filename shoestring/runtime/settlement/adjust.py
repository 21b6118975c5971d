"""Adjust what was settled to the pods' own times, where the cluster reports them.

A pod's time is from when a node accepted it until its last container ended.
"""

from __future__ import annotations

from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import LedgerConflict
from shoestring.core.receipt import PricePoint, Receipt
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.overhead import overhead_reservation, overhead_spent_usd
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.overruns import book_cost
from shoestring.spending.meter import cost_between_usd

# The id of the ledger's request, so that an exit step that is run again asks for the same entry.
POD_TIMES = "pod-times"


def adjust_to_pod_times(world: World, run: Run, start: RunStart) -> list[str]:
    """Adjust every settled attempt of a start, and its overhead, as far as its account allows.

    Returns a message for each adjustment that the account did not allow in full. Decreases go first: an
    increase may need what they free.
    """
    ledger = Ledger(world.store, world.clock, str(world.pod))
    state = ledger.state(start.account)
    settled_usd = {
        name: usd + state.overruns_usd.get(name, Decimal(0)) for name, usd in state.settled_usd.items()
    }
    true_usd: dict[str, Decimal] = {}
    for name in settled_usd:
        is_overhead = name == overhead_reservation(start)
        found_usd = overhead_spent_usd(world, run, start) if is_overhead else pod_usd(world, run, name)
        if found_usd is not None and found_usd != settled_usd[name]:
            true_usd[name] = found_usd
    order = sorted(true_usd, key=lambda name: true_usd[name] - settled_usd[name])
    return [
        message
        for name in order
        for message in adjust_reservation(ledger, start.account, name, true_usd[name])
    ]


def pod_usd(world: World, run: Run, name: str) -> Decimal | None:
    """Return the cost of an attempt's pod by its own times, with the fees for its data; None where they are
    unknown.
    """
    key = store_layout.receipt(run.run_id, name)
    if not any(world.store.list(key)):
        return None
    receipt = read_record(world.store, key, Receipt)
    choice = read_record(world.store, receipt.decision_key, Decision).choice
    lifetime = world.cluster.lifetime(receipt.pod) if receipt.pod else None
    if choice is None or lifetime is None or lifetime.started_at is None or lifetime.finished_at is None:
        return None
    prices = receipt.prices or (PricePoint(at=lifetime.started_at, usd_per_hour=choice.usd_per_hour),)
    time_usd = cost_between_usd(prices, lifetime.started_at, lifetime.finished_at)
    return max(Decimal(0), time_usd - receipt.committed_usd) + receipt.fees_usd


def adjust_reservation(ledger: Ledger, account: str, name: str, true_usd: Decimal) -> list[str]:
    """Adjust one settled reservation to its true cost, as far as the account allows; return a message if not
    in full.
    """
    reason = f"its pod's own times cost ${true_usd}"
    try:
        overrun_usd = book_cost(ledger, account, name, true_usd, reason, id=POD_TIMES)
    except LedgerConflict:
        # It was adjusted before, as far as the cap allowed.
        return []
    if not overrun_usd:
        return []
    recorded_usd = true_usd - overrun_usd
    return [
        f"{account}: {name} is recorded at ${recorded_usd}, but {reason}: the cap allows no more, and the "
        f"overrun of ${overrun_usd} is recorded"
    ]
