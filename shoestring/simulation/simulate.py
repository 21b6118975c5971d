"""Recorded and made-up workloads and prices through the real router and the real books, by a clock that does not wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Decimal

from shoestring.core.errors import LedgerCorrupt
from shoestring.core.interfaces import Store
from shoestring.simulation.pipeline import pipeline, sweeper
from shoestring.simulation.processes import state_of
from shoestring.simulation.results import NOTHING, Report, by_chain, ended, fitting, share
from shoestring.simulation.scenario import Scenario
from shoestring.simulation.simulated_world import Course, Place
from shoestring.simulation.workload import wanted
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.account import AccountState


def simulate(
    scenario: Scenario,
    pipelines: int,
    seed: int,
    *,
    check: bool = True,
    tell: Callable[[int], None] = lambda done: None,
) -> Report:
    """So many pipelines, until the last is over and swept. `tell`: called with how many have begun. The same arguments, the same report.

    `check`: verify every hash, sequence and balance of the books at the end.

    Raises:
        WorldError: the scenario's world, trace or record is not what it should be.
        Refused: no pool can take one of its stages, whatever the budget.
    """
    return play(Place(scenario, seed), pipelines, check, tell)


def play(place: Place, pipelines: int, check: bool, tell: Callable[[int], object]) -> Report:
    scenario, seed = place.scenario, place.seed
    place.coming = pipelines
    for one in wanted(scenario, pipelines, seed):
        place.loop.begin(pipeline(place, one), one.at_s, home=one.number)
    place.loop.begin(sweeper(place), 0.0)
    place.loop.run(lambda: tell(pipelines - place.coming))
    return report(place, pipelines, verified(place.store) if check else "not verified")


def verified(store: Store) -> str:
    """What `shoestring ledger verify` would say last."""
    try:
        found = verify(store, {})
    except LedgerCorrupt as error:
        return f"broken: {error}"
    pending = f", {len(found.pending)} pending" if found.pending else ""
    return f"every hash, sequence and balance holds: {found.entries} entries{pending}"


def report(place: Place, pipelines: int, books: str) -> Report:
    fates = [course.fate for course in place.courses]
    runs, above = (
        [account for course in place.courses for account in accounts_of(place, course)],
        states_above(place),
    )
    stage_usd = [
        sum((account.released_usd for account in runs), NOTHING),
        sum((account.spent_usd for account in runs), NOTHING),
    ]
    cap_usd = sum((account.cap_usd or NOTHING for account in runs), NOTHING)
    over = [max(0.0, float(fate.billed_usd / fate.budget_usd) - 1) for fate in fates if fate.admitted]
    fit, tally = fitting(fates, place.scenario.budgets), place.tally
    return Report(
        scenario=place.scenario.name,
        seed=place.seed,
        pipelines=pipelines,
        ended=ended(fates),
        admitted=sum(fate.admitted for fate in fates),
        would_fit=len(fit),
        would_fit_admitted=sum(fate.admitted for fate in fit),
        admitted_share=share(sum(fate.admitted for fate in fit), len(fit)),
        over_cap=sum(past_cap(state) for state in (*runs, *above)),
        most_of_cap=max((share(state.spent_usd, state.cap_usd or 0) or 0.0 for state in runs), default=None),
        cap_usd=cap_usd,
        spent_usd=stage_usd[1],
        billed_usd=sum((fate.billed_usd for fate in fates), NOTHING),
        billed_over=sum(each > 0 for each in over),
        most_billed_over_share=round(max(over, default=0.0), 6),
        stranded_share=share(cap_usd - stage_usd[1], cap_usd),
        stranded_stages_share=share(stage_usd[0], sum(stage_usd)),
        **patience(place.courses),
        p95_coverage=share(tally.covered, tally.finished),
        p95_stages=tally.finished,
        attempts=sum(fate.attempts for fate in fates),
        preempted=sum(fate.preempted for fate in fates),
        crashes=tally.crashes,
        races=place.loop.overlaps,
        swept=tally.swept,
        above={state.account: told(state) for state in above},
        money=money(place, runs),
        chains=by_chain(fates, fit),
        ledger_entries=sum(state.entries for state in (*runs, *above)),
        verified=books,
        days=round(place.loop.now_s / 86400, 3),
    )


def patience(courses: Sequence[Course]) -> dict[str, float | None]:
    """How long runs waited for money, and how long that which they did not spend was away."""
    waits_s = [
        course.fate.opened_s - course.wanted.at_s
        for course in courses
        if course.fate.waited and course.fate.admitted
    ]
    unspent = [
        (float(course.fate.budget_usd - course.fate.spent_usd), course.fate.held_s)
        for course in courses
        if course.fate.held_s
    ]
    dollar_hours = sum(unspent_usd * held_s / 3600 for unspent_usd, held_s in unspent)
    return {
        "waited": len(waits_s),
        "longest_wait_h": round(max(waits_s, default=0.0) / 3600, 3),
        "back_after_h": share(dollar_hours, sum(unspent_usd for unspent_usd, _ in unspent)),
    }


def accounts_of(place: Place, course: Course) -> list[AccountState]:
    """The accounts of a pipeline's starts, its spending taken in."""
    ledger = place.loop.ledger_at(course.wanted.number)
    found = [state for run in course.starts if (state := state_of(ledger, run.start.account)) is not None]
    course.fate.spent_usd = sum((state.spent_usd for state in found), NOTHING)
    return found


def states_above(place: Place) -> list[AccountState]:
    return [
        state for name in sorted(place.parents) if (state := state_of(place.loop.ledger, name)) is not None
    ]


def past_cap(state: AccountState) -> bool:
    return state.cap_usd is not None and state.spent_usd + state.held_usd > state.cap_usd


def told(state: AccountState) -> str:
    cap = "no cap" if state.cap_usd is None else f"a cap of ${state.cap_usd}"
    return f"${state.spent_usd} spent and ${state.held_usd} held, {cap}"


def money(place: Place, runs: Sequence[AccountState]) -> dict[str, Decimal]:
    """What the books say was spent, by pool and market."""
    chosen = {key: pod.choice for course in place.courses for key, pod in course.pods.items()}
    found: defaultdict[str, Decimal] = defaultdict(Decimal)
    for state in runs:
        for hold, spent_usd in state.settled_usd.items():
            choice = chosen.get((state.account, hold))
            found["overhead" if choice is None else f"{choice.pool} {choice.market}"] += spent_usd
    return dict(sorted(found.items()))
