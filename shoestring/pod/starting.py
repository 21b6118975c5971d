"""Whether a run is begun now: its data has to be there, and its policy may have it wait. Nothing is opened, reserved or paid meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from shoestring.data.recipe import Recipe
from shoestring.data.runs import Run
from shoestring.errors import NotYet
from shoestring.model import utc_text
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.when import LEAST_S, when
from shoestring.seams import World


def check_data(world: World, recipe: Recipe, waited_s: float) -> None:
    """Raises NotYet while a file or folder that the recipe names is not there, and there is time to wait for it."""
    rules, now = world.rules.waiting, world.clock.now()
    absent = [str(source.path) for source in recipe.source.values() if source.path and not source.path.exists()]
    left_s = rules.most_wait_s - waited_s
    if absent and left_s >= LEAST_S:
        until = now + timedelta(seconds=min(rules.look_again_s, left_s))
        raise NotYet(f"not before {utc_text(until)}: its data is not there yet: {', '.join(absent)}", until)


def check_moment(world: World, decision: Decision, choice: Choice, recipe: Recipe, waited_s: float) -> None:
    """Raises NotYet where the policy has a run like this one wait."""
    question, plan = decision.question, decision.plan
    pool = next(pool for pool in question.pools if pool.name == choice.pool)
    worst_s = choice.p95_s + sum(later.keep_s for later in plan)
    found = when(
        world.clock.now(),
        world.rules.waiting,
        recipe.priority,
        est_usd=float(choice.est_usd + sum(later.est_usd for later in plan)),
        est_s=choice.est_s + sum(later.est_s for later in plan),
        spare_s=None if question.deadline_left_s is None else question.deadline_left_s - worst_s,
        queue=pool.room.waiting if pool.room else 0,
        usd_per_hour_of_waiting=float(question.in_force.usd_per_hour_of_waiting),
        waited_s=waited_s,
    )
    if found.until is not None:
        raise NotYet(found.sentence, found.until)


def in_time(world: World, begin: Callable[[float], Run], most_s: float, say: Callable[[str], object]) -> Run:
    """Begin a run as soon as it may be; `begin` is told how long was waited. Raises NotYet where that is more than `most_s` away."""
    began_s, waited_s = world.clock.monotonic_s(), 0.0
    while True:
        try:
            return begin(waited_s)
        except NotYet as error:
            wait_s = (error.until - world.clock.now()).total_seconds()
            if wait_s > most_s - waited_s:
                raise
            say(error.sentence)
            world.clock.sleep(max(wait_s, LEAST_S))
            waited_s = world.clock.monotonic_s() - began_s
