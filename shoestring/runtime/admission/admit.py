"""Admission: check that the whole run fits its budget and deadline, open its account, and reserve the cost of
deciding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import declared_stage
from shoestring.core.errors import BudgetTooSmall, DeadlineTooShort, RecipeError, Refused, UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import LAUNCHER_VARIABLE, PodRef
from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.data.job import Job, Task
from shoestring.data.run_records import Run, RunRecord, RunStart, open_run, read_record
from shoestring.routing.decide import with_branches, with_family
from shoestring.routing.decision import Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.pages.refusal_text import refusal_text
from shoestring.runtime.admission.approvals import approval_for, check_run_limits
from shoestring.runtime.admission.data_look import look_at_data
from shoestring.runtime.admission.extension_headroom import decide_with_headroom
from shoestring.runtime.admission.first_request import (
    RunRequest,
    overhead_at_start,
    stage_request_at_start,
)
from shoestring.runtime.admission.question.build import build_question
from shoestring.runtime.admission.stage_budgets import account_states, stage_budgets_left
from shoestring.runtime.admission.start_gate import (
    Headroom,
    check_data,
    check_start_time,
    max_wait_s,
)
from shoestring.runtime.records.lifetimes import launcher_is_alive
from shoestring.runtime.records.overhead import OVERHEAD, overhead_reservation
from shoestring.runtime.records.run_setup import (
    StartTerms,
    check_run_id,
    elastic_stage,
    just_started,
    run_id_of_label,
    write_engine_job,
    write_run_record,
    write_start,
)
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger


def check_stage_names(job: Job, needs: Iterable[Need]) -> None:
    """Raise RecipeError if a job has a budget for a stage that does not exist."""
    stages = [*dict.fromkeys(declared_stage(need.stage) for need in needs)]
    if unknown := sorted(set(job.stage_budgets_usd) - set(stages)):
        raise RecipeError(
            f"the recipe has a budget for {', '.join(unknown)}; the stages are {', '.join(stages)}"
        )


def check_recipe(world: World, request: RunRequest) -> None:
    """Raise what its author has to correct in the recipe, so that no record is left of such a run.

    Raises:
        RecipeError: a stage does not exist.
        UnknownName: there is no such campaign.
    """
    campaign, known = request.job.campaign, sorted(world.budgets.campaigns)
    if campaign and campaign not in known:
        raise UnknownName("campaign", campaign, known)
    check_stage_names(request.job, request.needs)


def admission_decision(
    world: World, request: RunRequest, spent_usd: Decimal, stage_budgets: dict[str, Decimal]
) -> Decision:
    """Return the decision for the first stage to pay, with overhead and extension headroom held back for all
    stages.

    Raises:
        Refused: the budget is above what one run may have, or its campaign is not open.
        UnknownName: there is no such campaign.
        RecipeError: the recipe has a budget for a stage that does not exist.
    """
    check_run_limits(world, request.budget_usd, request.job.campaign)
    check_stage_names(request.job, request.needs)
    request_at_start = stage_request_at_start(world, request, spent_usd, stage_budgets)
    question = with_family(with_branches(build_question(world, request_at_start)))
    return decide_with_headroom(question, enumerate_offers(question), world.policy)


def store_refusal(store: Store, decision: Decision) -> Refused:
    """Store a decision that chose nothing, and return the error with its reasons."""
    question = decision.question
    key = store_layout.decision(question.run_id, question.attempt_id)
    store.put(key, record_bytes(decision), if_absent=True)
    if decision.smallest_budget_usd is not None and decision.smallest_budget_usd > question.budget_usd:
        return BudgetTooSmall(question.budget_usd, decision.smallest_budget_usd, refusal_text(decision))
    if decision.smallest_deadline_s is not None:
        return DeadlineTooShort(decision.smallest_deadline_s, refusal_text(decision))
    return Refused(refusal_text(decision))


def with_model(store: Store, request: RunRequest) -> RunRequest:
    """Return the request of a pipeline that begins with a prediction with the run of the model in its recipe,
    so that all attempts use the same model; any other request as it is. Raises Refused."""
    if request.needs[0].stage != "predict" or request.origin is not None or not request.metered:
        return request
    # Imported here: no other pipeline needs it.
    from shoestring.models.run_models import find_model_run

    # It may be named by the engine's id, too.
    named = run_id_of_label(store, request.recipe.model)
    model = find_model_run(store, request.recipe.model_copy(update={"model": named}))
    return replace(request, task=request.recipe.model_copy(update={"model": model}))


def with_record(world: World, request: RunRequest) -> RunRequest:
    """Return the request with the task and the seed of the run's record, after a look at its data.

    A new run gets its record only if its recipe and its data can be used.
    """
    if any(world.store.list(store_layout.run_record(request.run_id))):
        record = read_record(world.store, store_layout.run_record(request.run_id), RunRecord)
        page = look_at_data(world, record.task, request.needs)
    else:
        check_recipe(world, request)
        request = with_model(world.store, request)
        page = look_at_data(world, request.task, request.needs)
        record = write_run_record(world, request.run_id, request.job, request.task)
        if page is not None:
            world.store.put(store_layout.data_page(request.run_id), record_bytes(page))
    write_engine_job(world, request.run_id, request.job_id)
    notes = page.notes if page else ()
    # A command that is started again here may be another one.
    task = request.task if request.runs_in_launcher else record.task
    found = replace(request, task=task, target_notes=notes)
    return found.with_terms(seed=record.job.seed, stage_budgets_usd=record.job.stage_budgets_usd)


def admit(world: World, request: RunRequest, notify: Callable[[str], object] = lambda _: None) -> Run:
    """Start a run, or start it again, if all of its stages fit the budget and the deadline.

    `notify` receives what will be predicted, once it has started.

    A run that is started again keeps its recipe and its seed. A command on this machine may be another one.

    Raises:
        Refused: the store has no model for its predictions, or another process drives the run.
        UsageError: its id is not valid, or its recipe is wrong.
        DataError: nothing can be predicted from its data.
        BudgetTooSmall: with the smallest budget that is enough.
        Refused: no pool fits, or the deadline cannot be met.
        ApprovalNeeded: the budget needs an approval first.
        BudgetExceeded: the month or the campaign has too little left; the message names which.
        NotYet: the policy delays the run, or other runs hold money that they may release.
    """
    check_run_id(request.run_id)
    check_data(world, request.task, request.waited_s)
    request = with_record(world, request)
    check_other_launcher(world, run := open_run(world.store, request.run_id))
    campaign, before = request.job.campaign, run.starts
    ledger = world_ledger(world)
    # A supervisor that outlived its launcher may still spend what it holds.
    spent_usd = sum((state.used_usd for state in account_states(ledger, before)), Decimal(0))
    caps = stage_budgets_left(world, ledger, request.job, before)
    decision = admission_decision(world, request, spent_usd, caps)
    if decision.choice is None:
        raise store_refusal(world.store, decision)
    approval = approval_for(world, request.run_id, request.budget_usd, request.deadline_s, campaign)
    if not before:
        check_start_time(world, decision, decision.choice, request.job.priority, request.waited_s)
    wait_s = max_wait_s(world, decision, decision.choice, request.waited_s)
    (headroom := Headroom(request.budget_usd - spent_usd, campaign, wait_s)).check(world, ledger)
    terms = start_terms(world, request, decision, run.record.task)
    start = write_start(world, request.run_id, len(before) + 1, terms)
    headroom.open_account(world, ledger, start, caps, approval)
    reserve_overhead(ledger, start, ledger.state(start.account))
    for sentence in request.target_notes or ():
        notify(sentence)
    return open_run(world.store, request.run_id)


def start_terms(world: World, request: RunRequest, decision: Decision, before: Task) -> StartTerms:
    """Return the terms of a start that this decision admits. `before`: the task of the start before it."""
    question = decision.question
    assert question.engine is not None
    engine = question.engine
    return StartTerms(
        budget_usd=request.budget_usd,
        deadline_s=request.deadline_s,
        launcher=launcher_of_process(),
        engine=engine,
        overhead_usd=overhead_at_start(world, request, len(question.needs), engine),
        elastic_stage=elastic_stage(request.needs),
        command=request.command if before != request.task else None,
    )


def check_other_launcher(world: World, run: Run) -> None:
    """Raise Refused if another process drives the run. A start that it makes after this look has the number
    of the one that this process would make, and `write_start` refuses that.
    """
    if run.starts and run.start.launcher != launcher_of_process() and launcher_is_alive(world, run):
        raise just_started(run.run_id)


def launcher_of_process() -> PodRef | None:
    """Return the process that launched this run, from the environment; None: an engine did."""
    identity = os.environ.get(LAUNCHER_VARIABLE)
    return PodRef.parse(identity) if identity else None


def reserve_overhead(ledger: Ledger, start: RunStart, state: AccountState) -> None:
    """Reserve what deciding and settling may cost, once; also if the process that admitted the run died
    before this.
    """
    name = overhead_reservation(start)
    if not state.closed and name not in state.reservations and name not in state.settled_usd:
        ledger.reserve(start.account, name, OVERHEAD, start.number, start.overhead_usd)


def find_or_admit(world: World, request: RunRequest) -> Run:
    """Return the run if its launcher has started it; otherwise admit it.

    The first router of a run admits it where only an engine launched it, or where the launcher died before
    admission was complete. A run without a launcher that has ended is started again, since its engine
    retries it.
    """
    check_run_id(request.run_id)
    if any(world.store.list(store_layout.starts(request.run_id))):
        run, ledger = open_run(world.store, request.run_id), world_ledger(world)
        states = account_states(ledger, (run.start,))
        if states and not (states[0].closed and run.start.launcher is None):
            reserve_overhead(ledger, run.start, states[0])
            write_engine_job(world, run.run_id, request.job_id)
            return run
    return admit(world, request)
