"""Before anything starts: does the whole run fit? Then its account is opened and what deciding costs is set aside."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import takewhile

from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, BudgetTooSmall, RecipeError, Refused, UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.money import usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, RunStart, open_run
from shoestring.routing.dag import build_dag
from shoestring.routing.decide import choose, smallest_plan_costs
from shoestring.routing.candidates import Candidates
from shoestring.routing.decision import Decision
from shoestring.routing.question import Question
from shoestring.routing.offers.enumerate import candidates
from shoestring.routing.pages.text import listed
from shoestring.runtime.admission.approvals import (
    approval_for,
    check_run_limits,
    parent_caps,
    set_parent_caps,
)
from shoestring.runtime.admission.build_question import (
    StageInputs,
    StageRequest,
    build_question,
    cached_chain,
    is_builtin,
)
from shoestring.runtime.admission.start_gate import check_caps, check_data, check_start_time, max_wait_s
from shoestring.runtime.records.overhead import OVERHEAD, overhead_hold, overhead_usd
from shoestring.runtime.records.receipts import decision_key
from shoestring.runtime.records.run_setup import check_run_id, write_run_record, write_start
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages.work import Origin

LAUNCHER_VARIABLE = "SHOESTRING_LAUNCHER"
# What a stage that is past its P95 asks for, as a share of it.
EXTENSION_SHARE = Decimal("0.5")
# What a stage that is past its P95 usually needs more, as a share of it.
OVERRUN_SHARE = Decimal("0.2")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a person asked for. `job_id`: what its engine calls the run, where that has an id of its own for it.

    `waited_s`: for the moment to begin at."""

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


def after_waiting(wish: RunRequest, waited_s: float) -> RunRequest:
    """What is still asked for, so much later: a deadline comes nearer."""
    left_s = None if wish.deadline_s is None else max(1.0, wish.deadline_s - waited_s)
    return replace(wish, waited_s=waited_s, deadline_s=left_s)


def next_attempt(store: Store, run_id: str, stage: str, held: Collection[str] = ()) -> int:
    """The number after those that were decided, and after those in the names that the account has had `held`, decided or not."""
    decided = (
        key.rpartition("/")[2].removesuffix(".json")
        for key in store.list(f"runs/{run_id}/decisions/{stage}-")
    )
    names = (name.rpartition("-") for name in (*decided, *held))
    return 1 + max((int(number) for of, _, number in names if of == stage), default=0)


def stages_to_pay(world: World, wish: RunRequest) -> tuple[tuple[Need, ...], StageInputs]:
    """The stages from the first on whose result is not there yet, and what that one reads: its predecessor's result.

    Only results that serve any run are looked for, each reading the one before it, and none behind where the stages branch. What comes
    next has to be one of ours: of an author's own stage, nobody but its own router is told where its code is.
    """
    needs, reads = wish.needs, StageInputs()
    if wish.origin is None and wish.metered:
        rests = takewhile(is_only_successor, (wish.needs[at:] for at in range(len(wish.needs) - 1)))
        walked = (rest[0] for rest in rests)
        for _, there in cached_chain(world.store, wish.recipe, wish.seed, wish.run_id, walked, reads):
            needs, reads = needs[1:], StageInputs(there.key)
    return needs, reads


def is_only_successor(needs: tuple[Need, ...]) -> bool:
    """Is the second of these stages one of ours, and the only one that could begin after the first?"""
    return is_builtin(needs[1].stage) and build_dag(needs).not_after(1) == [0]


def stage_request_at_start(world: World, wish: RunRequest, spent_usd: Decimal, stage_budgets: dict[str, Decimal]) -> StageRequest:
    needs, reads = stages_to_pay(world, wish)
    there = [need.stage for need in wish.needs[: len(wish.needs) - len(needs)]]
    return StageRequest(
        run_id=wish.run_id,
        recipe=wish.recipe,
        seed=wish.seed,
        needs=needs,
        reads=reads,
        attempt=next_attempt(world.store, wish.run_id, needs[0].stage),
        budget_usd=wish.budget_usd,
        spent_usd=spent_usd,
        held_usd=overhead_usd(world, len(wish.needs)),
        stage_budgets=stage_budgets,
        deadline_left_s=wish.deadline_s,
        began_at=world.clock.now(),
        notes=(f"nothing is paid for {listed(there)}: the results are there already",) if there else (),
        origin=wish.origin,
        metered=wish.metered,
    )


def account_states(ledger: Ledger, starts: tuple[RunStart, ...]) -> list[AccountState]:
    """The accounts of these starts; a start whose admission died before it opened its own has none."""
    states = []
    for start in starts:
        with suppress(UnknownName):
            states.append(ledger.state(start.account))
    return states


