"""External components: routed like any other, but without code of Shoestring in their pods, so nothing there
meters or settles them.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import LedgerConflict
from shoestring.core.pod_ref import ClusterPod, LabelledPod
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.routing.decision import Decision
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, STAGE_LABEL
from shoestring.runtime.records.overhead import overhead_times
from shoestring.runtime.records.receipts import OUT_OF_MONEY, AttemptResult, make_receipt
from shoestring.spending.heartbeat import UNSUPERVISED, Heartbeat, last_heartbeat
from shoestring.spending.ledger.account import Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd

NOT_METERED = "it is not metered"
CHARGED = f"{NOT_METERED}: charged from its router to the next step"


def announce_external(world: World, decision: Decision, job_id: str) -> None:
    """Write the first heartbeat of an external component, which names its pod by labels.

    `job_id` is Kubeflow's id of the run.
    """
    question, choice, now = decision.question, decision.choice, world.clock.now()
    if choice is None:
        return
    namespace = world.pod.namespace if isinstance(world.pod, ClusterPod) else "local"
    labels = {STAGE_LABEL: question.stage, KUBEFLOW_RUN_LABEL: job_id}
    heartbeat = Heartbeat(
        run_id=question.run_id,
        stage=question.stage,
        attempt=question.attempt,
        pod=LabelledPod.with_labels(namespace, labels),
        state=UNSUPERVISED,
        usd_per_hour=choice.usd_per_hour,
        started_at=now,
        at=now,
        interval_s=choice.est_s or 1.0,
        spent_usd=choice.est_usd,
    )
    world.store.put(store_layout.heartbeat(question.run_id, question.attempt_id), record_bytes(heartbeat))


def settle_external(world: World, run: Run, start: RunStart) -> list[str]:
    """Settle the external components of a start, each up to its reservation, and write their receipts; return
    what was done.

    A component is charged from its router's decision to the next step of Shoestring's, which is all that can
    be known on one machine. Where a cluster reports the pod's own times, the exit step adjusts the ledger to
    them (`adjust_to_pod_times`).

    Raises:
        UnknownName: the start has no account.
    """
    ledger, messages = Ledger(world.store, world.clock, str(world.pod)), []
    for name, reservation in ledger.state(start.account).reservations.items():
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
    ended_at = next_step_at(world, run, start, heartbeat)
    failure = world.cluster.lifetime(heartbeat.pod).reason
    fees_usd = decision.choice.incurred_usd(done=not failure) if decision.choice else Decimal(0)
    seconds = (ended_at - heartbeat.started_at).total_seconds()
    max_usd = cost_usd(heartbeat.usd_per_hour, seconds) + fees_usd
    spent_usd = min(max_usd, reservation.amount_usd)
    try:
        ledger.settle(start.account, name, spent_usd, CHARGED)
    except LedgerConflict:
        # A concurrent exit step has settled it.
        return []
    state = ledger.state(start.account)
    result = AttemptResult(
        decision_key=decision_key,
        pod=heartbeat.pod,
        status="failed" if failure else "done",
        cause=("money" if failure.startswith(OUT_OF_MONEY) else "code") if failure else "",
        reason=failure or f"{NOT_METERED}: its engine knows how it ended",
        spent_usd=state.settled_usd[name],
        fees_usd=fees_usd,
        started_at=heartbeat.started_at,
        finished_at=ended_at,
        ledger_head=state.head_hash,
    )
    write_result(world, decision, result, heartbeat)
    return [
        f"{start.account}: {name} settled at ${spent_usd} of ${reservation.amount_usd}: "
        f"{NOT_METERED}, and took at most ${max_usd}"
    ]


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
    world.store.put(store_layout.heartbeat(run_id, attempt), record_bytes(last))
