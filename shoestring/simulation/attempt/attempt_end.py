"""Simulate how an attempt ends: done, failed, stopped or lost; and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from shoestring.core.receipt import Cause
from shoestring.routing.question_parts import sample_range
from shoestring.runtime.records.receipts import AttemptResult, make_receipt
from shoestring.runtime.supervisor.attempt import GRACE_S, Attempt
from shoestring.runtime.supervisor.run_stage import settle_attempt
from shoestring.runtime.supervisor.supervisor import make_heartbeat
from shoestring.simulation.attempt.work_progress import WorkProgress
from shoestring.simulation.event_loop import Process
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.spending.heartbeat import put_heartbeat


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of an attempt. `cause` is the reason if it is not done; otherwise empty."""

    done: bool
    cause: Cause = ""


def end_attempt(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, work: WorkProgress, *, succeeded: bool
) -> AttemptEnd:
    """Settle an attempt that ended by itself, and record its receipt."""
    reason = "" if succeeded else "its own code failed"
    spent_usd, _ = settle_attempt(attempt, simulation.loop.ledger, reason, done=succeeded)
    if not succeeded:
        record_receipt(simulation, attempt, spent_usd, "failed", "code")
        return AttemptEnd(False, "code")
    finish_stage(simulation, pipeline, attempt, work, spent_usd)
    return AttemptEnd(True)


def lose_pod(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, work: WorkProgress, *, notice: bool
) -> Process[AttemptEnd]:
    """Take the pod away: with a notice it stops in order; without one it leaves its last heartbeat and
    checkpoint.
    """
    pipeline.outcome.preempted += 1
    if notice:
        attempt.stop("stopped by SIGTERM")
        return (yield from stop_attempt(simulation, pipeline, attempt, work))
    write_last_heartbeat(simulation, attempt)
    keep_checkpoint(pipeline, attempt, work.done_samples(simulation.loop.now_s))
    return AttemptEnd(False, "lost")


def useful_samples(pipeline: PipelineRun, attempt: Attempt) -> int:
    """Return the samples of an elastic stage after which its metric stops improving, at most all samples."""
    _, all_samples = sample_range(attempt.decision.question.needs[0], pipeline.request.rows)
    return int(all_samples * min(1.0, pipeline.request.plateau_share))


def stop_attempt(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, work: WorkProgress
) -> Process[AttemptEnd]:
    """Stop the attempt: SIGTERM, then SIGKILL when the grace period or the money ends; then settle it."""
    done = work.done_samples(simulation.loop.now_s)
    attempt.cpu_s = work.cpu_s(simulation.loop.now_s)
    left_usd = attempt.reserved_usd - attempt.spent_usd()
    affordable_s = float(left_usd) * 3600 / max(1e-9, float(attempt.usd_per_hour))
    yield simulation.loop.now_s + max(0.0, min(simulation.rng.uniform(0.0, GRACE_S), affordable_s))
    spent_usd, _ = settle_attempt(attempt, simulation.loop.ledger, attempt.stop_reason, done=False)
    migrated = attempt.stop_cause == "migrated"
    record_receipt(
        simulation, attempt, spent_usd, "stopped", attempt.stop_cause, samples=done if migrated else None
    )
    keep_checkpoint(pipeline, attempt, done)
    pipeline.migrations += migrated
    pipeline.outcome.migrations += migrated
    return AttemptEnd(False, attempt.stop_cause)


def keep_checkpoint(pipeline: PipelineRun, attempt: Attempt, done: int) -> None:
    """Keep the samples of an attempt that did not finish, if it writes checkpoints."""
    pipeline.samples += done if attempt.decision.question.needs[0].checkpoint_s else 0


def write_last_heartbeat(simulation: Simulation, attempt: Attempt) -> None:
    """Write the last heartbeat before the pod disappeared, at a random time within the heartbeat interval."""
    interval_s = simulation.scenario.policy.heartbeat_s
    heartbeat = make_heartbeat(attempt, "running")
    silent_s = min(
        simulation.rng.uniform(0, interval_s), (heartbeat.at - heartbeat.started_at).total_seconds()
    )
    heartbeat = heartbeat.model_copy(update={"at": heartbeat.at - timedelta(seconds=silent_s)})
    put_heartbeat(simulation.store, heartbeat)


def finish_stage(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, work: WorkProgress, spent_usd: Decimal
) -> None:
    """Record the receipt of a completed stage, and its output as the input of the next stage."""
    need, counters, now_s = attempt.decision.question.needs[0], simulation.counters, simulation.loop.now_s
    samples = work.samples if now_s >= work.ends_s() else work.done_samples(now_s)
    if need.elastic:
        counters.trained_samples += pipeline.samples + samples
        counters.useful_samples += useful_samples(pipeline, attempt)
    else:
        counters.finished += 1
        counters.within_p95 += spent_usd <= attempt.choice.p95_usd
    pipeline.samples, pipeline.migrations, pipeline.rollbacks, pipeline.usages = 0, 0, 0, []
    if need.writes_bytes_per_row:
        pipeline.upstream = attempt.choice
    record_receipt(simulation, attempt, spent_usd, "done", samples=samples)


def record_receipt(
    simulation: Simulation,
    attempt: Attempt,
    spent_usd: Decimal,
    status: Literal["done", "failed", "stopped"],
    cause: Cause = "",
    *,
    samples: int | None = None,
) -> None:
    """Keep the receipt of an attempt that its supervisor settled."""
    world = attempt.world
    now = world.clock.now()
    result = AttemptResult(
        decision_key="",
        pod=world.pod,
        status=status,
        cause=cause,
        spent_usd=spent_usd,
        committed_usd=attempt.committed_usd,
        fees_usd=attempt.choice.incurred_usd(done=status == "done"),
        prices=attempt.prices(),
        ledger_head="",
        samples=samples,
        started_at=now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
        finished_at=now,
    )
    simulation.add_receipt(make_receipt(attempt.decision, result))