def stage_budgets(world: World, recipe: Recipe) -> dict[str, Decimal]:
    """What was declared for single stages: by the recipe, or by whoever pays here; of both, the smaller."""
    theirs = world.budgets.stages
    return theirs | {
        stage: min(cap_usd, theirs.get(stage, cap_usd)) for stage, cap_usd in recipe.stage_budgets_usd.items()
    }


def stage_budgets_left(
    world: World, ledger: Ledger, recipe: Recipe, starts: tuple[RunStart, ...]
) -> dict[str, Decimal]:
    """What was declared for single stages, less what these starts of the run spent on them, or still hold."""
    left = stage_budgets(world, recipe)
    for stages in (state.stages for state in account_states(ledger, starts)):
        taken = {stage: stages[stage].spent_usd + stages[stage].held_usd for stage in left if stage in stages}
        left |= {stage: max(Decimal(0), left[stage] - taken_usd) for stage, taken_usd in taken.items()}
    return left


def admission_decision(world: World, wish: RunRequest, spent_usd: Decimal, stage_budgets: dict[str, Decimal]) -> Decision:
    """What admission goes by: the decision for the first stage to pay, with deciding and room to extend held back for all.

    Raises:
        Refused: the budget is above what one run may be given, or its campaign is over.
        UnknownName: there is no such campaign.
        RecipeError: a budget for a stage that there is not.
    """
    check_run_limits(world, wish.budget_usd, wish.recipe.campaign)
    stages = [need.stage for need in wish.needs]
    if unknown := sorted(set(wish.recipe.stage_budgets_usd) - set(stages)):
        raise RecipeError(
            f"the recipe has a budget for {', '.join(unknown)}; the stages are {', '.join(stages)}"
        )
    question = build_question(world, stage_request_at_start(world, wish, spent_usd, stage_budgets))
    return decide_with_headroom(question, candidates(question))


def decide_with_headroom(question: Question, offers: Candidates) -> Decision:
    """The decision for the first stage of a run that is to begin, with room to extend held back for all."""
    room_usd = extension_headroom_usd(question, offers)
    return choose(question.model_copy(update={"held_usd": question.held_usd + room_usd}), offers)


def extension_headroom_usd(question: Question, offers: Candidates) -> Decimal:
    """What one stage of fixed work that is past its P95 usually needs more, whichever it is: a run that is admitted survives one.

    By then the stages before it have handed back what their P95 is above what they were expected to cost, and the later ones still
    hold theirs: so it is the most, over stages, of an overrun less what came back before it. One stage in twenty is past its P95, two
    of a run's hardly ever. Of simulated runs that could do with twice what they were expected to cost, half an extension of the dearest
    refused 42%, this 32%, and 99% of those that began were done either way (bench/simulated_money.py). The plan is that of the smallest
    budget: a larger one may try a pool of which little is known, and whose P95 is the wilder for it.
    """
    free = question.model_copy(update={"stage_budgets": {}, "budget_usd": Decimal(0)})
    room_micro = spared_micro = Decimal(0)
    for need, (est_micro, p95_micro) in zip(question.needs, smallest_plan_costs(free, offers), strict=False):
        if not need.elastic:
            room_micro = max(room_micro, OVERRUN_SHARE * p95_micro - spared_micro)
            spared_micro += p95_micro - est_micro
    return usd(room_micro.scaleb(-6))


def store_refusal(store: Store, decision: Decision) -> Refused:
    """Keep the decision that found no way, and make the error that says so."""
    question = decision.question
    store.put(decision_key(question.run_id, str(question.attempt_id)), record_bytes(decision), if_absent=True)
    why = tuple(dict.fromkeys(refusal.sentence for refusal in decision.refusals))
    if decision.smallest_budget_usd is not None and decision.smallest_budget_usd > question.budget_usd:
        return BudgetTooSmall(question.budget_usd, decision.smallest_budget_usd, why)
    return Refused(f"nothing can take {question.stage}:\n  " + "\n  ".join(why))


