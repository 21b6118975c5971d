"""What the processes around a stage do about money, by the functions that the real ones call: admit, route, end a run.

Each may die at any write. What it knew is then gone; what it wrote is there.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from shoestring.core.errors import BudgetExceeded, NotYet, Refused, UnknownName
from shoestring.core.receipt import PricePoint
from shoestring.data.run_records import Run
from shoestring.routing.decide import choose
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import Room, set_aside_overhead, with_room
from shoestring.runtime.admission.approvals import check_allowed
from shoestring.runtime.admission.start_gate import may_wait_s
from shoestring.runtime.records.overhead import overhead_hold, overhead_usd
from shoestring.runtime.route_step.retry import SAME_ROUTER_S, number_of
from shoestring.runtime.route_step.route import RACES, to_reserve_usd
from shoestring.runtime.settlement.adjust import adjust_one
from shoestring.simulation.event_loop import Steps
from shoestring.simulation.results import NOTHING
from shoestring.simulation.simulated_world import Course, Place, begun, deadline_left_s, question
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account
from shoestring.spending.lost_pods import sweep
from shoestring.spending.meter import cost_between_usd, cost_usd

# A router, and the exit step: from the pod's start to its end.
ROUTER_S = (0.5, 1.5)


def process(place: Place, course: Course) -> Steps[None]:
    """The time that a pod takes which does no stage's work; it is paid for, whatever then becomes of it."""
    seconds = place.dice.uniform(*ROUTER_S)
    if course.starts:
        spent_usd = cost_usd(course.run.start.overhead_usd_per_hour, seconds)
        course.overhead_usd += spent_usd
        course.fate.billed_usd += spent_usd
    yield place.loop.now_s + seconds


def admit(place: Place, course: Course) -> Steps[None]:
    """Open the run's account, if the whole chain fits; wait for it where the policy says so.

    Raises:
        Refused: it does not.
        BudgetExceeded: the month, or the campaign, has not that much left, and could not have.
    """
    yield from process(place, course)
    while not course.fate.admitted:
        try:
            if course.room:
                # Decided again only where there is money: most looks find none.
                course.room.check(place.world(), place.loop.ledger)
            open_account(place, course)
        except NotYet as error:
            course.fate.waited = True
            if course.room:
                left_s = course.room.may_wait_s - (error.until - place.world().clock.now()).total_seconds()
                course.room = replace(course.room, may_wait_s=left_s)
            yield place.loop.now_s + max(1.0, (error.until - place.world().clock.now()).total_seconds())


def open_account(place: Place, course: Course) -> None:
    """Raises NotYet besides."""
    world, ledger, wanted = place.world(), place.loop.ledger, course.wanted
    before = [state for run in course.starts if (state := state_of(ledger, run.start.account)) is not None]
    if course.starts and before and before[-1].account == course.account and not before[-1].closed:
        course.fate.admitted = True
        set_aside_overhead(world, ledger, course.run.start, len(wanted.chain.needs))
        return
    spent_usd = sum((state.spent_usd + state.held_usd for state in before), NOTHING)
    stages, waited_s = len(wanted.chain.needs), max(0.0, place.loop.now_s - wanted.at_s)
    deadline_s = (
        course.deadline_s
        if course.deadline_s is None or not course.fate.waited
        else max(1.0, course.deadline_s - waited_s)
    )
    check_allowed(world, course.fate.budget_usd, wanted.chain.campaign)
    asked = question(
        place,
        wanted,
        0,
        None,
        budget_usd=course.fate.budget_usd,
        spent_usd=spent_usd,
        held_usd=overhead_usd(world, stages),
        stage_budgets=world.budgets.stages,
        deadline_left_s=deadline_s,
    )
    decision = with_room(asked, place.offers(wanted, asked))
    if decision.choice is None:
        raise Refused(f"the smallest budget that would work is ${decision.smallest_budget_usd}")
    may_s = may_wait_s(world, decision, decision.choice, waited_s)
    course.room = room = Room(course.fate.budget_usd - spent_usd, wanted.chain.campaign, may_s)
    room.check(world, ledger)
    course.starts.append(begun(place, wanted, len(course.starts) + 1, course.fate.budget_usd, deadline_s))
    place.open[course.account] = course
    campaign = wanted.chain.campaign
    place.parents |= {f"{course.run.start.started_at:%Y-%m}"} | (
        {campaign_account(campaign)} if campaign else set()
    )
    room.take(world, ledger, course.run.start, world.budgets.stages)
    course.fate.admitted, course.fate.opened_s = True, place.loop.now_s
    set_aside_overhead(world, ledger, course.run.start, stages)


def state_of(ledger: Ledger, account: str) -> AccountState | None:
    try:
        return ledger.state(account)
    except UnknownName:
        return None


