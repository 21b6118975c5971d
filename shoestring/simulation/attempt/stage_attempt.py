"""Simulate a stage's pod: its actual duration, what its supervisor does about money, and how it ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from shoestring.core import store_layout
from shoestring.core.errors import StageFailed, StoreError
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Cause
from shoestring.core.record import record_bytes
from shoestring.core.types import StockOut
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.question import sample_range
from shoestring.runtime.records.receipts import AttemptResult, make_receipt
from shoestring.runtime.supervisor.attempt import Attempt, pod_started_s
from shoestring.runtime.supervisor.attempt_lock import lock_attempt
from shoestring.runtime.supervisor.background_io import ANSWER_TIMEOUT_S
from shoestring.runtime.supervisor.extension import EXTEND_AHEAD_S, EXTEND_AHEAD_SHARE, extend_or_stop
from shoestring.runtime.supervisor.run_stage import settle_attempt
from shoestring.runtime.supervisor.supervisor import CHECK_EVERY_S, GRACE_S, POLL_EVERY_S, make_heartbeat
from shoestring.simulation.event_loop import Process, ProcessDied
from shoestring.simulation.simulated_world import PipelineRun, SimulatedPod, Simulation
from shoestring.spending.guard import SLOWEST_FACTOR

STEP_S = 0.2
"""Seconds that a training step of an elastic stage takes."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of an attempt. `cause` is the reason if it is not done; otherwise empty."""

    done: bool
    cause: Cause = ""


class ImmediateAnswers:
    """Background I/O that is answered immediately."""

    def __init__(self) -> None:
        self._asked: Callable[[], Decimal] | None = None

    def ask(self, request: Callable[[], Decimal]) -> None:
        self._asked = request

    def answer(self, within_s: float) -> Decimal | None:
        asked, self._asked = self._asked, None
        return asked() if asked else None


def simulate_attempt(
    simulation: Simulation, pipeline: PipelineRun, decision: Decision
) -> Process[AttemptEnd]:
    """Run one attempt, from the scheduling of its pod to its end."""
    choice = decision.choice
    assert choice is not None
    loop, reservation_name, scheduled_s = (
        simulation.loop,
        str(decision.question.attempt_id),
        simulation.loop.now_s,
    )
    if not simulation.market.is_available(choice.pool, choice.market, scheduled_s):
        return (yield from wait_for_capacity(simulation, pipeline, decision, choice))
    simulation.pods += 1
    pod = PodRef.parse(f"{pipeline.account}.{reservation_name}.{simulation.pods}")
    pipeline.pods[pipeline.account, reservation_name] = SimulatedPod(choice, pod)
    simulation.cluster.pods[pod] = scheduled_s, None
    try:
        return (yield from run_pod(simulation, pipeline, decision, choice, pod))
    finally:
        simulation.cluster.pods[pod] = scheduled_s, loop.now_s
        pipeline.outcome.billed_usd += simulation.market.bill_usd(
            choice.pool, choice.market, scheduled_s, loop.now_s
        )
        pipeline.outcome.billed_usd += pipeline.pods[pipeline.account, reservation_name].fees_usd
        pipeline.outcome.attempts += 1


def wait_for_capacity(
    simulation: Simulation, pipeline: PipelineRun, decision: Decision, choice: Choice
) -> Process[AttemptEnd]:
    """Wait for a machine until the queue delay is over; then record a stock-out and release the
    reservation.
    """
    policy, reservation_name = simulation.scenario.policy, str(decision.question.attempt_id)
    yield simulation.loop.now_s + policy.queue_delay_s
    now = simulation.world().clock.now()
    until, reason = now + timedelta(seconds=policy.stockout_ttl_s), "no machine was available"
    simulation.stockouts.append(
        StockOut(node_pool=choice.pool, market=choice.market, at=now, until=until, reason=reason)
    )
    simulation.loop.ledger.settle(pipeline.account, reservation_name, Decimal(0), reason)
    return AttemptEnd(False, "lost")


