"""Run one routed stage; settle it and write its receipt whether it succeeds, fails or is stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial

from shoestring.config.world import World
from shoestring.core.attempt_id import declared_stage
from shoestring.core.errors import StageFailed
from shoestring.core.types import StageOutcome
from shoestring.data.job import Command
from shoestring.data.run_records import Run, open_run
from shoestring.data.storage import cache
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.result_keys import StageInputs, StageWork, check_libraries, publish_result
from shoestring.runtime.records.commitments import committed_usd
from shoestring.runtime.records.egress_usage import record_egress
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.records.run_setup import has_ended
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.supervisor.attempt import Attempt, pod_started_s
from shoestring.runtime.supervisor.attempt_lock import (
    first_heartbeat,
    heartbeats,
    lock_attempt,
    lock_second_attempt,
    read_decision,
)
from shoestring.runtime.supervisor.attempt_receipt import write_attempt_receipt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.guardrails import earlier_usage
from shoestring.runtime.supervisor.spend_limits import WatchedCommand
from shoestring.runtime.supervisor.supervisor import (
    beating,
    raise_unless_done,
    stop_on_signals,
    supervise,
    write_heartbeat,
)
from shoestring.spending.end_evidence import EndCost
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import book_cost, settle_at_cost
from shoestring.stages.work import Origin

SLOW_SETTLEMENT_S = 1.0
"""If settlement and receipt take longer than this, and than expected, that time is charged afterwards."""


def run_stage(
    world: World,
    world_argument: str,
    run_id: str,
    decision_key: str,
    inputs: Mapping[str, str],
    origin: Origin | None = None,
    command: Command | None = None,
    notify_watcher: Callable[[WatchedCommand], None] | None = None,
) -> StageOutcome:
    """Run the stage as decided, inside its reservation.

    Args:
        world_argument: where the child opens the world from.
        inputs: keys of what the stage reads, by name.
        origin, command: None: a built-in stage, or the command of the run.
        notify_watcher: informs the process that watches a command; None: there is none.

    Raises:
        StageStopped: the money, the time, a signal or a lost launcher ended it; a checkpoint may exist.
        StageFailed: the stage's code or process failed, or another pod runs the stage.
        Refused: an earlier pod of this decision ended, and another attempt would end like it or does not fit.
    """
    decision, choice = read_decision(world, run_id, decision_key)
    if choice.cached:
        return return_cached(world, open_run(world.store, run_id), decision, decision_key, origin)
    # Before anything that can fail: a pod that nobody knows of is paid by nobody.
    given = (world, decision, choice, decision_key)
    attempt = open_locked(world, run_id, lock_attempt(*given), inputs, origin) or open_locked(
        world, run_id, lock_second_attempt(*given), inputs, origin
    )
    if attempt is None:
        raise no_reservation(decision_key)
    if isinstance(attempt, StageOutcome):
        return attempt
    attempt.command, attempt.notify_watcher = command or attempt.run.record.command, notify_watcher
    return run_attempt(attempt, world_argument)


def open_locked(
    world: World,
    run_id: str,
    locked: tuple[Decision, str] | StageOutcome,
    inputs: Mapping[str, str],
    origin: Origin | None,
) -> Attempt | StageOutcome | None:
    """Return the attempt that this pod has the lock on, or the result that another pod made; None: the run
    ended before this pod, the first one of its decision, began.

    Raises StageFailed: it has no reservation.
    """
    if isinstance(locked, StageOutcome):
        return locked
    decision, key = locked
    with heartbeats(world, partial(first_heartbeat, world, decision), world.clock.monotonic_s()):
        run = open_run(world.store, run_id)
        if run.start.launcher is None and world_ledger(world).state(run.start.account).closed:
            return None
        return open_attempt(world, run, decision, key, inputs, origin)


def open_attempt(
    world: World,
    run: Run,
    decision: Decision,
    decision_key: str,
    inputs: Mapping[str, str],
    origin: Origin | None,
) -> Attempt:
    """Return the attempt that a decision has a reservation for. Raises StageFailed if it has none."""
    state = world_ledger(world).state(run.start.account)
    reservation = state.reservations.get(str(decision.question.attempt_id))
    if reservation is None:
        raise no_reservation(decision_key)
    attempt = Attempt(
        world, run, decision, decision_key, inputs, pod_started_s(world), reservation.amount_usd, origin
    )
    record_egress(world.store, decision, world.clock.now())
    if attempt.id.number > 1:
        attempt.usage_before = earlier_usage(world.store, run.run_id, attempt.stage)
    return attempt


def no_reservation(decision_key: str) -> StageFailed:
    return StageFailed(
        f"{decision_key} has no open reservation in the ledger: route the stage again, or resume the run"
    )


def run_attempt(attempt: Attempt, world_argument: str) -> StageOutcome:
    """Supervise the attempt, settle it however it ends, and cache its result. Raises StageStopped,
    StageFailed.
    """
    with stop_on_signals(attempt):
        result = ChildResult(status="failed", cause="lost", reason="the supervisor itself failed")
        try:
            result = supervise(attempt, world_argument)
            if result.outcome is not None:
                # Before the attempt ends for those that wait for its result.
                with beating(attempt):
                    attempt.published = publish(attempt, result.outcome)
        except Exception as error:
            if result.outcome is None:
                reason = f"{result.reason}: {type(error).__name__}: {error}"
                result = result.model_copy(update={"reason": reason})
            raise
        finally:
            settle_and_record(attempt, result)
        raise_unless_done(attempt, result)
        assert attempt.published is not None
        return attempt.published


def publish(attempt: Attempt, outcome: StageOutcome) -> StageOutcome:
    """Cache the result, and return the one that counts: another run's if that was published first."""
    # The text of a command does not determine its result.
    if attempt.command is not None:
        return outcome
    return publish_result(attempt.world, decided_work(attempt.run, attempt.decision, attempt.origin), outcome)


