"""Admission: check that the whole run fits its budget and deadline, open its account, and reserve the cost of
deciding.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import takewhile

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import BudgetTooSmall, DeadlineTooShort, RecipeError, Refused, UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.core.text import join_names
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, RunStart, open_run
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.pages.refusal_text import refusal_text
from shoestring.runtime.admission.approvals import approval_for, check_run_limits
from shoestring.runtime.admission.build_question import build_question
from shoestring.runtime.admission.extension_headroom import decide_with_headroom
from shoestring.runtime.admission.result_keys import StageWork
from shoestring.runtime.admission.stage_request import StageInputs, StageRequest, cached_chain
from shoestring.runtime.admission.stages import is_builtin
from shoestring.runtime.admission.start_gate import (
    Headroom,
    check_data,
    check_start_time,
    max_wait_s,
    target_notes,
)
from shoestring.runtime.records.overhead import OVERHEAD, overhead_reservation, overhead_usd
from shoestring.runtime.records.run_setup import check_run_id, write_run_record, write_start
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages.work import Origin

LAUNCHER_VARIABLE = "SHOESTRING_LAUNCHER"
# Between admission and the first router, the engine compiles the pipeline and starts. On a busy laptop that
# takes up to this long.
ENGINE_START_S = 5.0


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A person's request for a run.

    `job_id` is the engine's own id for the run, where it has one. `waited_s` is how long the run has waited
    to start. `metered` is false for an external component, which no supervisor meters.
    """

    run_id: str
    recipe: Recipe
    needs: tuple[Need, ...]
    budget_usd: Decimal
    deadline_s: float | None
    seed: int
    origin: Origin | None = None
    metered: bool = True
    job_id: str = ""
    waited_s: float = 0.0


def after_waiting(request: RunRequest, waited_s: float) -> RunRequest:
    """Return the request after a wait, with that much less time to the deadline."""
    left_s = None if request.deadline_s is None else max(1.0, request.deadline_s - waited_s)
    return replace(request, waited_s=waited_s, deadline_s=left_s)


def next_attempt(store: Store, run_id: str, stage: str, reserved: Collection[str] = ()) -> int:
    """Return the number of a stage's next attempt: one more than every decision's, and every name in
    `reserved`.
    """
    decided = (
        key.rpartition("/")[2].removesuffix(".json")
        for key in store.list(store_layout.decisions(run_id, stage))
    )
    attempts = (AttemptId.parse(run_id, name) for name in (*decided, *reserved))
    return 1 + max((attempt.number for attempt in attempts if attempt.stage == stage), default=0)


def stages_to_pay(world: World, request: RunRequest) -> tuple[tuple[Need, ...], StageInputs]:
    """Return the stages from the first one that is not cached, and what that one reads.

    Results are looked up as long as each stage reads the one before it, and none after a branch.
    The next stage has to be built-in: only its own router knows the code of an author's stage.
    """
    needs, inputs = request.needs, StageInputs()
    if request.origin is None and request.metered:
        rests = (request.needs[index:] for index in range(len(request.needs) - 1))
        chain = (rest[0] for rest in takewhile(is_only_successor, rests))
        first = StageWork(request.recipe, request.seed, request.run_id, needs[0].stage, "", inputs)
        for _, _, inputs in cached_chain(world, first, chain):  # noqa: B007  the last one is returned
            needs = needs[1:]
    return needs, inputs


def is_only_successor(needs: tuple[Need, ...]) -> bool:
    """Return whether the second stage is built-in, and the only one that can begin after the first."""
    return is_builtin(needs[1].stage) and build_dag(needs).not_after(1) == [0]


def stage_request_at_start(
    world: World, request: RunRequest, spent_usd: Decimal, stage_budgets: dict[str, Decimal]
) -> StageRequest:
    """Return the request for the first stage that is not cached, with all overhead held back."""
    needs, inputs = stages_to_pay(world, request)
    cached = [need.stage for need in request.needs[: len(request.needs) - len(needs)]]
    return StageRequest(
        run_id=request.run_id,
        recipe=request.recipe,
        seed=request.seed,
        needs=needs,
        inputs=inputs,
        attempt=next_attempt(world.store, request.run_id, needs[0].stage),
        budget_usd=request.budget_usd,
        spent_usd=spent_usd,
        held_usd=overhead_usd(world, len(request.needs)),
        stage_budgets=stage_budgets,
        deadline_left_s=None if request.deadline_s is None else request.deadline_s - ENGINE_START_S,
        deadline_used_s=ENGINE_START_S,
        began_at=world.clock.now(),
        notes=(
            *target_notes(request.recipe, request.needs),
            *([f"nothing is paid for {join_names(cached)}: the results are cached"] if cached else []),
        ),
        origin=request.origin,
        metered=request.metered,
    )


def account_states(ledger: Ledger, starts: tuple[RunStart, ...]) -> list[AccountState]:
    """Return the accounts of these starts. A start whose admission died before it opened its account has
    none.
    """
    states = []
    for start in starts:
        with suppress(UnknownName):
            states.append(ledger.state(start.account))
    return states


def stage_budgets(world: World, recipe: Recipe) -> dict[str, Decimal]:
    """Return the budgets of single stages: the recipe's or the world's, whichever is smaller."""
    theirs = world.budgets.stages
    return theirs | {
        stage: min(cap_usd, theirs.get(stage, cap_usd)) for stage, cap_usd in recipe.stage_budgets_usd.items()
    }


