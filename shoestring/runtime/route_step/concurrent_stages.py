"""Stages that run side by side: what a router does not have to plan any more, since another one has."""

from __future__ import annotations

from itertools import pairwise

from shoestring.config.world import World
from shoestring.core.receipt import Receipt
from shoestring.core.types import STANDARD_CLASS, Need
from shoestring.data.run_records import Run, read
from shoestring.routing.dag import shape_of, without
from shoestring.routing.decision import Decision, Given
from shoestring.runtime.records.receipts import receipt_key
from shoestring.spending.ledger.account import AccountState


def to_be_planned(
    world: World, run: Run, needs: tuple[Need, ...], state: AccountState
) -> tuple[tuple[Need, ...], tuple[Given, ...]]:
    """The stages of a router's list that no router has decided yet, and of the others what those still to come read and wait for.

    Of a chain, all. What was decided and is under way holds its own money; what failed is planned again.
    """
    beside = shape_of(needs).others(0)
    found = {
        needs[place].stage: done
        for place in beside
        if (done := _decided(world, run, needs[place], state)) is not None
    }
    given = tuple(
        done.model_copy(update={"after": need.after if need.after is not None else (last.stage,)})
        for last, need in pairwise(needs)
        if (done := found.get(need.stage)) is not None
    )
    return without(needs, found), given


def _decided(world: World, run: Run, need: Need, state: AccountState) -> Given | None:
    """What a stage leaves that is done or under way, and when; None: neither."""
    for held in state.holds.values():
        if held.stage == need.stage and held.why:
            now, decision = world.clock.now(), read(world.store, held.why, Decision)
            p95_s = decision.choice.p95_s if decision.choice else 0.0
            return _given(need, decision, max(0.0, p95_s - (now - held.since).total_seconds()))
    names = sorted(
        world.store.list(f"runs/{run.run_id}/decisions/{need.stage}-"),
        key=lambda key: int(key.rpartition("-")[2][:-5]),
    )
    if not names:
        return None
    decision = read(world.store, names[-1], Decision)
    receipt = receipt_key(run.run_id, decision.question.hold)
    is_done = any(world.store.list(receipt)) and read(world.store, receipt, Receipt).status == "done"
    return _given(need, decision, 0.0) if is_done or (decision.choice and decision.choice.cached) else None


def _given(need: Need, decision: Decision, ready_s: float) -> Given:
    left, storage_class = (decision.choice.format, decision.choice.storage_class) if decision.choice else (None, STANDARD_CLASS)
    return Given(
        stage=need.stage, format=left, row_bytes=need.writes_bytes_per_row, ready_s=ready_s, storage_class=storage_class
    )
