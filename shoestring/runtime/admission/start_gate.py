"""Whether a run is begun now: its data has to be there, its policy may have it wait, and so do those who hold the money that it needs.
Nothing is opened, reserved or paid meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

from shoestring.config.policy import StartPolicy
from shoestring.config.world import World
from shoestring.core.errors import NotYet, Refused, UnknownName
from shoestring.core.money import usd
from shoestring.core.record import record_bytes, utc_text
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import AdmissionRefusal, Run
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.pages.decision_view import reserved_later_s
from shoestring.routing.policy.start_time import MIN_WAIT_S, choose_start_time
from shoestring.spending.ledger.ledger import Ledger


def check_data(world: World, recipe: Recipe, waited_s: float) -> None:
    """Raises NotYet while a file or folder that the recipe names is not there, and there is time to wait for it."""
    rules, now = world.policy.start, world.clock.now()
    absent = [
        str(source.path) for source in recipe.source.values() if source.path and not source.path.exists()
    ]
    if absent and (until := next_check(rules, now, rules.max_delay_s - waited_s)):
        raise NotYet(f"not before {utc_text(until)}: its data is not there yet: {', '.join(absent)}", until)


def next_check(rules: StartPolicy, now: datetime, left_s: float) -> datetime | None:
    """When something that is waited for is looked for again; None: so long may nobody wait."""
    return now + timedelta(seconds=min(rules.poll_s, left_s)) if left_s >= MIN_WAIT_S else None


def slack_s(decision: Decision, choice: Choice) -> float | None:
    """How late the run may begin and still keep its deadline at P95; None: it has none."""
    left_s = decision.question.deadline_left_s
    return None if left_s is None else left_s - choice.p95_s - reserved_later_s(decision)


def check_start_time(world: World, decision: Decision, choice: Choice, recipe: Recipe, waited_s: float) -> None:
    """Raises NotYet where the policy has a run like this one wait."""
    question, plan = decision.question, decision.plan
    pool = next(pool for pool in question.pools if pool.name == choice.pool)
    found = choose_start_time(
        world.clock.now(),
        world.policy.start,
        recipe.priority,
        est_usd=float(choice.est_usd + sum(later.est_usd for later in plan)),
        est_s=choice.est_s + sum(later.est_s for later in plan),
        spare_s=slack_s(decision, choice),
        queue=pool.capacity.pending_pods if pool.capacity else 0,
        delay_usd_per_hour=float(question.active_policy.delay_usd_per_hour),
        waited_s=waited_s,
    )
    if found.not_before is not None:
        raise NotYet(found.sentence, found.not_before, urgently=True)


def check_caps(
    world: World, ledger: Ledger, asked_usd: Decimal, caps: dict[str, Decimal], max_wait_s: float
) -> None:
    """Raises NotYet where an account above has not so much left, but would have, if runs that are under way hand back what they hold.

    `caps`: of the accounts that have one. `max_wait_s`: by the policy and the deadline. Urgent or not: before then nothing helps.
    """
    until = next_check(world.policy.start, world.clock.now(), max_wait_s)
    if until is None:
        return
    for account, cap_usd in caps.items():
        try:
            state = ledger.state(account)
        except UnknownName:
            continue
        left_usd = cap_usd - state.spent_usd - state.held_usd
        if left_usd < asked_usd <= left_usd + state.held_usd:
            held = f"runs under way hold ${state.held_usd}, and hand back what they do not use"
            asked = (
                f"${usd(asked_usd)} requested, ${usd(max(Decimal(0), left_usd))} left of ${cap_usd} in {account}"
            )
            raise NotYet(f"not before {utc_text(until)}: {asked}; {held}", until)


def max_wait_s(world: World, decision: Decision, choice: Choice, waited_s: float) -> float:
    """So long the policy and the deadline let a run wait."""
    spare, left_s = slack_s(decision, choice), world.policy.start.max_delay_s - waited_s
    return left_s if spare is None else min(left_s, spare)


def start_when_allowed(
    world: World, run_id: str, begin: Callable[[float], Run], most_s: float, say: Callable[[str], object]
) -> Run:
    """Begin a run as soon as it may be; `begin` is told how long was waited.

    Raises:
        NotYet: that is more than `most_s` away.
        Refused: this and every other no is kept beside the run, for whoever asks what became of it.
    """
    try:
        return _start_when_allowed(world, begin, most_s, say)
    except Refused as error:
        # Before that, nobody has heard of the run.
        if any(world.store.list(f"runs/{run_id}/run.json")):
            world.store.put(
                f"runs/{run_id}/refusal.json", record_bytes(AdmissionRefusal(refused_at=world.clock.now(), reason=str(error)))
            )
        raise


def _start_when_allowed(world: World, begin: Callable[[float], Run], most_s: float, say: Callable[[str], object]) -> Run:
    began_s, waited_s = world.clock.monotonic_s(), 0.0
    while True:
        try:
            return begin(waited_s)
        except NotYet as error:
            wait_s = (error.until - world.clock.now()).total_seconds()
            if wait_s > most_s - waited_s:
                raise
            say(error.sentence)
            world.clock.sleep(max(wait_s, MIN_WAIT_S))
            waited_s = world.clock.monotonic_s() - began_s