def decided_work(run: Run, decision: Decision, origin: Origin | None) -> StageWork:
    """Return what the result of a decision's stage depends on."""
    question, recipe = decision.question, run.record.recipe
    assert recipe is not None
    image = question.needs[0].image
    return StageWork(
        recipe=recipe.with_family(question.family.name) if question.family else recipe,
        seed=question.seed,
        run_id=question.run_id,
        stage=declared_stage(question.stage),
        image=question.images.get(image, image),
        inputs=StageInputs(question.digests["upstream"], question.digests["side_input"]),
        origin=origin,
    )


def return_cached(
    world: World, run: Run, decision: Decision, decision_key: str, origin: Origin | None = None
) -> StageOutcome:
    """Return a cached result, and copy what the run's report needs of it.

    It costs only this pod's own time, which is charged to the overhead.
    """
    if has_ended(world, run):
        # Imported here: only such a pod begins a start.
        from shoestring.runtime.admission.retried_start import begin_retry

        run = begin_retry(world, run)
    with overhead_timer(world, run, f"cached-{decision.question.stage}", placed=decision.choice):
        check_libraries(world, decided_work(run, decision, origin))
        return deliver_cached(world, run, decision, decision_key, pod_started_s(world))


def deliver_cached(
    world: World, run: Run, decision: Decision, decision_key: str, started_s: float
) -> StageOutcome:
    """Return a cached result, copy what the run's report needs of it, and write the receipt of an attempt
    that began at `started_s`, on the monotonic clock. Raises StageFailed: it was damaged.
    """
    outcome = cache.find_outcome(world.store, str(decision.question.cached_outcome))
    if outcome is None:
        raise StageFailed(
            f"the cached result of {decision.question.stage} was damaged after it was routed: a resumed run "
            "makes it again"
        )
    cache.copy_records(world.store, run.run_id, outcome)
    attempt = Attempt(world, run, decision, decision_key, {}, started_s, Decimal(0))
    write_attempt_receipt(attempt, ChildResult(status="done", outcome=outcome), Decimal(0))
    return outcome


