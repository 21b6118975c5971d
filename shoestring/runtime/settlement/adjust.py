"""Adjust what was settled to the pods' own times, where the cluster reports them.

A pod's time is from when a node accepted it until its last container ended.
"""

from __future__ import annotations

from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import LabelledPod
from shoestring.core.receipt import PricePoint, Receipt
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.overhead import overhead_reservation
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.route_step.external_components import attempts_pods, cost_of_periods_usd
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import book_cost

# The id of the ledger's request, so that an exit step that is run again asks for the same entry.
POD_TIMES = "pod-times"


def adjust_to_pod_times(world: World, run: Run, start: RunStart, overhead_usd: Decimal) -> list[str]:
    """Adjust every settled attempt of a start, and its overhead of `overhead_usd`, as far as its account
    allows.

    Returns a message for each adjustment that the account did not allow in full, and for each attempt whose
    records are unreadable: it keeps what it settled. Decreases go first: an increase may need what they free.
    """
    ledger = world_ledger(world)
    state = ledger.state(start.account)
    settled_usd = {
        name: usd + state.overruns_usd.get(name, Decimal(0)) for name, usd in state.settled_usd.items()
    }
    true_usd: dict[str, Decimal] = {}
    messages: list[str] = []
    for name in settled_usd:
        is_overhead = name == overhead_reservation(start)
        try:
            found_usd = overhead_usd if is_overhead else pod_usd(world, run, name)
        except DataError as error:
            messages.append(f"{start.account}: {name} is not adjusted to its pod's own times: {error}")
            continue
        if found_usd is not None and found_usd != settled_usd[name]:
            true_usd[name] = found_usd
    order = sorted(true_usd, key=lambda name: true_usd[name] - settled_usd[name])
    for name in order:
        messages += adjust_reservation(ledger, start.account, name, true_usd[name])
    return messages


def pod_usd(world: World, run: Run, name: str) -> Decimal | None:
    """Return the cost of an attempt's pods by their own times, with the fees for its data; None where they
    are unknown. Only an external component can have several. Raises DataError.
    """
    try:
        receipt = read_record(world.store, store_layout.receipt(run.run_id, name), Receipt)
    except NotInStore:
        return None
    lifetime = world.cluster.lifetime(receipt.pod) if receipt.pod else PodLifetime(alive=False)
    is_labelled = isinstance(receipt.pod, LabelledPod)
    if lifetime.finished_at is None and not is_labelled:
        return None
    decision = read_record(world.store, receipt.decision_key, Decision)
    pods = attempts_pods(world, decision, lifetime) if is_labelled else [lifetime]
    periods = [(pod.started_at, pod.finished_at) for pod in pods if pod.started_at and pod.finished_at]
    if decision.choice is None or not periods or len(periods) < sum(bool(pod.started_at) for pod in pods):
        return None
    price = PricePoint(at=periods[0][0], usd_per_hour=decision.choice.usd_per_hour)
    time_usd = cost_of_periods_usd(receipt.prices or (price,), periods)
    return max(Decimal(0), time_usd - receipt.committed_usd) + receipt.fees_usd


def adjust_reservation(ledger: Ledger, account: str, name: str, true_usd: Decimal) -> list[str]:
    """Adjust one settled reservation to its true cost, as far as the account allows; return a message if not
    in full.
    """
    reason = f"its pod's own times cost ${true_usd}"
    overrun_usd = book_cost(ledger, account, name, true_usd, reason, id=POD_TIMES)
    if not overrun_usd:
        # None: it was adjusted before, as far as the cap allowed.
        return []
    recorded_usd = true_usd - overrun_usd
    return [
        f"{account}: {name} is recorded at ${recorded_usd}, but {reason}: the cap allows no more, and the "
        f"overrun of ${overrun_usd} is recorded"
    ]
