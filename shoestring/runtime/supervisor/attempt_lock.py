"""The lock on an attempt: a reservation belongs to the first pod that writes a heartbeat for it.

An engine may create a second pod for the same decision after it lost the first. That pod gets an attempt of
its own (`route_step/second_pod.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from shoestring.config.world import World
from shoestring.core.errors import BudgetTooSmall, StageFailed, StoreError, UsageError
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import open_run, read_record
from shoestring.routing.decision import Choice, Decision
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.supervisor.attempt import pod_started_s
from shoestring.spending.heartbeat import Heartbeat, attempt_heartbeat, last_heartbeat, put_heartbeat


def read_decision(world: World, run_id: str, decision_key: str) -> tuple[Decision, Choice]:
    """Return a decision of this run, and what it has chosen. Raises UsageError, StageFailed."""
    decision = read_record(world.store, decision_key, Decision)
    if decision.question.run_id != run_id:
        open_run(world.store, run_id)
        raise UsageError(f"{decision_key} belongs to {decision.question.run_id}, not to {run_id}")
    if decision.choice is None:
        raise StageFailed(f"{decision_key} chose nothing, so it has no open reservation in the ledger")
    return decision, decision.choice


def lock_attempt(
    world: World, decision: Decision, choice: Choice, decision_key: str
) -> tuple[Decision, str] | StageOutcome:
    """Return the decision of the attempt that this pod has, and its key.

    The attempt's first heartbeat, which names the pod, is written before anything else can fail. Where
    another pod wrote it, this one is a second pod: the decision is a new one, or the result is returned that
    the other pod made.

    Raises:
        StageFailed, Refused, BudgetExceeded: as in `admit_second_pod`.
    """
    if has_lock(world, decision):
        return decision, decision_key
    return lock_second_attempt(world, decision, choice, decision_key)


def lock_second_attempt(
    world: World, decision: Decision, choice: Choice, decision_key: str
) -> tuple[Decision, str] | StageOutcome:
    """Do `lock_attempt` for a pod to which the attempt of its decision does not belong. Where the run has
    ended, its engine runs the stage again, and the pod begins the run's next start.

    Raises the same; and as `begin_retry`.
    """
    # Imported here: only a second pod decides.
    from shoestring.runtime.admission.retried_start import begin_retry, continue_text
    from shoestring.runtime.route_step.second_pod import admit_second_pod

    run = begin_retry(world, open_run(world.store, decision.question.run_id))
    name = f"second-{decision.question.attempt_id}"
    with overhead_timer(world, run, name, placed=choice) as pod:
        while True:
            try:
                admitted = admit_second_pod(world, run, decision, decision_key)
            except BudgetTooSmall as error:
                reasons = f"{error.reasons}; {continue_text(run)}"
                raise BudgetTooSmall(error.budget_usd, error.smallest_usd, reasons) from None
            if isinstance(admitted, StageOutcome):
                return admitted
            own, key = admitted
            assert own.choice is not None
            if has_lock(world, own):
                pod.paid_by = str(own.question.attempt_id)
                return own, key


def has_lock(world: World, decision: Decision) -> bool:
    """Write the attempt's first heartbeat unless there is one; return whether that names this pod."""
    if put_heartbeat(world.store, first_heartbeat(world, decision), if_absent=True):
        return True
    question = decision.question
    first = last_heartbeat(world.store, question.run_id, str(question.attempt_id))
    return first is None or first.pod == world.pod


def first_heartbeat(world: World, decision: Decision) -> Heartbeat:
    """Return the heartbeat of an attempt that has not read its reservation yet."""
    now = world.clock.now()
    began = now - timedelta(seconds=world.clock.monotonic_s() - pod_started_s(world))
    return attempt_heartbeat(decision, world.pod, "starting", began, now, interval_s=world.policy.heartbeat_s)


@contextmanager
def heartbeats(world: World, make: Callable[[], Heartbeat], last_s: float) -> Iterator[None]:
    """Write what `make` returns at the policy's interval while the block runs. `last_s`: monotonic seconds
    of the heartbeat before the block.
    """
    over, clock = threading.Event(), world.clock

    def beat() -> None:
        due_s = last_s + world.policy.heartbeat_s
        while not over.wait(max(0.0, due_s - clock.monotonic_s())):
            due_s = clock.monotonic_s() + world.policy.heartbeat_s
            with suppress(StoreError):
                put_heartbeat(world.store, make())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
    # A heartbeat that is under way must not overtake the last one.
    thread.join()