def settle_and_record(attempt: Attempt, result: ChildResult) -> None:
    """Settle by this pod's own clock with its exit included; write the receipt and the last heartbeat.

    The pod runs on while it waits for a slow store, so that wait is charged, too.
    """
    world = attempt.world
    ledger, began_s = world_ledger(world), world.clock.monotonic_s()
    if result.outcome is not None:
        done = result.outcome.samples or result.outcome.rows
        ended = {"phase": result.status, "samples": done, "total": None}
        attempt.progress = attempt.progress.model_copy(update=ended)
    with beating(attempt):
        spent_usd, shortfall = settle_attempt(attempt, ledger, result.reason, done=result.status == "done")
        write_attempt_receipt(attempt, with_reason(result, shortfall), spent_usd)
        waited_s = world.clock.monotonic_s() - began_s
        if waited_s > max(SLOW_SETTLEMENT_S, attempt.expected_exit_s):
            spent_usd, shortfall = charge_wait(attempt, ledger, waited_s, done=result.status == "done")
            write_attempt_receipt(attempt, with_reason(result, shortfall), spent_usd)
    write_heartbeat(attempt, result.status)


def with_reason(result: ChildResult, more: str) -> ChildResult:
    """Return the result with a sentence added to its reason."""
    return result.model_copy(update={"reason": "; ".join(filter(None, (result.reason, more)))})


def settle_attempt(attempt: Attempt, ledger: Ledger, reason: str, *, done: bool) -> tuple[Decimal, str]:
    """Settle the reservation at what this pod took by its own clock, plus the fees for its data. Return
    the amount in the ledger, and a sentence where the account had too little money for the whole cost.
    """
    world, name, account = attempt.world, str(attempt.id), attempt.run.start.account
    ends_s = attempt.expected_end_s
    time_usd = attempt.meter().spent_usd(ends_s)
    attempt.committed_usd = committed_usd(
        world.store, attempt.decision, world.pod, time_usd, ends_s - attempt.started_s
    )
    cost_usd = attempt_cost_usd(attempt, ends_s, done=done)
    # The supervisor polls, so the exit may cost more than was reserved for it.
    overrun_usd = settle_at_cost(ledger, account, name, EndCost(cost_usd), attempt.reserved_usd, reason)
    # None: a reaper took this pod for dead and settled it.
    return booked(attempt, ledger, cost_usd, overrun_usd)


def charge_wait(attempt: Attempt, ledger: Ledger, waited_s: float, *, done: bool) -> tuple[Decimal, str]:
    """Book what a settled attempt cost up to now; return the same as `settle_attempt`."""
    name, account = str(attempt.id), attempt.run.start.account
    cost_usd = attempt_cost_usd(attempt, attempt.expected_end_s, done=done)
    why = f"the store took {waited_s:.1f} s to accept its settlement and receipt"
    overrun_usd = book_cost(ledger, account, name, cost_usd, why, id=f"{name}-wait")
    return booked(attempt, ledger, cost_usd, overrun_usd)


def attempt_cost_usd(attempt: Attempt, ends_s: float, *, done: bool) -> Decimal:
    """Return the cost of the attempt up to a moment, with its fees and without what a commitment paid for."""
    time_usd = attempt.meter().spent_usd(ends_s)
    return max(Decimal(0), time_usd - attempt.committed_usd) + attempt.choice.incurred_usd(done=done)


def booked(
    attempt: Attempt, ledger: Ledger, cost_usd: Decimal, overrun_usd: Decimal | None
) -> tuple[Decimal, str]:
    """Return how much of a cost is in the ledger, and a sentence where that is not all.

    `overrun_usd` None: the ledger holds what somebody else settled.
    """
    if overrun_usd is None:
        return ledger.state(attempt.run.start.account).settled_usd[str(attempt.id)], ""
    attempt.overrun_usd = overrun_usd
    if not overrun_usd:
        return cost_usd, ""
    booked_usd = cost_usd - overrun_usd
    return booked_usd, f"it cost ${cost_usd}, of which its account had money for ${booked_usd}"
