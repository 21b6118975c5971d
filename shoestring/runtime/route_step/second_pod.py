"""The second pod of a decision: its engine created it again, because it lost the first.

The engine passes the decision of the first pod. No router runs before it, and nothing can move it. So it
decides by the rules of a router about the pool that it is on: a new attempt with a decision, a reservation
and a receipt of its own.

The new attempt pays for the pod from its start, so also for the wait until the first pod has ended: that time
costs the price of this pool, and the exit step corrects the attempt to the times of the whole pod. A pod that
gets no attempt is charged to the overhead, which holds the seconds of one such pod.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import StageFailed
from shoestring.core.types import Need, Pool, StageOutcome
from shoestring.data.run_records import Run, read_record
from shoestring.pricing.learned.learning import learn
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import Decision
from shoestring.routing.policy.migration import exploration_sd
from shoestring.routing.question import Question
from shoestring.routing.question_parts import ExistingPod
from shoestring.runtime.admission.first_request import next_attempt
from shoestring.runtime.admission.question.build import time_fields
from shoestring.runtime.records.current_prices import current_quote
from shoestring.runtime.records.overhead import OverheadPod
from shoestring.runtime.records.receipt_history import known_receipts
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.route_step.concurrent_stages import last_attempt, stages_to_plan
from shoestring.runtime.route_step.retry import (
    RetryContext,
    settle_earlier_attempts,
    undelivered_decision,
)
from shoestring.runtime.route_step.route import money_fields, reserve_choice
from shoestring.runtime.route_step.shared_result import SharedResult
from shoestring.spending.ledger.ledger import Ledger


def admit_second_pod(
    world: World, run: Run, first: Decision, first_key: str, began_at: datetime | None = None
) -> tuple[Decision, str] | StageOutcome:
    """Return the decision of the pod's own attempt and its key; the result where an earlier pod completed it.

    `first` is the decision that the pod was created for, stored at `first_key`. `began_at`: when a node
    accepted the pod of an external component, for which the reaper asks.

    Raises:
        StageFailed: a router has decided about the stage again, so its pod runs it.
        Refused: an earlier pod still runs, the attempt would end as the last one did, or it does not fit what
            is left.
        BudgetExceeded: other runs took the money several times.
    """
    assert first.choice is not None
    ledger, stage = world_ledger(world), first.question.stage
    pod = ExistingPod(
        decision_key=first_key, pool=first.choice.pool, market=first.choice.market, began_at=began_at
    )
    check_not_routed_again(world, run, first, pod)
    found = undelivered_decision(world, run, ledger, stage)
    if found is None:
        retry = settle_earlier_attempts(world, run, ledger, stage, can_move=False)
        if retry.done is not None:
            return retry.done
        ask = partial(second_question, world, run, ledger, first, pod, retry)
        shared = SharedResult(world, run, ledger, OverheadPod(), can_wait=False)
        found = reserve_choice(world, run, ledger, ask, shared)
    # A router may have taken the number of the attempt.
    check_not_routed_again(world, run, first, pod)
    return found


def check_not_routed_again(world: World, run: Run, first: Decision, pod: ExistingPod) -> None:
    """Raise StageFailed if the newest decision about the stage is that of another pod."""
    newest = last_attempt(world, run, first.question.stage)
    if newest is None or newest == first.question.attempt_id:
        return
    decision = read_record(world.store, store_layout.decision(run.run_id, newest), Decision)
    if decision.question.existing_pod != pod:
        raise StageFailed(
            f"{first.question.attempt_id} has ended, and {newest} was decided after it: the pod of that "
            "decision runs the stage"
        )


def second_question(
    world: World, run: Run, ledger: Ledger, first: Decision, pod: ExistingPod, retry: RetryContext
) -> Question:
    """Return the question of the first decision with the money, time, prices and receipts of now."""
    question, state, now = first.question, ledger.state(run.start.account), world.clock.now()
    needs, decided = stages_to_plan(world, run, question.may_be_routed, state)
    upstream = (*question.upstream, *decided)
    lived_s = world.cluster.lifetime(world.pod).age_s(now)
    stages = [each.stage for each in needs]
    known = known_receipts(world.store, run.run_id, stages, run.start.started_at)
    place = f"the pod was created again, so it stays where it is, on {pod.pool} {pod.market}"
    return question.model_copy(
        update={
            "attempt": next_attempt(world.store, run.run_id, question.stage, state.settled_usd),
            "asked_at": now,
            "needs": (with_setup(needs[0], question.pool(pod.pool), lived_s), *needs[1:]),
            "pipeline": (),
            "upstream": upstream,
            "existing_pod": pod,
            "quotes": tuple(current_quote(world, question, quote) for quote in question.quotes),
            "stockouts": tuple(each for each in question.stockouts if each.until > now),
            "learned": learn(known.receipts, needs, question.pools),
            "exploration_sd": exploration_sd(world.policy, needs[0], known.migrations),
            "notes": (place, *known.notes, *retry.notes),
            **money_fields(world, run, ledger, state),
            **time_since_pod_start(world, run, question, build_dag(needs, upstream).depth, lived_s),
        }
    )


def with_setup(need: Need, pool: Pool, lived_s: float) -> Need:
    """Return the need with the seconds that its pod has lived as part of its set-up, beyond the start-up that
    the plan knows of its pool.

    A set-up is counted in seconds of a reference core.
    """
    more_s = max(0.0, lived_s - pool.startup_s) * pool.core_speed
    return need.model_copy(update={"setup_s": need.setup_s + more_s})


def time_since_pod_start(
    world: World, run: Run, question: Question, steps: int, lived_s: float
) -> dict[str, Any]:
    """Return the fields of a question about the time that is left, counted from the pod's own start.

    The engine has no more to do for this stage: it has placed the pod.
    """
    engine, now = question.engine, world.clock.now()
    engine_s = engine.left_s(steps) - engine.place_s if engine else 0.0
    left_s, used_s = run.deadline_left_s(now), (now - run.start.started_at).total_seconds()
    left_s = None if left_s is None else left_s + lived_s
    return time_fields(engine, engine_s, left_s, used_s - lived_s) | {"soft_left_s": None}
