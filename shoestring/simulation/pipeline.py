"""One pipeline from its wish to its end, as an engine drives it, and an oracle that knows how long everything takes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np

from shoestring.core.errors import BudgetExceeded, LedgerConflict, Refused, ShoestringError, StoreError
from shoestring.core.money import MAX_USD, MICRO, from_microusd
from shoestring.routing.decide import choose
from shoestring.routing.decision import Candidates, Decision
from shoestring.routing.offers.candidates import MS_PER_HOUR, NONE
from shoestring.routing.offers.offer_costs import Block
from shoestring.runtime.records.overhead import overhead_usd_per_hour
from shoestring.runtime.route_step.retry import NO_USE_AGAIN
from shoestring.simulation.event_loop import Died, Result, Steps
from shoestring.simulation.processes import ROUTER_S, admit, end, look_around, route
from shoestring.simulation.results import Fate
from shoestring.simulation.simulated_world import Course, Place, question
from shoestring.simulation.stage_attempt import Ended, run_stage
from shoestring.simulation.workload import Wanted
from shoestring.spending.meter import cost_usd

# An engine tries a step so often, and waits so long in between.
TIMES = 3
WAITS_S = (5.0, 60.0)


def pipeline(place: Place, wanted: Wanted) -> Steps[None]:
    """Looks at the plan, sets a budget, begins, and goes on until the exit step, or until its engine is gone."""
    course = wish(place, wanted)
    place.courses.append(course)
    place.coming -= 1
    fate = course.fate
    try:
        yield from tried(place, course, lambda: admit(place, course))
        if fate.admitted:
            yield from stages(place, course)
    except BudgetExceeded as error:
        fate.ended, fate.why = ("stopped" if fate.admitted else "full"), str(error)
    except Refused as error:
        fate.ended, fate.why = ("stopped" if fate.admitted else "refused"), str(error)
    except ShoestringError as error:
        fate.ended, fate.why = "failed", str(error)
    if course.starts and fate.ended != "abandoned":
        try:
            yield from tried(place, course, lambda: end(place, course))
        except ShoestringError:
            course.clean = False
    course.over = True
    place.over(wanted)
    if course.clean and fate.ended != "abandoned":
        for run in course.starts:
            place.open.pop(run.start.account, None)


def tried(place: Place, course: Course, make: Callable[[], Steps[Result]]) -> Steps[Result]:
    """A step by a process of its own, and again when that died. Raises StoreError: again and again."""
    for left in reversed(range(TIMES)):
        try:
            return (yield from place.loop.as_process(place.skew_s(), make()))
        except (Died, StoreError) as error:
            place.tally.crashes += 1
            course.clean = False
            if not left:
                raise StoreError("the engine tried often enough") from error
        yield place.loop.now_s + place.dice.uniform(*WAITS_S)
    raise AssertionError("the last try returns or raises")


def stages(place: Place, course: Course) -> Steps[None]:
    """Route and run each; an engine tries the pair again. Raises what refuses a stage."""
    for index in range(len(course.wanted.chain.needs)):
        for left in reversed(range(TIMES)):
            if place.dice.random() < place.scenario.faults.abandoned_share:
                return
            ended = yield from pair(place, course, index)
            if ended.done:
                break
            if ended.cause in NO_USE_AGAIN or not left:
                course.fate.ended = "stopped" if ended.cause == "money" else "failed"
                return
            yield place.loop.now_s + place.dice.uniform(*WAITS_S)
    course.fate.ended = "done"


def pair(place: Place, course: Course, index: int) -> Steps[Ended]:
    """A router and the stage's pod; what dies with its process may be tried again."""
    decision = yield from tried(place, course, lambda: route(place, course, index))
    try:
        return (yield from place.loop.as_process(place.skew_s(), run_stage(place, course, decision)))
    except (Died, StoreError):
        place.tally.crashes += 1
        course.clean = False
        return Ended(False, "lost")
    except LedgerConflict:
        return Ended(False, "lost")


def wish(place: Place, wanted: Wanted) -> Course:
    """What a person makes of the plan: a budget that is some times what the router expects."""
    asked = question(place, wanted, 0, None, budget_usd=Decimal(MAX_USD - 1))
    ample = choose(asked, place.offers(wanted, asked))
    if ample.choice is None:
        raise Refused(f"no pool can take {wanted.chain.name}: {ample.refusals[0].sentence}")
    expected_usd = ample.choice.est_usd + sum((later.est_usd for later in ample.plan), Decimal(0))
    expected_s = ample.choice.est_s + sum(later.est_s for later in ample.plan)
    times = wanted.chain.deadline_times
    deadline_s = None if times is None else round(times * expected_s, 3)
    budget_usd = (expected_usd * Decimal(str(round(wanted.budget_times, 6)))).quantize(MICRO)
    least_usd, fits = oracle(place, wanted, ample, budget_usd, deadline_s)
    month = f"{place.loop.moment(wanted.at_s):%Y-%m}"
    return Course(
        wanted, Fate(wanted.chain.name, month, wanted.chain.campaign, budget_usd, fits, least_usd), deadline_s
    )


def oracle(
    place: Place, wanted: Wanted, ample: Decision, budget_usd: Decimal, deadline_s: float | None
) -> tuple[Decimal, bool]:
    """The least that the pipeline can truly cost on any pools at today's prices, nothing being taken away; and does it fit?

    An elastic stage counts with its least. Formats are free to differ between neighbours, and the cheapest pools need not be the fastest
    ones: it lets in rather too much than too little.
    """
    costs = [true_costs(place, wanted, ample.candidates, stage) for stage in range(len(wanted.chain.needs))]
    least_micro, least_ms = (sum(int(each[column].min()) for each in costs) for column in (0, 1))
    routers = len(wanted.chain.needs) + 1
    least_usd = from_microusd(least_micro) + cost_usd(
        overhead_usd_per_hour(place.world()), routers * sum(ROUTER_S) / 2
    )
    return least_usd, least_usd <= budget_usd and (deadline_s is None or least_ms <= deadline_s * 1000)


def true_costs(place: Place, wanted: Wanted, names: Candidates, stage: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every offer that can be taken: micro-dollars and milliseconds of the stage's least work."""
    offers = names.offers[stage]
    block = Block(names, stage, np.flatnonzero(offers.objection == NONE))
    name = names.stages[stage]
    times = np.array(
        [place.bias(name, names.pools[pool]) * wanted.luck[name] for pool in names.pool[block.slots].tolist()]
    )
    prior_us = block.fixed_us() + block.setup_us + offers.least_work_us_by_machine[block.machine]
    ms = block.startup_ms + times * prior_us / 1e3
    return block.price * ms / MS_PER_HOUR + block.fees_microusd(), ms


def sweeper(place: Place) -> Steps[None]:
    """Now and then, until nothing is left to do. One that dies comes again."""
    while place.coming or place.open:
        yield place.loop.now_s + place.scenario.sweep_s
        if any(course.over for course in place.open.values()):
            try:
                yield from place.loop.as_process(place.skew_s(), look_around(place))
            except (Died, StoreError):
                place.tally.crashes += 1
