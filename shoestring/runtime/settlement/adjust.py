"""Bring what was settled to the true times of the pods, where the cluster tells them: from when a node took one until its last container
ended."""

from __future__ import annotations

from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.core.receipt import PricePoint, Receipt
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.overhead import overhead_hold, overhead_spent_usd
from shoestring.runtime.records.receipts import receipt_key
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_between_usd

# Names the request, so that an exit step that is run again asks for the same entry.
POD_TIMES = "true-times"


def adjust_to_pod_times(world: World, run: Run, start: RunStart) -> list[str]:
    """Adjust every settled attempt of a start, and its overhead, as far as its account allows; says what it could not.

    What goes down goes first: it may be what another needs.
    """
    ledger = Ledger(world.store, world.clock, str(world.pod))
    settled_usd = ledger.state(start.account).settled_usd
    true_usd: dict[str, Decimal] = {}
    for hold in settled_usd:
        found_usd = (
            overhead_spent_usd(world, run, start)
            if hold == overhead_hold(start)
            else pod_usd(world, run, hold)
        )
        if found_usd is not None and found_usd != settled_usd[hold]:
            true_usd[hold] = found_usd
    order = sorted(true_usd, key=lambda hold: true_usd[hold] - settled_usd[hold])
    return [
        sentence
        for hold in order
        for sentence in adjust_hold(ledger, start.account, hold, settled_usd[hold], true_usd[hold])
    ]


def pod_usd(world: World, run: Run, hold: str) -> Decimal | None:
    """What an attempt's pod cost by its own times, and its data beside; None where nobody knows them."""
    key = receipt_key(run.run_id, hold)
    if not any(world.store.list(key)):
        return None
    receipt = read_record(world.store, key, Receipt)
    choice = read_record(world.store, receipt.decision_key, Decision).choice
    life = world.cluster.lifetime(receipt.pod) if receipt.pod else None
    if choice is None or life is None or life.started_at is None or life.finished_at is None:
        return None
    prices = receipt.prices or (PricePoint(at=life.started_at, usd_per_hour=choice.usd_per_hour),)
    return (
        max(Decimal(0), cost_between_usd(prices, life.started_at, life.finished_at) - receipt.committed_usd)
        + receipt.fees_usd
    )


def adjust_hold(ledger: Ledger, account: str, hold: str, settled_usd: Decimal, true_usd: Decimal) -> list[str]:
    """Bring one settled hold to its true cost, as far as the account allows; says what it could not."""
    why = f"its pod's own times come to ${true_usd}"
    try:
        ledger.adjust(account, hold, true_usd - settled_usd, why, id=POD_TIMES)
    except LedgerConflict:
        # Adjusted before, as far as the cap allowed.
        return []
    except BudgetExceeded as error:
        if error.left_usd > 0:
            ledger.adjust(
                account, hold, error.left_usd, f"{why}, and there is no more money for it", id=POD_TIMES
            )
        return [
            f"{account}: {hold} is on the books at ${settled_usd + error.left_usd}, and {why}: the cap allows no more ({error})"
        ]
    return []