def run_pod(
    simulation: Simulation, pipeline: PipelineRun, decision: Decision, choice: Choice, pod: PodRef
) -> Process[AttemptEnd]:
    """Start the pod, run its work, and record its prices and fees."""
    loop, world = simulation.loop, simulation.world(pod)
    begins_s = loop.now_s + simulation.pools[choice.pool].startup_s
    preempted_s = simulation.market.preempted_s(
        simulation.pools[choice.pool], choice.market, loop.now_s, simulation.rng
    )
    pod_lost_s = min(preempted_s, simulation.pod_lost_s())
    yield min(begins_s, pod_lost_s)
    if loop.now_s >= pod_lost_s:
        pipeline.outcome.preempted += 1
        return AttemptEnd(False, "lost")
    lock_attempt(world, decision, choice)
    reservation = loop.ledger.state(pipeline.account).reservations.get(str(decision.question.attempt_id))
    if reservation is None:
        raise StageFailed("its reservation was settled before it started")
    attempt, done = (
        Attempt(world, pipeline.run, decision, "", {}, pod_started_s(world), reservation.amount_usd),
        False,
    )
    try:
        ended = yield from run_work(
            simulation,
            pipeline,
            attempt,
            pod_lost_s,
            notice=preempted_s <= pod_lost_s and simulation.has_notice(),
        )
        done = ended.done
        return ended
    except (ProcessDied, StoreError):
        write_last_heartbeat(simulation, attempt)
        raise
    finally:
        pipeline.pods[pipeline.account, str(attempt.id)] = SimulatedPod(
            choice, pod, attempt.prices(), choice.incurred_usd(done=done)
        )


def run_work(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, pod_lost_s: float, notice: bool
) -> Process[AttemptEnd]:
    """Run the work until it is done, is stopped, fails or disappears; check the money whenever the
    supervisor would act.
    """
    loop, started_s, answers = simulation.loop, simulation.loop.now_s, ImmediateAnswers()
    samples = samples_left(pipeline, attempt)
    full_s = simulation.actual_s(pipeline.request, attempt.stage, attempt.choice, samples)
    fails_s = simulation.code_fails_s(started_s, started_s + full_s)
    while True:
        ends_s, next_price_change_s = (
            max(started_s, min(started_s + full_s, guard_stop_s(attempt))),
            simulation.market.next_price_change_s(attempt.choice.market, loop.now_s),
        )
        yield max(
            loop.now_s,
            min(ends_s, pod_lost_s, fails_s, next_check_s(attempt), next_price_change_s + CHECK_EVERY_S),
        )
        done = samples if full_s <= 0 else min(samples, int(samples * (loop.now_s - started_s) / full_s))
        if loop.now_s >= min(pod_lost_s, ends_s, fails_s):
            break
        if loop.now_s >= next_price_change_s:
            attempt.update_price()
        extend_or_stop(attempt, loop.ledger, answers)
        if attempt.stop_reason:
            return (yield from stop_attempt(simulation, pipeline, attempt, done))
    if loop.now_s >= pod_lost_s:
        return (yield from lose_pod(simulation, pipeline, attempt, done, notice=notice))
    succeeded = loop.now_s >= ends_s
    spent_usd, _ = settle_attempt(
        attempt, loop.ledger, "" if succeeded else "its own code failed", done=succeeded
    )
    if not succeeded:
        return AttemptEnd(False, "code")
    finish_stage(simulation, pipeline, attempt, samples if full_s <= ends_s - started_s else done, spent_usd)
    return AttemptEnd(True)


def lose_pod(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, done: int, *, notice: bool
) -> Process[AttemptEnd]:
    """Take the pod away: with a notice it stops in order; without one it leaves its last heartbeat and
    checkpoint.
    """
    pipeline.outcome.preempted += 1
    if notice:
        attempt.stop("stopped by SIGTERM")
        return (yield from stop_attempt(simulation, pipeline, attempt, done))
    write_last_heartbeat(simulation, attempt)
    pipeline.samples += done if attempt.decision.question.needs[0].checkpoint_s else 0
    return AttemptEnd(False, "lost")


