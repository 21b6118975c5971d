"""External components: routed like any other, but without code of Shoestring in their pods, so nothing there
meters or settles them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId, declared_stage, item_of
from shoestring.core.errors import ClusterError
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import ClusterPod, LabelledPod
from shoestring.core.receipt import PricePoint
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.routing.decision import Decision
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, RUN_LABEL, STAGE_LABEL
from shoestring.runtime.records.overhead import OVERHEAD, overhead_times
from shoestring.runtime.records.receipts import AttemptResult, make_receipt
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.spending.end_evidence import EndEvidence
from shoestring.spending.ends import NOT_METERED, OUT_OF_MONEY, cost_of_end, how_it_ended
from shoestring.spending.heartbeat import (
    UNSUPERVISED,
    Heartbeat,
    attempt_heartbeat,
    last_heartbeat,
    put_heartbeat,
)
from shoestring.spending.ledger.account import Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import settle_at_cost
from shoestring.spending.meter import cost_between_usd

CHARGED = f"{NOT_METERED}: charged from its router to the next step"
CHARGED_POD = f"{NOT_METERED}: charged by its pod's own times"

Period = tuple[datetime, datetime]


def announce_external(world: World, decision: Decision, job_id: str) -> None:
    """Write the first heartbeat of an external component, which names its pod by labels.

    `job_id` is Kubeflow's id of the run; empty: another engine's pods have the run's own id.
    """
    question = decision.question
    namespace = world.pod.namespace if isinstance(world.pod, ClusterPod) else "local"
    of_run = {KUBEFLOW_RUN_LABEL: job_id} if job_id else {RUN_LABEL: question.run_id}
    labels = {STAGE_LABEL: declared_stage(question.stage), **of_run}
    announce_pod(world, decision, LabelledPod.with_labels(namespace, labels, item_of(question.stage)))


def announce_pod(world: World, decision: Decision, pod: LabelledPod) -> None:
    """Write the first heartbeat of an external component with this pod."""
    choice, now = decision.choice, world.clock.now()
    if choice is None:
        return
    interval_s, spent_usd = choice.est_s or 1.0, choice.est_usd
    heartbeat = attempt_heartbeat(
        decision, pod, UNSUPERVISED, now, now, interval_s=interval_s, spent_usd=spent_usd
    )
    put_heartbeat(world.store, heartbeat)


def ended_components(world: World, run: Run, ledger: Ledger, stage: str) -> set[str]:
    """Return the external components of a run's newest start that are done and not settled: what they leave
    of their reservations is for the stage that is routed now.

    The component has pods, and each has succeeded; without the right to list pods, none is known.
    """
    found = set()
    for name, reservation in ledger.state(run.start.account).reservations.items():
        if reservation.stage in (stage, OVERHEAD):
            continue
        heartbeat = last_heartbeat(world.store, run.run_id, name)
        if heartbeat is None or heartbeat.state != UNSUPERVISED:
            continue
        if _has_succeeded(world, heartbeat):
            found.add(name)
    return found


def _has_succeeded(world: World, heartbeat: Heartbeat) -> bool:
    key = store_layout.decision(heartbeat.run_id, heartbeat.attempt_id)
    decision = read_record(world.store, key, Decision)
    try:
        pods = attempts_pods(world, decision, world.cluster.lifetime(heartbeat.pod))
    except ClusterError:
        return False
    return bool(pods) and all(pod.finished_at and not pod.reason for pod in pods)


def settle_external(
    world: World, run: Run, start: RunStart, names: Collection[str] | None = None
) -> list[str]:
    """Settle the external components of a start, and write their receipts; return what was done.

    `names`: the attempts to settle, where others may still run; None: all of the start's.

    A component is charged by its pods' own times where the cluster reports them, with what it cost above its
    reservation. Where these are not known, it is charged from its router's decision to the next step of
    Shoestring's, up to its reservation.

    Raises:
        UnknownName: the start has no account.
    """
    ledger, messages = world_ledger(world), []
    for name, reservation in ledger.state(start.account).reservations.items():
        if names is not None and name not in names:
            continue
        heartbeat = last_heartbeat(world.store, run.run_id, name)
        if heartbeat is not None and heartbeat.state == UNSUPERVISED:
            messages += _settle_one(world, run, start, ledger, name, reservation, heartbeat)
    return messages


def _settle_one(
    world: World,
    run: Run,
    start: RunStart,
    ledger: Ledger,
    name: str,
    reservation: Reservation,
    heartbeat: Heartbeat,
) -> list[str]:
    decision_key = store_layout.decision(run.run_id, name)
    decision = read_record(world.store, decision_key, Decision)
    pods = attempts_pods(world, decision, world.cluster.lifetime(heartbeat.pod))
    found = charged_time(world, run, start, heartbeat, pods)
    evidence = EndEvidence(pod_reason=pods[-1].reason if pods else "", heartbeat=heartbeat)
    end = how_it_ended(evidence)
    fees_usd = decision.choice.incurred_usd(done=end.status == "done") if decision.choice else Decimal(0)
    cost_usd = cost_of_periods_usd(heartbeat.known_prices, found.periods) + fees_usd
    cost = cost_of_end(replace(evidence, measured_usd=cost_usd, is_upper_bound=not found.is_exact))
    if settle_at_cost(ledger, start.account, name, cost, reservation.amount_usd, found.reason) is None:
        # A concurrent step has settled it.
        return []
    state = ledger.state(start.account)
    result = AttemptResult(
        decision_key=decision_key,
        pod=heartbeat.pod,
        status=end.status,
        cause=end.cause,
        reason=end.reason,
        spent_usd=state.settled_usd[name],
        overrun_usd=state.overruns_usd.get(name, Decimal(0)),
        fees_usd=fees_usd,
        prices=heartbeat.prices,
        started_at=found.periods[0][0],
        finished_at=max(ended_at for _, ended_at in found.periods),
        ledger_head=state.head_hash,
    )
    write_result(world, decision, result, heartbeat)
    return [
        f"{start.account}: {name} settled at ${result.spent_usd} of ${reservation.amount_usd}: "
        f"{NOT_METERED}, and took {'' if found.is_exact else 'at most '}${cost_usd}"
    ]


@dataclass(frozen=True, slots=True)
class ChargedTime:
    """The periods that an external component is charged for, in order of their starts, and the ledger's
    reason. `is_exact`: they are its pods' own.
    """

    periods: tuple[Period, ...]
    reason: str
    is_exact: bool


def charged_time(
    world: World, run: Run, start: RunStart, heartbeat: Heartbeat, pods: Sequence[PodLifetime]
) -> ChargedTime:
    """Return the time that a component is charged for. `pods`: those of its attempt.

    A pod that the reaper ended may have a container in its grace period, and no end yet: it is charged until
    now.
    """
    now = world.clock.now()
    periods = tuple(
        (pod.started_at, pod.finished_at or pod.asked_at or now)
        for pod in pods
        if pod.started_at and (pod.finished_at or (not pod.alive and pod.reason.startswith(OUT_OF_MONEY)))
    )
    if periods and len(periods) == sum(bool(pod.started_at) for pod in pods):
        return ChargedTime(periods, CHARGED_POD, is_exact=True)
    period = heartbeat.started_at, next_step_at(world, run, start, heartbeat)
    return ChargedTime((period,), CHARGED, is_exact=False)


def attempts_pods(world: World, decision: Decision, lifetime: PodLifetime) -> list[PodLifetime]:
    """Return the lifetimes of an attempt's own pods, of all that its labels name, in order.

    The labels name the stage, whose attempts they share. An attempt has the pods from its decision to the
    next attempt's.
    """
    question = decision.question
    following = AttemptId(question.run_id, question.stage, question.attempt + 1)
    key = store_layout.decision(question.run_id, following)
    until = pods_since(read_record(world.store, key, Decision)) if any(world.store.list(key)) else None
    return [pod for pod in (*lifetime.earlier, lifetime) if is_between(pod, pods_since(decision), until)]


def pods_since(decision: Decision) -> datetime:
    """Return since when a pod of the stage is one of a decision's attempt: from the decision on, or from the
    beginning of the pod that it was made for.
    """
    pod = decision.question.existing_pod
    return pod.began_at if pod and pod.began_at else decision.question.asked_at


def is_between(pod: PodLifetime, since: datetime, until: datetime | None = None) -> bool:
    """Return whether a node accepted a pod in this time; also if that is not known."""
    if pod.started_at is None:
        return True
    return pod.began_since(since) and (until is None or not pod.began_since(until))


def cost_of_periods_usd(prices: Sequence[PricePoint], periods: Iterable[Period]) -> Decimal:
    """Return the cost of these times at the prices of an attempt."""
    return sum((cost_between_usd(prices, began, ended) for began, ended in periods), Decimal(0))


def next_step_at(world: World, run: Run, start: RunStart, heartbeat: Heartbeat) -> datetime:
    """Return when the next pod of Shoestring's began after this component was routed; now, if none has."""
    began = [pod.started_at for pod in overhead_times(world, run, start)]
    return min([*(at for at in began if at > heartbeat.started_at), world.clock.now()])


def write_result(world: World, decision: Decision, result: AttemptResult, heartbeat: Heartbeat) -> None:
    """Write the receipt and the last heartbeat of an external component."""
    receipt = make_receipt(decision, result)
    run_id, attempt = decision.question.run_id, decision.question.attempt_id
    world.store.put(store_layout.receipt(run_id, attempt), record_bytes(receipt))
    last = heartbeat.model_copy(
        update={"state": receipt.status, "at": result.finished_at, "spent_usd": receipt.spent_usd}
    )
    put_heartbeat(world.store, last)
