"""The step before a stage: ask, decide, reserve, write it down."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.core.types import record_bytes
from shoestring.data.run_records import Run, read
from shoestring.data.storage.blobs import put_blob
from shoestring.routing.decide import decide
from shoestring.routing.decision import Choice, Decision, Question
from shoestring.routing.pages.explain import as_markdown
from shoestring.routing.placement import driver_outputs
from shoestring.runtime.admission.admit import (
    Wish,
    admitted,
    as_begun,
    having_waited,
    next_attempt,
    refuse,
    stage_budgets_left,
)
from shoestring.runtime.admission.build_question import Asked, Reads, ask
from shoestring.runtime.admission.start_gate import in_time
from shoestring.runtime.records.overhead import overhead
from shoestring.runtime.records.receipts import decision_key
from shoestring.runtime.records.run_setup import write_job
from shoestring.runtime.route_step.concurrent_stages import to_be_planned
from shoestring.runtime.route_step.external_components import let_go
from shoestring.runtime.route_step.retry import Earlier, adopt, look_back, undelivered
from shoestring.spending.ledger.ledger import Ledger

RACES = 5


def asked_now(world: World, run: Run, wish: Wish, reads: Reads, ledger: Ledger, earlier: Earlier) -> Asked:
    """What is known at this moment. An earlier start's spending is not in the start's account, but in its cap; what was approved since
    is in both."""
    state, stage = ledger.state(run.start.account), wish.needs[0].stage
    budget_usd = run.start.budget_usd + state.raised_usd
    earlier_usd = budget_usd - (state.cap_usd or Decimal(0))
    needs, given = to_be_planned(world, run, wish.needs, state)
    return Asked(
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
        notes=(*as_begun(run, wish), *earlier.notes),
        memory_gb=earlier.memory_gb,
        origin=wish.origin,
        keeps_books=wish.keeps_books,
    )


def decide_and_reserve(world: World, run: Run, wish: Wish, reads: Reads) -> tuple[Decision, str]:
    """The decision, and its key; what it may cost is reserved. A race that is lost is run again on fresh offers.

    Of two routers of one attempt, the ledger takes one's reservation, and both give its decision; so does one that is run again.

    Raises:
        BudgetTooSmall, Refused: the decision is kept all the same.
        Refused: it was tried before, and trying again does not help.
        BudgetExceeded: lost the race `RACES` times.
    """
    ledger, stage = Ledger(world.store, world.clock, world.pod_uid), wish.needs[0].stage
    if found := undelivered(world, run, ledger, stage):
        return found
    earlier = look_back(world, run, ledger, stage)
    races = RACES
    while True:
        decision = decide(ask(world, asked_now(world, run, wish, reads, ledger, earlier)))
        if decision.choice is None:
            raise refuse(world.store, decision)
        try:
            return reserve_and_write(world, run, ledger, decision, decision.choice)
        except BudgetExceeded:
            races -= 1
            if not races:
                raise


def to_reserve_usd(question: Question, choice: Choice) -> Decimal:
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
        key = decision_key(run.run_id, question.hold)
        world.store.put(key, record_bytes(decision), if_absent=True)
        return read(world.store, key, Decision), key
    kept_as = f"blobs/{put_blob(world.store, record_bytes(decision))}"
    amount_usd = to_reserve_usd(question, choice)
    try:
        ledger.reserve(
            account, question.hold, question.stage, question.attempt, amount_usd, choice.keep_usd, kept_as
        )
    except LedgerConflict:
        if question.hold not in ledger.state(account).holds:
            raise
    return adopt(world, run, question.hold, ledger.state(account).holds[question.hold])


def route(world: World, wish: Wish, reads: Reads, decision_path: str, page_path: str) -> dict[str, Any]:
    """Route one stage; the values that the engine puts on its pod. The decision and its page are written to the two paths."""
    most_s = world.policy.start.budget_wait_s
    say = partial(print, flush=True)
    run = in_time(
        world, wish.run_id, lambda waited_s: admitted(world, having_waited(wish, waited_s)), most_s, say
    )
    write_job(world, run.run_id, wish.job_id)
    with overhead(world, run, f"route-{wish.needs[0].stage}"):
        decision, key = decide_and_reserve(world, run, wish, reads)
        if not wish.keeps_books:
            let_go(world, decision, wish.job_id or run.run_id)
        Path(decision_path).write_bytes(record_bytes(decision))
        Path(page_path).write_text(as_markdown(decision))
        return driver_outputs(decision, key)
