"""Simulate a stage's pod: its actual duration, what its supervisor does about money, and how it ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

from shoestring.core.errors import StageFailed, StoreError
from shoestring.core.pod_ref import PodRef
from shoestring.core.types import StockOut
from shoestring.routing.decision import Choice, Decision
from shoestring.runtime.supervisor.attempt import Attempt, pod_started_s
from shoestring.runtime.supervisor.attempt_lock import has_lock
from shoestring.runtime.supervisor.extension import EXTEND_AHEAD_S, EXTEND_AHEAD_SHARE, extend_or_stop
from shoestring.runtime.supervisor.guardrails import attempt_usage
from shoestring.runtime.supervisor.supervisor import POLL_EVERY_S
from shoestring.simulation.attempt.attempt_end import (
    AttemptEnd,
    end_attempt,
    lose_pod,
    stop_attempt,
    useful_samples,
    write_last_heartbeat,
)
from shoestring.simulation.attempt.supervisor_checks import SupervisorChecks
from shoestring.simulation.attempt.work_progress import WorkProgress
from shoestring.simulation.event_loop import Process, ProcessDied
from shoestring.simulation.results import ZERO_USD
from shoestring.simulation.simulated_world import PipelineRun, SimulatedPod, Simulation
from shoestring.spending.exit_money import ANSWER_TIMEOUT_S, CHECK_EVERY_S
from shoestring.spending.guard import SLOWEST_FACTOR

STEP_S = 0.2
"""Seconds that a training step of an elastic stage takes."""


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
        ended = pipeline.pods[pipeline.account, reservation_name]
        bill_usd = simulation.market.bill_usd(choice.pool, choice.market, scheduled_s, loop.now_s)
        pipeline.outcome.billed_usd += max(ZERO_USD, bill_usd - ended.committed_usd) + ended.fees_usd
        pipeline.outcome.committed_usd += ended.committed_usd
        pipeline.outcome.attempts += 1


def wait_for_capacity(
    simulation: Simulation, pipeline: PipelineRun, decision: Decision, choice: Choice
) -> Process[AttemptEnd]:
    """Wait for a machine until the queue delay is over; then record a stock-out and release the
    reservation.
    """
    policy, reservation_name = simulation.scenario.policy, str(decision.question.attempt_id)
    simulation.cluster.pending[choice.pool] += 1
    yield simulation.loop.now_s + policy.queue_delay_s
    simulation.cluster.pending[choice.pool] -= 1
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
    if not has_lock(world, decision):
        raise StageFailed("another pod has its reservation")
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
        pipeline.usages.append(attempt_usage(attempt))
        pipeline.pods[pipeline.account, str(attempt.id)] = SimulatedPod(
            choice, pod, attempt.prices(), choice.incurred_usd(done=done), attempt.committed_usd
        )


def run_work(
    simulation: Simulation, pipeline: PipelineRun, attempt: Attempt, pod_lost_s: float, notice: bool
) -> Process[AttemptEnd]:
    """Run the work until it is done, is stopped, fails or disappears; check the money whenever the
    supervisor would act.
    """
    loop, started_s, answers = simulation.loop, simulation.loop.now_s, ImmediateAnswers()
    work = begin_work(simulation, pipeline, attempt)
    checks = SupervisorChecks(simulation, pipeline, attempt, work)
    attempt.update_price()
    fails_s = simulation.code_fails_s(started_s, started_s + work.full_s)
    while True:
        ends_s = max(started_s, min(work.ends_s(), guard_stop_s(attempt)))
        price_s = simulation.market.next_price_change_s(attempt.choice.market, loop.now_s)
        checks_s = min(next_check_s(attempt), price_s + CHECK_EVERY_S, checks.next_s(loop.now_s))
        yield max(loop.now_s, min(ends_s, pod_lost_s, fails_s, checks_s))
        if loop.now_s >= min(pod_lost_s, ends_s, fails_s):
            break
        if loop.now_s >= price_s:
            # The supervisor reads the price at every check, also while it does not change.
            attempt.priced_until_s = loop.now_s - CHECK_EVERY_S
            attempt.update_price()
            checks.price_changed(loop.now_s)
        checks.run(loop.now_s)
        extend_or_stop(attempt, loop.ledger, answers)
        if attempt.stop_reason:
            return (yield from stop_attempt(simulation, pipeline, attempt, work))
    attempt.cpu_s = work.cpu_s(loop.now_s)
    if loop.now_s >= pod_lost_s:
        return (yield from lose_pod(simulation, pipeline, attempt, work, notice=notice))
    return end_attempt(simulation, pipeline, attempt, work, succeeded=loop.now_s >= ends_s)


def begin_work(simulation: Simulation, pipeline: PipelineRun, attempt: Attempt) -> WorkProgress:
    """Return the work of an attempt that begins now."""
    samples, question = samples_left(pipeline, attempt), attempt.decision.question
    full_s = simulation.actual_s(pipeline.request, attempt.stage, attempt.choice, samples)
    pool = question.pool(attempt.choice.pool)
    return WorkProgress(simulation.loop.now_s, full_s, samples, question.needs[0], pool)


def samples_left(pipeline: PipelineRun, attempt: Attempt) -> int:
    """Return the samples to do: all of them for fixed work; for an elastic stage up to its plateau, less
    those done.
    """
    if not attempt.elastic:
        return attempt.choice.samples
    return max(0, useful_samples(pipeline, attempt) - pipeline.samples)


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
