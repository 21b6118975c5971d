"""The step before a stage: ask, decide, reserve, write it down."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, read_record
from shoestring.data.storage.blobs import put_blob
from shoestring.routing.decide import decide
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.question import Question
from shoestring.routing.pages.explain import as_markdown
from shoestring.routing.placement import driver_outputs
from shoestring.runtime.admission.admit import (
    RunRequest,
    after_waiting,
    find_or_admit,
    next_attempt,
    request_differences,
    stage_budgets_left,
    store_refusal,
)
from shoestring.runtime.admission.build_question import StageInputs, StageRequest, build_question
from shoestring.runtime.admission.start_gate import start_when_allowed
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.records.receipts import decision_key
from shoestring.runtime.records.run_setup import write_engine_job
from shoestring.runtime.route_step.concurrent_stages import stages_to_plan
from shoestring.runtime.route_step.external_components import announce_external
from shoestring.runtime.route_step.retry import (
    RetryContext,
    decision_of_hold,
    settle_earlier_attempts,
    undelivered_decision,
)
from shoestring.spending.ledger.ledger import Ledger

MAX_RACES = 5


def stage_request(world: World, run: Run, wish: RunRequest, reads: StageInputs, ledger: Ledger, earlier: RetryContext) -> StageRequest:
    """What is known at this moment. An earlier start's spending is not in the start's account, but in its cap; what was approved since
    is in both."""
    state, stage = ledger.state(run.start.account), wish.needs[0].stage
    budget_usd = run.start.budget_usd + state.cap_raised_usd
    earlier_usd = budget_usd - (state.cap_usd or Decimal(0))
    needs, given = stages_to_plan(world, run, wish.needs, state)
    return StageRequest(
        run_id=run.run_id,
        recipe=run.record.recipe,
        seed=run.record.seed,
        needs=needs,
        given=given,
        reads=reads,
        attempt=next_attempt(world.store, run.run_id, stage, state.settled_usd),
        budget_usd=budget_usd,
        spent_usd=earlier_usd + state.spent_usd,
        held_usd=state.held_usd,
        stage_budgets=stage_budgets_left(world, ledger, run.record.recipe, run.starts),
        deadline_left_s=run.deadline_left_s(world.clock.now()),
        began_at=run.start.started_at,
        notes=(*request_differences(run, wish), *earlier.notes),
        memory_gb=earlier.memory_gb,
        origin=wish.origin,
        metered=wish.metered,
    )


def decide_and_reserve(world: World, run: Run, wish: RunRequest, reads: StageInputs) -> tuple[Decision, str]:
    """The decision, and its key; what it may cost is reserved. A race that is lost is run again on fresh offers.

    Of two routers of one attempt, the ledger takes one's reservation, and both give its decision; so does one that is run again.

    Raises:
        BudgetTooSmall, Refused: the decision is kept all the same.
        Refused: it was tried before, and trying again does not help.
        BudgetExceeded: lost the race `MAX_RACES` times.
    """
    ledger, stage = Ledger(world.store, world.clock, str(world.pod)), wish.needs[0].stage
    if found := undelivered_decision(world, run, ledger, stage):
        return found
    earlier = settle_earlier_attempts(world, run, ledger, stage)
    races = MAX_RACES
    while True:
        decision = decide(build_question(world, stage_request(world, run, wish, reads, ledger, earlier)))
        if decision.choice is None:
            raise store_refusal(world.store, decision)
        try:
            return reserve_and_write(world, run, ledger, decision, decision.choice)
        except BudgetExceeded:
            races -= 1
            if not races:
                raise


def reservation_usd(question: Question, choice: Choice) -> Decimal:
    """A stage of fixed work gets its P95, an elastic one all that it may have: it is never extended."""
    return choice.budget_usd if question.needs[0].elastic else choice.p95_usd


def reserve_and_write(
    world: World, run: Run, ledger: Ledger, decision: Decision, choice: Choice
) -> tuple[Decision, str]:
    """The reservation names the decision that it was made for, so that whoever comes second finds it there.

    Raises:
        BudgetExceeded: somebody else took the money meanwhile.
        LedgerConflict: the account is closed.
    """
    question, account = decision.question, run.start.account
    if choice.cached:
        key = decision_key(run.run_id, str(question.attempt_id))
        world.store.put(key, record_bytes(decision), if_absent=True)
        return read_record(world.store, key, Decision), key
    kept_as = f"blobs/{put_blob(world.store, record_bytes(decision))}"
    amount_usd = reservation_usd(question, choice)
    try:
        ledger.reserve(
            account, str(question.attempt_id), question.stage, question.attempt, amount_usd, choice.reserved_later_usd, kept_as
        )
    except LedgerConflict:
        if str(question.attempt_id) not in ledger.state(account).reservations:
            raise
    return decision_of_hold(world, run, str(question.attempt_id), ledger.state(account).reservations[str(question.attempt_id)])


def route(world: World, wish: RunRequest, reads: StageInputs, decision_path: str, page_path: str) -> dict[str, Any]:
    """Route one stage; the values that the engine puts on its pod. The decision and its page are written to the two paths."""
    most_s = world.policy.start.budget_wait_s
    say = partial(print, flush=True)
    run = start_when_allowed(
        world, wish.run_id, lambda waited_s: find_or_admit(world, after_waiting(wish, waited_s)), most_s, say
    )
    write_engine_job(world, run.run_id, wish.job_id)
    with overhead_timer(world, run, f"route-{wish.needs[0].stage}"):
        decision, key = decide_and_reserve(world, run, wish, reads)
        if not wish.metered:
            announce_external(world, decision, wish.job_id or run.run_id)
        Path(decision_path).write_bytes(record_bytes(decision))
        Path(page_path).write_text(as_markdown(decision))
        return driver_outputs(decision, key)
