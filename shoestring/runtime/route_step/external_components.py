"""A component that knows nothing of us: routed like any other, and then on its own. Nobody in its pod meters it or settles."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.errors import LedgerConflict
from shoestring.core.pod_ref import ClusterPod, LabelledPod
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.routing.decision import Decision
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, STAGE_LABEL
from shoestring.runtime.records.overhead import overhead_times
from shoestring.runtime.records.receipts import decision_key, receipt_for, receipt_key
from shoestring.spending.heartbeat import UNSUPERVISED, Heartbeat, heartbeat_key, last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd


def announce_external(world: World, decision: Decision, job_id: str) -> None:
    """Say, in the place of its own first sign of life, that the stage is about to run, and by which labels its pod will be known.

    `job_id`: what Kubeflow calls the run.
    """
    question, choice, now = decision.question, decision.choice, world.clock.now()
    if choice is None:
        return
    namespace = world.pod.namespace if isinstance(world.pod, ClusterPod) else "local"
    beat = Heartbeat(
        run_id=question.run_id,
        stage=question.stage,
        attempt=question.attempt,
        pod=LabelledPod.with_labels(
            namespace, {STAGE_LABEL: question.stage, KUBEFLOW_RUN_LABEL: job_id}
        ),
        state=UNSUPERVISED,
        usd_per_hour=choice.usd_per_hour,
        started_at=now,
        at=now,
        interval_s=choice.est_s or 1.0,
        spent_usd=choice.est_usd,
    )
    world.store.put(heartbeat_key(question.run_id, str(question.attempt_id)), record_bytes(beat))


def settle_external(world: World, run: Run, start: RunStart) -> list[str]:
    """Settle what was let go, up to what was reserved for it, and write the receipt; says what it did.

    It counts from its router's decision to the next step of ours, which is all that can be known on one machine. Where a cluster
    tells the pod's own times, the exit step brings the books to them (`adjust_to_pods`).

    Raises:
        UnknownName: the start has no account.
    """
    ledger, said = Ledger(world.store, world.clock, str(world.pod)), []
    for hold, held in ledger.state(start.account).reservations.items():
        beat = last_heartbeat(world.store, run.run_id, hold)
        if beat is None or beat.state != UNSUPERVISED:
            continue
        decision, ended_at = (
            read_record(world.store, decision_key(run.run_id, hold), Decision),
            next_step_at(world, run, start, beat),
        )
        why = world.cluster.lifetime(beat.pod).reason
        fees_usd = decision.choice.incurred_usd(done=not why) if decision.choice else Decimal(0)
        cost = cost_usd(beat.usd_per_hour, (ended_at - beat.started_at).total_seconds()) + fees_usd
        spent_usd = min(cost, held.amount_usd)
        try:
            ledger.settle(
                start.account, hold, spent_usd, "it keeps no books: from its router to the next step"
            )
        except LedgerConflict:
            # Another exit step was quicker.
            continue
        said.append(
            f"{start.account}: {hold} settled at ${spent_usd} of ${held.amount_usd}: it keeps no books, and took ${cost} at most"
        )
        write_external_receipt(
            world, decision, beat, ledger.state(start.account), ended_at=ended_at, why=why, fees_usd=fees_usd
        )
    return said


def next_step_at(world: World, run: Run, start: RunStart, beat: Heartbeat) -> datetime:
    """When the first pod of ours began after the one that let go; now, where there was none."""
    later = [pod.started_at for pod in overhead_times(world, run, start) if pod.started_at > beat.started_at]
    return min([*later, world.clock.now()])


def write_external_receipt(
    world: World,
    decision: Decision,
    beat: Heartbeat,
    state: AccountState,
    *,
    ended_at: datetime,
    why: str,
    fees_usd: Decimal,
) -> None:
    run_id, hold = decision.question.run_id, str(decision.question.attempt_id)
    receipt = receipt_for(
        decision,
        decision_key=decision_key(run_id, hold),
        pod=beat.pod,
        status="failed" if why else "done",
        cause="code" if why else "",
        why=why or "it keeps no books: what became of its work, its engine knows",
        spent_usd=state.settled_usd[hold],
        fees_usd=fees_usd,
        started_at=beat.started_at,
        finished_at=ended_at,
        ledger_head=state.head_hash,
    )
    world.store.put(receipt_key(run_id, hold), record_bytes(receipt))
    last = beat.model_copy(update={"state": receipt.status, "at": ended_at, "spent_usd": receipt.spent_usd})
    world.store.put(heartbeat_key(run_id, hold), record_bytes(last))
