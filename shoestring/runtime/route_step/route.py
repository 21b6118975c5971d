"""The route step before a stage: build the question, decide, reserve, write the decision."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.core.text import join_names
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, read_record
from shoestring.data.storage.blobs import put_blob
from shoestring.routing.dag import build_dag
from shoestring.routing.decide import choose, with_branches, with_family
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.pages.explain import as_markdown
from shoestring.routing.placement import ROUTE, driver_outputs
from shoestring.routing.question import Question
from shoestring.runtime.admission.admit import find_or_admit, store_refusal
from shoestring.runtime.admission.extension_headroom import leaving_exits
from shoestring.runtime.admission.first_request import (
    RunRequest,
    after_waiting,
    next_attempt,
    times_of_engine,
)
from shoestring.runtime.admission.question.build import build_question
from shoestring.runtime.admission.stage_budgets import stage_budgets_left
from shoestring.runtime.admission.stage_request import StageInputs, StageRequest
from shoestring.runtime.admission.start_gate import start_when_allowed
from shoestring.runtime.records.overhead import OverheadPod, overhead_timer
from shoestring.runtime.records.run_setup import run_id_of_label
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.route_step.concurrent_stages import stages_to_plan
from shoestring.runtime.route_step.external_components import (
    announce_external,
    ended_components,
    settle_external,
)
from shoestring.runtime.route_step.item_money import ItemMoney, check_item
from shoestring.runtime.route_step.retry import (
    RetryContext,
    settle_earlier_attempts,
    undelivered_decision,
    write_reserved_decision,
)
from shoestring.runtime.route_step.shared_result import SharedResult
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger

# How often a router decides again after another run took the money between its decision and its reservation.
MAX_RACES = 5


def stage_request(
    world: World, run: Run, request: RunRequest, inputs: StageInputs, ledger: Ledger, retry: RetryContext
) -> StageRequest:
    """Return what is known about the stage at this moment."""
    state, stage = ledger.state(run.start.account), request.needs[0].stage
    needs, upstream = stages_to_plan(world, run, request.needs, state)
    engine, engine_notes = times_of_engine(world, run.start.engine or request.engine, run.start.started_at)
    return StageRequest(
        run_id=run.run_id,
        task=run.record.task,
        seed=run.record.job.seed,
        needs=needs,
        upstream=upstream,
        inputs=inputs,
        attempt=next_attempt(world.store, run.run_id, stage, state.settled_usd),
        **money_fields(world, run, ledger, state),
        deadline_left_s=run.deadline_left_s(world.clock.now()),
        deadline_used_s=max(0.0, (world.clock.now() - run.start.started_at).total_seconds()),
        engine=engine,
        engine_s=0.0 if request.runs_in_launcher else engine.left_s(build_dag(needs, upstream).depth),
        began_at=run.start.started_at,
        notes=(*request_differences(world.store, run, request), *retry.notes, *engine_notes),
        min_memory_gb=retry.min_memory_gb,
        origin=request.origin,
        metered=request.metered,
        family=checkpoint_family(world.store, run.run_id) if request.needs[0].stage == "train" else "",
        item_sha256=request.item.sha256 if request.item else "",
    )


def checkpoint_family(store: Store, run_id: str) -> str:
    """Return the family whose training a run's checkpoint continues; empty: it has none, or its recipe names
    the family."""
    # Imported late: no other stage's router needs the modules of the training.
    from shoestring.training.checkpoints import read_pointer

    attempt = read_pointer(store, run_id).attempt
    if not attempt:
        return ""
    key = store_layout.decision(run_id, str(AttemptId(run_id, "train", attempt)))
    chosen = read_record(store, key, Decision).question.family
    return chosen.name if chosen else ""


def money_fields(world: World, run: Run, ledger: Ledger, state: AccountState) -> dict[str, Any]:
    """Return the fields of a request, and of a question, about the money that is left.

    The spending of an earlier start is not in this start's account, but lowers its cap. A later approval
    raises both the budget and the cap.
    """
    budget_usd = run.start.budget_usd + state.cap_raised_usd
    earlier_usd = budget_usd - (state.cap_usd or Decimal(0))
    return {
        "budget_usd": budget_usd,
        "spent_usd": earlier_usd + state.used_usd - state.held_usd,
        "held_usd": state.held_usd,
        "stage_budgets": stage_budgets_left(world, ledger, run.record.job, run.starts),
    }


def request_differences(store: Store, run: Run, request: RunRequest) -> tuple[str, ...]:
    """Return a note if the engine asks for something else than what the run was started with; none if it does
    not.
    """
    start, stored = run.start, run.record
    deadline_s = (start.deadline_at - start.started_at).total_seconds() if start.deadline_at else None
    task = request.task
    if isinstance(task, Recipe) and stored.recipe is not None:
        # Admission wrote the run of the model into the recipe.
        model = run_id_of_label(store, task.model) or stored.recipe.model
        task = task.model_copy(update={"model": model})
    differs = {
        f"a budget of ${start.budget_usd}, not ${request.budget_usd}": start.budget_usd != request.budget_usd,
        f"a deadline of {deadline_s} s, not {request.deadline_s}": deadline_s != request.deadline_s,
        f"the seed {stored.job.seed}, not {request.job.seed}": stored.job.seed != request.job.seed,
        # The record of a pipeline of commands has the one that was routed first.
        f"its {'recipe' if stored.recipe else 'command'}, not the one that was passed now": (
            request.command is None or request.runs_in_launcher
        )
        and record_bytes(stored.task) != record_bytes(task),
    }
    if not (differences := [text for text, differing in differs.items() if differing]):
        return ()
    return (
        f"{run.run_id} keeps its first settings: {join_names(differences)}; use a new run id to change them",
    )


def decide_and_reserve(
    world: World, run: Run, request: RunRequest, inputs: StageInputs, pod: OverheadPod | None = None
) -> tuple[Decision, str]:
    """Decide, reserve what the choice may cost, and return the decision and its key.

    Where another run computes the result, it waits for that first; `pod` counts the wait. Of two routers of
    one attempt, the ledger accepts one reservation, and both return its decision; so does a router that is
    run again.

    Raises:
        BudgetTooSmall, Refused: no offer fits; the decision is stored all the same.
        Refused: an earlier attempt ended in a way that another attempt would repeat.
        BudgetExceeded: other runs took the money `MAX_RACES` times.
    """
    ledger, stage = world_ledger(world), request.needs[0].stage
    if found := undelivered_decision(world, run, ledger, stage):
        return found
    check_item(world, run, stage, request.item)
    retry = settle_earlier_attempts(world, run, ledger, stage)
    if ended := ended_components(world, run, ledger, stage):
        settle_external(world, run, run.start, ended)

    def ask() -> Question:
        money.look()
        return build_question(world, stage_request(world, run, request, inputs, ledger, retry))

    shared = SharedResult(world, run, ledger, pod or OverheadPod())
    money = ItemMoney(world, run, ledger, stage, shared)
    return reserve_choice(world, run, ledger, ask, shared, money.may_come)


def reserve_choice(
    world: World,
    run: Run,
    ledger: Ledger,
    ask: Callable[[], Question],
    shared: SharedResult,
    money_may_come: Callable[[], bool] = lambda: False,
) -> tuple[Decision, str]:
    """Answer a question, reserve what the choice may cost, and return the decision and its key.

    If another run takes the money first, or has computed the result, asks and decides again. So it does where
    there is too little, as long as `money_may_come()`, which waits. Raises the same as `decide_and_reserve`.
    """
    races = MAX_RACES
    while True:
        question = with_branches(shared.noted(ask()))
        offers = enumerate_offers(question)
        question = leaving_exits(question, offers, world.policy)
        if question.families:
            question = with_family(question)
            offers = enumerate_offers(question)
        decision = choose(question, offers)
        if decision.choice is None and may_be_late(run, question):
            decision = choose(question.without_deadline(), offers)
        if decision.choice is None:
            if money_may_come():
                continue
            raise store_refusal(world.store, decision)
        amount_usd = reservation_usd(question, decision.choice)
        if not shared.claim(decision, decision.choice, amount_usd):
            continue
        try:
            return reserve_and_write(world, run, ledger, decision, decision.choice)
        except BudgetExceeded:
            races -= 1
            if races < 1 and not money_may_come():
                raise


def may_be_late(run: Run, question: Question) -> bool:
    """Return whether a stage may miss the deadline: it is soft, and the elastic stage is done.

    A training that is paid for is evaluated.
    """
    is_after_elastic = any(start.elastic_stage for start in run.starts) and not any(
        need.elastic for need in question.needs
    )
    is_soft = run.record.job.deadline_kind == "soft"
    return is_soft and is_after_elastic and question.deadline_left_s is not None


def reservation_usd(question: Question, choice: Choice) -> Decimal:
    """Return the amount to reserve: the P95 of fixed work; the whole budget of an elastic stage, which is
    never extended.
    """
    return choice.budget_usd if question.needs[0].elastic else choice.p95_usd


def reserve_and_write(
    world: World, run: Run, ledger: Ledger, decision: Decision, choice: Choice
) -> tuple[Decision, str]:
    """Reserve and write the decision. The reservation names the decision, so that a concurrent router can
    find it.

    Raises:
        BudgetExceeded: another run took the money.
        LedgerConflict: the account is closed.
    """
    question, account = decision.question, run.start.account
    name = str(question.attempt_id)
    if choice.cached:
        key = store_layout.decision(run.run_id, name)
        world.store.put(key, record_bytes(decision), if_absent=True)
        return read_record(world.store, key, Decision), key
    blob_key = store_layout.blob(put_blob(world.store, record_bytes(decision)))
    amount_usd = reservation_usd(question, choice)
    try:
        ledger.reserve(
            account, name, question.stage, question.attempt, amount_usd, choice.reserved_later_usd, blob_key
        )
    except LedgerConflict:
        reservation = ledger.state(account).reservations.get(name)
        if reservation is None:
            raise
        decision = read_record(world.store, reservation.decision_key, Decision)
    return write_reserved_decision(world, run, name, decision)


def route(
    world: World, request: RunRequest, inputs: StageInputs, decision_path: str, page_path: str
) -> dict[str, Any]:
    """Route one stage and return the values that the engine puts on its pod.

    The decision and its page are written to the two paths.
    """
    run = begin_run(world, request)
    with overhead_timer(world, run, step_name(request)) as pod:
        decision, key = decide_and_reserve(world, run, request, inputs, pod)
        if not request.metered:
            announce_external(world, decision, request.job_id)
        Path(decision_path).write_bytes(record_bytes(decision))
        Path(page_path).write_text(as_markdown(decision))
        return driver_outputs(decision, key)


def begin_run(world: World, request: RunRequest) -> Run:
    """Return the run, which is admitted if it does not exist yet. Raises the same as `start_when_allowed`."""

    def begin(waited_s: float) -> Run:
        return find_or_admit(world, after_waiting(request, waited_s))

    max_s = world.policy.start.budget_wait_s
    return start_when_allowed(world, request.run_id, begin, max_s, partial(print, flush=True))


def step_name(request: RunRequest) -> str:
    """Return the name of a route step in the overhead's records."""
    return f"{ROUTE}{request.needs[0].stage}"
