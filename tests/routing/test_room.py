"""A pool that has no room now, or had none a moment ago, is left out with a sentence; later stages may find room by then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from routing_cases import CPU_1, CPU_2, EVALUATE, FULL, INGEST, PREPROCESS, laptop_question, quote

from shoestring.core.record import record_bytes
from shoestring.core.types import Market, NodeCapacity, Pool, StockOut
from shoestring.routing.analysis.replay import replay
from shoestring.routing.candidates import RefusalCode
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_table import stage_offer_table
from shoestring.routing.pages.explain import as_markdown, as_text

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def with_room(pool: Pool, **room: Any) -> Pool:
    return pool.model_copy(update={"capacity": FULL.model_copy(update=room)})


def refusal(decision: Decision, pool: str) -> tuple[RefusalCode, str]:
    """The one of a pool's refusals; every offer of it says the same."""
    columns = stage_offer_table(decision.candidates, 0)
    of_pool = {
        (each.code, each.sentence)
        for each in decision.refusals
        if decision.candidates.pools[columns.pool[each.candidate]] == pool
    }
    (found,) = of_pool
    return found


def test_a_full_pool_that_cannot_grow_is_refused_with_the_numbers_and_the_next_one_is_taken() -> None:
    decision = decide(laptop_question(pools=(with_room(CPU_1), CPU_2)))
    code, sentence = refusal(decision, "cpu-1")
    assert code is RefusalCode.NO_CAPACITY
    assert sentence == (
        "no room: the emptiest of cpu-1's 2 nodes has 0.4 cores and 1.2 GB free, 1 core and 4 GB are asked; 3 pods wait there already"
    )
    assert decision.choice is not None and decision.choice.pool == "cpu-2"
    assert replay(record_bytes(decision)) is None


def test_a_pool_that_has_room_or_can_grow_or_says_nothing_is_offered() -> None:
    for pool in (with_room(CPU_1, fits=1), with_room(CPU_1, max_nodes=3), CPU_1):
        choice = decide(laptop_question(pools=(pool, CPU_2))).choice
        assert choice is not None and choice.pool == "cpu-1"


def test_a_later_stage_is_planned_where_there_is_no_room_now() -> None:
    decision = decide(laptop_question((INGEST, PREPROCESS), pools=(with_room(CPU_1), CPU_2)))
    assert [planned.pool for planned in decision.plan] == ["cpu-1"]


def test_no_room_anywhere_is_refused_and_no_budget_would_do() -> None:
    decision = decide(laptop_question((EVALUATE,), pools=(with_room(CPU_1), with_room(CPU_2))))
    assert decision.choice is None and decision.smallest_budget_usd is None
    assert "no budget would do" in as_text(decision)


def test_a_cached_result_is_handed_on_where_there_is_room() -> None:
    decision = decide(
        laptop_question((EVALUATE,), pools=(with_room(CPU_1), CPU_2), cached_outcome="cache/1.json")
    )
    assert decision.choice is not None and decision.choice.cached and decision.choice.pool == "cpu-2"


def test_for_a_cached_result_no_node_is_made_that_costs_more_than_one_that_is_there() -> None:
    slow = CPU_1.model_copy(update={"startup_s": 600})
    for pool, taken in ((CPU_1, "cpu-1"), (slow, "cpu-2")):
        choice = decide(
            laptop_question((EVALUATE,), pools=(pool, CPU_2), cached_outcome="cache/1.json")
        ).choice
        assert choice is not None and choice.cached and choice.pool == taken


@pytest.mark.parametrize(
    ("pool", "room", "sentence"),
    [
        (
            CPU_2.model_copy(update={"name": "od/2", "node_pool": "od"}),
            {"nodes": 1, "max_nodes": 1, "pending_pods": 1},
            "no room: od's one node has 0.4 cores and 1.2 GB free, 2 cores and 4 GB are asked; 1 pod waits there already",
        ),
        (
            CPU_1,
            {"nodes": 0, "max_nodes": 0, "pending_pods": 0},
            "no room: cpu-1 has no nodes, and nothing that would add one",
        ),
        (
            CPU_1.model_copy(update={"gpu_count": 1, "gpu_tflops": 100, "gpu_memory_gb": 16}),
            {"pending_pods": 0},
            "no room: the emptiest of cpu-1's 2 nodes has 0 GPUs, 0.4 cores and 1.2 GB free, 1 GPU, 1 core and 4 GB are asked",
        ),
        (
            CPU_1,
            {"unschedulable": 2},
            "no room: none of cpu-1's 2 nodes takes pods: cordoned, not ready, or tainted by the cluster",
        ),
        (
            CPU_1,
            {"nodes": 1, "max_nodes": 1, "unschedulable": 1},
            "no room: cpu-1's one node takes no pods: cordoned, not ready, or tainted by the cluster",
        ),
        (
            CPU_1,
            {"unschedulable": 1, "pending_pods": 0},
            "no room: the emptiest of cpu-1's 2 nodes has 0.4 cores and 1.2 GB free, 1 core and 4 GB are asked; "
            "1 of them takes no pods: cordoned, not ready, or tainted by the cluster",
        ),
    ],
)
def test_what_is_free_is_said_of_the_node_pool(pool: Pool, room: dict[str, int], sentence: str) -> None:
    full = pool.model_copy(update={"capacity": NodeCapacity.model_validate(FULL.model_dump() | room)})
    assert (
        refusal(
            decide(laptop_question((EVALUATE,), pools=(full,), quotes=(quote(pool.name, "0.04"),))), pool.name
        )[1]
        == sentence
    )


def remembered(node_pool: str, market: Market) -> StockOut:
    return StockOut(
        node_pool=node_pool,
        market=market,
        at=NOON,
        until=NOON + timedelta(minutes=15),
        reason="r's train waited 300 s there",
    )


def test_a_node_pool_that_took_no_pod_is_left_out_on_that_market_in_all_its_shares() -> None:
    shares = tuple(pool.model_copy(update={"node_pool": "cpu-od"}) for pool in (CPU_1, CPU_2))
    decision = decide(laptop_question(pools=shares, stockouts=(remembered("cpu-od", Market.ON_DEMAND),)))
    assert decision.choice is None
    told = (RefusalCode.STOCK_OUT, "left out until 2026-11-01T12:15:00.000Z: r's train waited 300 s there")
    assert {refusal(decision, pool.name) for pool in shares} == {told}
    other = decide(
        laptop_question(
            pools=shares, stockouts=(remembered("cpu-od", Market.SPOT), remembered("cpu", Market.ON_DEMAND))
        )
    )
    assert other.choice is not None and other.choice.pool == "cpu-1"
    assert replay(record_bytes(decision)) is None


def test_what_a_reader_has_to_know_is_on_the_page() -> None:
    decision = decide(laptop_question(notes=("prices.yaml could not be read: the last good copy is used",)))
    for page in (as_text(decision), as_markdown(decision)):
        assert "the last good copy is used" in page
