"""The step before a stage: ask, decide, reserve, write it down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime

from shoestring.data.runs import Run
from shoestring.errors import BudgetExceeded
from shoestring.model import Noun, record
from shoestring.money import Usd
from shoestring.pod.admission import Wish, admitted, decision_key, next_attempt, refuse, stage_budgets_left
from shoestring.pod.asking import Asked, Reads, ask, overhead_usd_per_hour
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.explain import as_markdown
from shoestring.routing.place import driver_outputs
from shoestring.seams import World
from shoestring.spending.ledger import Ledger

RACES = 5


class OverheadTime(Noun):
    """How long a pod took that does no stage's work. `finished_at` is None until it is done."""

    schema_version: Literal[1] = 1
    name: str
    pod_uid: str
    usd_per_hour: Usd
    started_at: AwareDatetime
    finished_at: AwareDatetime | None


@contextmanager
def overhead(world: World, run: Run, name: str) -> Iterator[None]:
    """Put this pod's time, from its own start, on the run's overhead line, also when it fails."""
    begun = OverheadTime(
        name=name,
        pod_uid=world.pod_uid,
        usd_per_hour=overhead_usd_per_hour(world),
        started_at=world.cluster.life(world.pod_uid).started_at or world.clock.now(),
        finished_at=None,
    )
    key = f"runs/{run.run_id}/overhead/{run.start.number}/{name}.{world.pod_uid}.json"
    world.store.put(key, record(begun))
    try:
        yield
    finally:
        world.store.put(key, record(begun.model_copy(update={"finished_at": world.clock.now()})))


def asked_now(world: World, run: Run, wish: Wish, reads: Reads, ledger: Ledger) -> Asked:
    """What is known at this moment. An earlier start's spending is not in the start's account, but in its cap."""
    state, stage = ledger.state(run.start.account), wish.needs[0].stage
    earlier_usd = run.start.budget_usd - (state.cap_usd or Decimal(0))
    return Asked(
        run_id=run.run_id,
        recipe=run.record.recipe,
        seed=run.record.seed,
        needs=wish.needs,
        reads=reads,
        attempt=next_attempt(world.store, run.run_id, stage),
        budget_usd=run.start.budget_usd,
        spent_usd=earlier_usd + state.spent_usd,
        held_usd=state.held_usd,
        stage_budgets=stage_budgets_left(ledger, run.record.recipe, run.starts[:-1]),
        deadline_left_s=run.deadline_left_s(world.clock.now()),
        began_at=run.start.started_at,
    )


def decide_and_reserve(world: World, run: Run, wish: Wish, reads: Reads) -> tuple[Decision, str]:
    """The decision, and its key; what it may cost is reserved. A race that is lost is run again on fresh offers.

    Raises:
        BudgetTooSmall, Refused: the decision is kept all the same.
        BudgetExceeded: lost the race `RACES` times.
    """
    ledger, account, stage = Ledger(world.store, world.clock, world.pod_uid), run.start.account, wish.needs[0].stage
    races = RACES
    while True:
        asked = asked_now(world, run, wish, reads, ledger)
        decision = decide(ask(world, asked))
        choice = decision.choice
        if choice is None:
            raise refuse(world.store, decision)
        try:
            if not choice.cached:
                amount_usd = choice.budget_usd if wish.needs[0].elastic else choice.p95_usd
                ledger.reserve(account, decision.question.hold, stage, asked.attempt, amount_usd, choice.keep_usd)
        except BudgetExceeded:
            races -= 1
            if not races:
                raise
            continue
        key = decision_key(run.run_id, stage, asked.attempt)
        world.store.put(key, record(decision))
        return decision, key


def route(world: World, wish: Wish, reads: Reads, decision_path: str, page_path: str) -> dict[str, Any]:
    """Route one stage; the values that the engine puts on its pod. The decision and its page are written to the two paths."""
    run = admitted(world, wish)
    with overhead(world, run, f"route-{wish.needs[0].stage}"):
        decision, key = decide_and_reserve(world, run, wish, reads)
        Path(decision_path).write_bytes(record(decision))
        Path(page_path).write_text(as_markdown(decision))
        return driver_outputs(decision, key)
