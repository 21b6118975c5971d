"""Stages that run concurrently: those that another router has already decided need no planning here."""

from __future__ import annotations

from itertools import pairwise

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId, declared_stage, item_of
from shoestring.core.receipt import Receipt
from shoestring.core.types import STANDARD_CLASS, Need
from shoestring.data.run_records import Run, read_record
from shoestring.routing.branches import branches_of, of_way
from shoestring.routing.dag import UpstreamStage, build_dag, without_stages
from shoestring.routing.decision import Decision
from shoestring.routing.loop_items import with_open_items
from shoestring.spending.ledger.account import AccountState


def stages_to_plan(
    world: World, run: Run, needs: tuple[Need, ...], state: AccountState
) -> tuple[tuple[Need, ...], tuple[UpstreamStage, ...]]:
    """Return the stages of a router's list that no router has decided yet, and what the decided ones leave
    for them.

    Of a chain, these are all stages. A stage that is under way holds its own money. A stage that failed is
    planned again. One that no run routes, as another branch of its group was taken, is left out. Of a loop,
    the items that no router has decided are planned.
    """
    needs = with_open_items(needs, routed_items(run.run_id, state))
    concurrent = build_dag(needs).not_after(0)
    decided = {
        needs[index].stage: found
        for index in concurrent
        if (found := _decided_stage(world, run, needs[index], state)) is not None
    }
    upstream = tuple(
        found.model_copy(update={"after": need.after if need.after is not None else (before.stage,)})
        for before, need in pairwise(needs)
        if (found := decided.get(need.stage)) is not None
    )
    taken = {
        group: name for need in needs if need.stage in decided for group, name in branches_of(need).items()
    }
    return without_stages(of_way(needs, taken), decided), upstream


def routed_items(run_id: str, state: AccountState) -> set[str]:
    """Return the items of loops that have an attempt in this account, by the names of their stages."""
    settled = {AttemptId.parse(run_id, name).stage for name in state.settled_usd}
    return {name for name in settled | {each.stage for each in state.reservations.values()} if item_of(name)}


def _decided_stage(world: World, run: Run, need: Need, state: AccountState) -> UpstreamStage | None:
    """Return what a stage leaves that is done or under way, and when; None: it is neither."""
    is_loop = not need.items
    left_s, decision = list[float](), None
    for reservation in state.reservations.values():
        name = declared_stage(reservation.stage) if is_loop else reservation.stage
        if name == need.stage and reservation.decision_key:
            decision = read_record(world.store, reservation.decision_key, Decision)
            p95_s = decision.choice.p95_s if decision.choice else 0.0
            elapsed_s = (world.clock.now() - reservation.reserved_at).total_seconds()
            left_s.append(max(0.0, p95_s - elapsed_s))
    if decision is not None or is_loop:
        return _upstream_stage(need, decision, max(left_s, default=0.0))
    if (last := last_attempt(world, run, need.stage)) is None:
        return None
    decision = read_record(world.store, store_layout.decision(run.run_id, last), Decision)
    receipt_key = store_layout.receipt(run.run_id, last)
    is_done = (
        any(world.store.list(receipt_key)) and read_record(world.store, receipt_key, Receipt).status == "done"
    )
    is_cached = decision.choice is not None and decision.choice.cached
    return _upstream_stage(need, decision, 0.0) if is_done or is_cached else None


def last_attempt(world: World, run: Run, stage: str) -> AttemptId | None:
    """Return the newest attempt at a stage that has a decision; None: there is none."""
    names = [
        key.rpartition("/")[2].removesuffix(".json")
        for key in world.store.list(store_layout.decisions(run.run_id, stage))
    ]
    attempts = [AttemptId.parse(run.run_id, name) for name in names]
    return max((attempt for attempt in attempts if attempt.stage == stage), default=None)


def _upstream_stage(need: Need, decision: Decision | None, ready_s: float) -> UpstreamStage:
    choice = decision.choice if decision else None
    return UpstreamStage(
        stage=need.stage,
        format=choice.format if choice else None,
        row_bytes=need.writes_bytes_per_row,
        ready_s=ready_s,
        storage_class=choice.storage_class if choice else STANDARD_CLASS,
    )