def stage_budgets_left(
    world: World, ledger: Ledger, recipe: Recipe, starts: tuple[RunStart, ...]
) -> dict[str, Decimal]:
    """Return the budgets of single stages, less what these starts of the run spent on them or still hold."""
    left = stage_budgets(world, recipe)
    for stages in (state.stages for state in account_states(ledger, starts)):
        taken = {stage: stages[stage].spent_usd + stages[stage].held_usd for stage in left if stage in stages}
        left |= {stage: max(Decimal(0), left[stage] - taken_usd) for stage, taken_usd in taken.items()}
    return left


def check_stage_names(request: RunRequest) -> None:
    """Raise RecipeError if the recipe has a budget for a stage that does not exist."""
    stages = [need.stage for need in request.needs]
    if unknown := sorted(set(request.recipe.stage_budgets_usd) - set(stages)):
        raise RecipeError(
            f"the recipe has a budget for {', '.join(unknown)}; the stages are {', '.join(stages)}"
        )


def check_recipe(world: World, request: RunRequest) -> None:
    """Raise what its author has to correct in the recipe or the data, so that no record is left of such a
    run.

    Raises:
        DataError, RecipeError: nothing can be predicted from this data, or a stage does not exist.
        UnknownName: there is no such campaign.
    """
    campaign, known = request.recipe.campaign, sorted(world.budgets.campaigns)
    if campaign and campaign not in known:
        raise UnknownName("campaign", campaign, known)
    check_stage_names(request)
    target_notes(request.recipe, request.needs)


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
    check_run_limits(world, request.budget_usd, request.recipe.campaign)
    check_stage_names(request)
    question = build_question(world, stage_request_at_start(world, request, spent_usd, stage_budgets))
    return decide_with_headroom(question, enumerate_offers(question))


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


def admit(world: World, request: RunRequest) -> Run:
    """Start a run, or start it again, if all of its stages fit the budget and the deadline.

    A run that is started again keeps its recipe and its seed.

    Raises:
        UsageError: its id is not valid, or its recipe is wrong.
        DataError: nothing can be predicted from its data.
        BudgetTooSmall: with the smallest budget that is enough.
        Refused: no pool fits, or the deadline cannot be met.
        ApprovalNeeded: the budget needs an approval first.
        BudgetExceeded: the month or the campaign has too little left; the message names which.
        NotYet: the policy delays the run, or other runs hold money that they may release.
    """
    check_run_id(request.run_id)
    check_data(world, request.recipe, request.waited_s)
    if not any(world.store.list(store_layout.run_record(request.run_id))):
        check_recipe(world, request)
    stored = write_run_record(world, request.run_id, request.recipe, request.seed)
    request = replace(request, recipe=stored.recipe, seed=stored.seed)
    campaign, before = request.recipe.campaign, open_run(world.store, request.run_id).starts
    ledger = Ledger(world.store, world.clock, str(world.pod))
    # A supervisor that outlived its launcher may still spend what it holds.
    spent_usd = sum(
        (state.spent_usd + state.held_usd for state in account_states(ledger, before)), Decimal(0)
    )
    caps = stage_budgets_left(world, ledger, request.recipe, before)
    decision = admission_decision(world, request, spent_usd, caps)
    if decision.choice is None:
        raise store_refusal(world.store, decision)
    approval = approval_for(world, request.run_id, request.budget_usd, request.deadline_s, campaign)
    if not before:
        check_start_time(world, decision, decision.choice, request.recipe, request.waited_s)
    wait_s = max_wait_s(world, decision, decision.choice, request.waited_s)
    headroom = Headroom(request.budget_usd - spent_usd, campaign, wait_s)
    headroom.check(world, ledger)
    number, budget_usd, deadline_s = len(before) + 1, request.budget_usd, request.deadline_s
    start = write_start(world, request.run_id, number, budget_usd, deadline_s, launcher_of_process())
    headroom.open_account(world, ledger, start, caps, approval)
    reserve_overhead(world, ledger, start, len(request.needs))
    return open_run(world.store, request.run_id)


def launcher_of_process() -> PodRef | None:
    """Return the process that launched this run, from the environment; None: an engine did."""
    identity = os.environ.get(LAUNCHER_VARIABLE)
    return PodRef.parse(identity) if identity else None


def reserve_overhead(world: World, ledger: Ledger, start: RunStart, stages: int) -> None:
    """Reserve what deciding and settling may cost, once; also if the process that admitted the run died
    before this.
    """
    state, name = ledger.state(start.account), overhead_reservation(start)
    if not state.closed and name not in state.reservations and name not in state.settled_usd:
        ledger.reserve(start.account, name, OVERHEAD, start.number, overhead_usd(world, stages))


def find_or_admit(world: World, request: RunRequest) -> Run:
    """Return the run if its launcher has started it; otherwise admit it.

    The first router of a run admits it where only an engine launched it, or where the launcher died before
    admission was complete. A run without a launcher that has ended is started again, since its engine
    retries it.
    """
    check_run_id(request.run_id)
    if any(world.store.list(store_layout.starts(request.run_id))):
        run, ledger = open_run(world.store, request.run_id), Ledger(world.store, world.clock, str(world.pod))
        states = account_states(ledger, (run.start,))
        if states and not (states[0].closed and run.start.launcher is None):
            reserve_overhead(world, ledger, run.start, len(request.needs))
            return run
    return admit(world, request)