def admit(world: World, wish: RunRequest) -> Run:
    """Begin a run, or begin it again, if its whole chain fits the budget and the deadline.

    One that is begun again keeps its recipe and its seed.

    Raises:
        UsageError: its id cannot be a run's.
        BudgetTooSmall: with the smallest budget that would work.
        Refused: no pool fits, or the deadline cannot be kept.
        ApprovalNeeded: somebody has to allow the budget first.
        BudgetExceeded: the month or the campaign has not that much left; names which.
        NotYet: its policy has it wait, or money that it needs is held by runs that may hand it back.
    """
    check_run_id(wish.run_id)
    check_data(world, wish.recipe, wish.waited_s)
    kept = write_run_record(world, wish.run_id, wish.recipe, wish.seed)
    wish = replace(wish, recipe=kept.recipe, seed=kept.seed)
    before = open_run(world.store, wish.run_id).starts
    ledger = Ledger(world.store, world.clock, str(world.pod))
    # A frame that outlived its launcher may still spend what it holds.
    spent_usd = sum((state.spent_usd + state.held_usd for state in account_states(ledger, before)), Decimal(0))
    caps = stage_budgets_left(world, ledger, wish.recipe, before)
    decision = admission_decision(world, wish, spent_usd, caps)
    if decision.choice is None:
        raise store_refusal(world.store, decision)
    approval = approval_for(world, wish.run_id, wish.budget_usd, wish.deadline_s, wish.recipe.campaign)
    if not before:
        check_start_time(world, decision, decision.choice, wish.recipe, wish.waited_s)
    named, campaign = os.environ.get(LAUNCHER_VARIABLE), wish.recipe.campaign
    launcher = PodRef.parse(named) if named else None
    room = Headroom(
        wish.budget_usd - spent_usd, campaign, max_wait_s(world, decision, decision.choice, wish.waited_s)
    )
    room.check(world, ledger)
    start = write_start(world, wish.run_id, len(before) + 1, wish.budget_usd, wish.deadline_s, launcher)
    room.open_account(world, ledger, start, caps, approval)
    reserve_overhead(world, ledger, start, len(wish.needs))
    return open_run(world.store, wish.run_id)


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a start takes of the accounts above it, and how long it may wait until they have it."""

    cap_usd: Decimal
    campaign: str
    max_wait_s: float

    def check(self, world: World, ledger: Ledger, month: str = "") -> None:
        """Raises NotYet."""
        above = parent_caps(world, month or f"{world.clock.now():%Y-%m}", self.campaign)
        check_caps(world, ledger, self.cap_usd, above, self.max_wait_s)

    def open_account(
        self,
        world: World,
        ledger: Ledger,
        start: RunStart,
        stage_caps: dict[str, Decimal],
        approval: str | None = None,
    ) -> None:
        """Open the start's account. Raises BudgetExceeded; NotYet, where it was there a moment ago, or may be there later."""
        month = f"{start.started_at:%Y-%m}"
        campaign = set_parent_caps(world, ledger, month, self.campaign)
        try:
            ledger.open(
                start.account,
                self.cap_usd,
                parent=month,
                stage_caps=stage_caps,
                campaign=campaign,
                approval=approval,
            )
        except BudgetExceeded:
            self.check(world, ledger, month)
            raise


def reserve_overhead(world: World, ledger: Ledger, start: RunStart, stages: int) -> None:
    """Hold what deciding and settling may cost, once, also if whoever admitted the run died before it came to that."""
    state, hold = ledger.state(start.account), overhead_hold(start)
    if not state.closed and hold not in state.reservations and hold not in state.settled_usd:
        ledger.reserve(start.account, hold, OVERHEAD, start.number, overhead_usd(world, stages))


def find_or_admit(world: World, wish: RunRequest) -> Run:
    """The run, begun already by whoever launched it; else, or where that died at it, by the first router that gets here.

    Where nobody launched it but an engine, a run that is over is begun again: somebody had its engine try again what was left.
    """
    if any(world.store.list(f"runs/{wish.run_id}/starts/")):
        run, ledger = open_run(world.store, wish.run_id), Ledger(world.store, world.clock, str(world.pod))
        states = account_states(ledger, (run.start,))
        if states and not (states[0].closed and run.start.launcher is None):
            reserve_overhead(world, ledger, run.start, len(wish.needs))
            return run
    return admit(world, wish)


def request_differences(run: Run, wish: RunRequest) -> tuple[str, ...]:
    """A sentence where an engine asks for something else than what its run was begun with; none where it does not."""
    start, begun = run.start, run.record
    allowed_s = (start.deadline_at - start.started_at).total_seconds() if start.deadline_at else None
    kept = {
        f"a budget of ${start.budget_usd}, not ${wish.budget_usd}": start.budget_usd != wish.budget_usd,
        f"a deadline of {allowed_s} s, not {wish.deadline_s}": allowed_s != wish.deadline_s,
        f"the seed {begun.seed}, not {wish.seed}": begun.seed != wish.seed,
        "its recipe, not the one that is given now": begun.recipe_sha256 != digest(record_bytes(wish.recipe)),
    }
    if not (differing := [what for what, differs in kept.items() if differs]):
        return ()
    return (
        f"{run.run_id} keeps what it was begun with: {listed(differing)}; give another run an id of its own",
    )
