"""Stages that run side by side: what a router does not have to plan any more, since another one has."""

from __future__ import annotations

from itertools import pairwise

from shoestring.config.world import World
from shoestring.core.receipt import Receipt
from shoestring.core.types import STANDARD_CLASS, Need
from shoestring.data.run_records import Run, read_record
from shoestring.routing.dag import build_dag, without_stages
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.decision import Decision
from shoestring.runtime.records.receipts import receipt_key
from shoestring.spending.ledger.account import AccountState


def stages_to_plan(
    world: World, run: Run, needs: tuple[Need, ...], state: AccountState
) -> tuple[tuple[Need, ...], tuple[UpstreamStage, ...]]:
    """The stages of a router's list that no router has decided yet, and of the others what those still to come read and wait for.

    Of a chain, all. What was decided and is under way holds its own money; what failed is planned again.
    """
    beside = build_dag(needs).not_after(0)
    found = {
        needs[place].stage: done
        for place in beside
        if (done := _decided_stage(world, run, needs[place], state)) is not None
    }
    given = tuple(
        done.model_copy(update={"after": need.after if need.after is not None else (last.stage,)})
        for last, need in pairwise(needs)
        if (done := found.get(need.stage)) is not None
    )
    return without_stages(needs, found), given


def _decided_stage(world: World, run: Run, need: Need, state: AccountState) -> UpstreamStage | None:
    """What a stage leaves that is done or under way, and when; None: neither."""
    for held in state.reservations.values():
        if held.stage == need.stage and held.decision_key:
            now, decision = world.clock.now(), read_record(world.store, held.decision_key, Decision)
            p95_s = decision.choice.p95_s if decision.choice else 0.0
            return _given(need, decision, max(0.0, p95_s - (now - held.reserved_at).total_seconds()))
    names = sorted(
        world.store.list(f"runs/{run.run_id}/decisions/{need.stage}-"),
        key=lambda key: int(key.rpartition("-")[2][:-5]),
    )
    if not names:
        return None
    decision = read_record(world.store, names[-1], Decision)
    receipt = receipt_key(run.run_id, str(decision.question.attempt_id))
    is_done = any(world.store.list(receipt)) and read_record(world.store, receipt, Receipt).status == "done"
    return _given(need, decision, 0.0) if is_done or (decision.choice and decision.choice.cached) else None


def _given(need: Need, decision: Decision, ready_s: float) -> UpstreamStage:
    left, storage_class = (decision.choice.format, decision.choice.storage_class) if decision.choice else (None, STANDARD_CLASS)
    return UpstreamStage(
        stage=need.stage, format=left, row_bytes=need.writes_bytes_per_row, ready_s=ready_s, storage_class=storage_class
    )