def route(place: Place, course: Course, index: int) -> Steps[Decision]:
    """Decide about one stage and reserve for it.

    Raises:
        Refused: nothing fits what is left.
        BudgetExceeded: somebody else took the money, again and again.
    """
    yield from process(place, course)
    world, ledger, need = place.world(), place.loop.ledger, course.wanted.chain.needs[index]
    if (found := undelivered(place, course, ledger.state(course.account), need.stage)) is not None:
        return found
    state = ledger.state(course.account)
    others = {name for name, held in state.holds.items() if held.stage != need.stage}
    if len(others) < len(state.holds):
        sweep(ledger, world.store, world.cluster, course.account, course.wanted.run_id, except_holds=others)
    for race in range(RACES):
        decision = decided(place, course, index, ledger.state(course.account))
        if decision.choice is None:
            raise Refused(f"nothing can take {need.stage} with what is left")
        key, asked = f"decision/{decision.question.hold}/{len(course.routed)}", decision.question
        course.routed[key] = decision
        try:
            amount_usd = to_reserve_usd(asked, decision.choice)
            ledger.reserve(
                course.account,
                asked.hold,
                need.stage,
                asked.attempt,
                amount_usd,
                decision.choice.keep_usd,
                key,
            )
            return decision
        except BudgetExceeded:
            if race == RACES - 1:
                raise
    raise AssertionError("a race ends by a return or a raise")


def undelivered(place: Place, course: Course, state: AccountState, stage: str) -> Decision | None:
    """What a router decided a moment ago that died before its engine heard of it."""
    now = place.world().clock.now()
    for hold, held in state.holds.items():
        young = (now - held.since).total_seconds() < SAME_ROUTER_S
        if held.stage == stage and young and last_heartbeat(place.store, course.wanted.run_id, hold) is None:
            return course.routed.get(held.why)
    return None


def decided(place: Place, course: Course, index: int, state: AccountState) -> Decision:
    start, stage = course.run.start, course.wanted.chain.needs[index].stage
    names = [name for name in (*state.holds, *state.settled_usd) if name.rpartition("-")[0] == stage]
    caps = {
        name: max(NOTHING, cap_usd - state.stages[name].spent_usd - state.stages[name].held_usd)
        if name in state.stages
        else cap_usd
        for name, cap_usd in place.world().budgets.stages.items()
    }
    asked = question(
        place,
        course.wanted,
        index,
        course.upstream,
        attempt=1 + max(map(number_of, names), default=0),
        budget_usd=start.budget_usd,
        spent_usd=start.budget_usd - (state.cap_usd or NOTHING) + state.spent_usd,
        held_usd=state.held_usd,
        stage_budgets=caps,
        deadline_left_s=deadline_left_s(place, course.run, len(course.wanted.chain.needs) - index),
    )
    return choose(asked, place.offers(course.wanted, asked))


def end(place: Place, course: Course) -> Steps[None]:
    """The exit step."""
    yield from process(place, course)
    settle_start(place, course, course.run)


def settle_start(place: Place, course: Course, run: Run) -> None:
    """Settle what dead pods left in one start, bring it to the pods' own times, close its account. What lives is left alone."""
    world, ledger, account = place.world(), place.loop.ledger, run.start.account
    if (state := state_of(ledger, account)) is None or state.closed:
        return
    overhead = overhead_hold(run.start)
    sweep(ledger, world.store, world.cluster, account, course.wanted.run_id, except_holds={overhead})
    state = ledger.state(account)
    if held := state.holds.get(overhead):
        if len(state.holds) > 1:
            return
        ledger.settle(account, overhead, min(course.overhead_usd, held.amount_usd))
    adjust(place, course, ledger, account)
    ledger.close(account)
    course.fate.held_s = place.loop.now_s - course.fate.opened_s


def adjust(place: Place, course: Course, ledger: Ledger, account: str) -> None:
    """Bring every attempt to its pod's own times, what goes down first."""
    settled_usd = ledger.state(account).settled_usd
    true_usd: dict[str, Decimal] = {}
    for (owner, hold), pod in course.pods.items():
        life = place.cluster.lifetime(pod.uid)
        if owner == account and hold in settled_usd and life.started_at and life.finished_at:
            had = pod.prices or (PricePoint(at=life.started_at, usd_per_hour=pod.choice.usd_per_hour),)
            true_usd[hold] = cost_between_usd(had, life.started_at, life.finished_at) + pod.fees_usd
    changed = [hold for hold in true_usd if true_usd[hold] != settled_usd[hold]]
    for hold in sorted(changed, key=lambda hold: true_usd[hold] - settled_usd[hold]):
        adjust_one(ledger, account, hold, settled_usd[hold], true_usd[hold])


def look_around(place: Place) -> Steps[None]:
    """The sweeper, once: settles what engines left behind, and mends what died between two accounts."""
    yield place.loop.now_s + 1.0
    ledger = place.loop.ledger
    left = {account: opened for account, opened in place.open.items() if opened.over}
    for account, opened in left.items():
        run = next(run for run in opened.starts if run.start.account == account)
        settle_start(place, opened, run)
    held: set[str] = set()
    for parent in sorted(place.parents):
        place.tally.swept += len(ledger.sweep_parent(parent))
        held |= found.holds.keys() if (found := state_of(ledger, parent)) else set()
    for account in left.keys() - held:
        del place.open[account]