def samples_left(pipeline: PipelineRun, attempt: Attempt) -> int:
    """Return the samples to do: all of them for fixed work; for an elastic stage up to its plateau, less
    those done.
    """
    need = attempt.decision.question.needs[0]
    if not need.elastic:
        return attempt.choice.samples
    _, all_samples = sample_range(need, pipeline.request.rows)
    return max(0, int(all_samples * min(1.0, pipeline.request.plateau_share)) - pipeline.samples)


def guard_stop_s(attempt: Attempt) -> float:
    """Return the time after which the guard stops an elastic stage if the price stays; infinity for fixed
    work.
    """
    need = attempt.decision.question.needs[0]
    return (
        attempt.meter().ends_s - SLOWEST_FACTOR * STEP_S - need.checkpoint_s - ANSWER_TIMEOUT_S - POLL_EVERY_S
        if need.elastic
        else math.inf
    )


def next_check_s(attempt: Attempt) -> float:
    """Return the time at which the supervisor next has to act on money.

    The real supervisor polls ten times a second; nothing happens between the polls.
    """
    free_usd = attempt.reserved_usd - attempt.exit_usd - attempt.price_usd(ANSWER_TIMEOUT_S)
    if (
        attempt.extension_asked_at_usd != attempt.reserved_usd
        and not attempt.decision.question.needs[0].elastic
    ):
        free_usd -= min(attempt.price_usd(EXTEND_AHEAD_S), attempt.reserved_usd * EXTEND_AHEAD_SHARE)
    price, now_s = float(attempt.usd_per_hour) / 3600, attempt.world.clock.monotonic_s()
    return (
        now_s
        + POLL_EVERY_S
        + (max(0.0, float(free_usd - attempt.spent_usd()) / price) if price else math.inf)
    )


def stop_attempt(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, done: int
) -> Process[AttemptEnd]:
    """Stop the attempt: SIGTERM, then SIGKILL when the grace period or the money ends; then settle it."""
    left_usd = attempt.reserved_usd - attempt.spent_usd()
    affordable_s = float(left_usd) * 3600 / max(1e-9, float(attempt.usd_per_hour))
    yield simulation.loop.now_s + max(0.0, min(simulation.rng.uniform(0.0, GRACE_S), affordable_s))
    settle_attempt(attempt, simulation.loop.ledger, attempt.stop_reason, done=False)
    pipeline.samples += done if attempt.decision.question.needs[0].checkpoint_s else 0
    return AttemptEnd(False, attempt.stop_cause)


def write_last_heartbeat(simulation: Simulation, attempt: Attempt) -> None:
    """Write the last heartbeat before the pod disappeared, at a random time within the heartbeat interval."""
    interval_s = simulation.scenario.policy.heartbeat_s
    heartbeat = make_heartbeat(attempt, "running")
    silent_s = min(
        simulation.rng.uniform(0, interval_s), (heartbeat.at - heartbeat.started_at).total_seconds()
    )
    heartbeat = heartbeat.model_copy(update={"at": heartbeat.at - timedelta(seconds=silent_s)})
    simulation.store.put(store_layout.heartbeat(attempt.run.run_id, str(attempt.id)), record_bytes(heartbeat))


def finish_stage(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, samples: int, spent_usd: Decimal
) -> None:
    """Record the receipt of a completed stage, and its output as the input of the next stage."""
    choice, need, world = attempt.choice, attempt.decision.question.needs[0], attempt.world
    now = world.clock.now()
    pipeline.samples = 0
    if need.writes_bytes_per_row:
        pipeline.upstream = choice
    simulation.add_receipt(
        make_receipt(
            attempt.decision,
            AttemptResult(
                decision_key="",
                pod=world.pod,
                status="done",
                spent_usd=spent_usd,
                fees_usd=choice.fees_usd,
                prices=attempt.prices(),
                ledger_head="",
                samples=samples,
                started_at=now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
                finished_at=now,
            ),
        )
    )
    if not need.elastic:
        simulation.counters.finished += 1
        simulation.counters.within_p95 += spent_usd <= choice.p95_usd
