"""A pool without capacity, or with a stock-out, is refused with a sentence, but not for later stages."""

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
from shoestring.routing.question_parts import ExistingPod

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def with_capacity(pool: Pool, **capacity: Any) -> Pool:
    return pool.model_copy(update={"capacity": FULL.model_copy(update=capacity)})


def refusal(decision: Decision, pool: str) -> tuple[RefusalCode, str]:
    """Return a pool's refusal, which is the same for all its offers."""
    columns = stage_offer_table(decision.candidates, 0)
    of_pool = {
        (each.code, each.sentence)
        for each in decision.refusals
        if decision.candidates.pools[columns.pool[each.candidate]] == pool
    }
    (found,) = of_pool
    return found


def test_a_full_pool_that_cannot_grow_is_refused_with_the_numbers_and_the_next_one_is_chosen() -> None:
    decision = decide(laptop_question(pools=(with_capacity(CPU_1), CPU_2)))
    code, sentence = refusal(decision, "cpu-1")
    assert code is RefusalCode.NO_CAPACITY
    assert sentence == (
        "no capacity: the emptiest of 2 nodes of cpu-1 has 0.4 cores and 1.2 GB free, "
        "a pod requests 1 core and 4 GB; 3 pods are already pending"
    )
    assert decision.choice is not None and decision.choice.pool == "cpu-2"
    assert replay(record_bytes(decision)).verdict == "same"


def test_a_pool_with_capacity_or_an_autoscaler_or_no_data_is_offered() -> None:
    for pool in (with_capacity(CPU_1, free_shares=1), with_capacity(CPU_1, max_nodes=3), CPU_1):
        choice = decide(laptop_question(pools=(pool, CPU_2))).choice
        assert choice is not None and choice.pool == "cpu-1"


def test_a_later_stage_is_planned_on_a_pool_that_is_full_now() -> None:
    decision = decide(laptop_question((INGEST, PREPROCESS), pools=(with_capacity(CPU_1), CPU_2)))
    assert [planned.pool for planned in decision.plan] == ["cpu-1"]


def test_without_capacity_anywhere_no_budget_is_enough() -> None:
    decision = decide(laptop_question((EVALUATE,), pools=(with_capacity(CPU_1), with_capacity(CPU_2))))
    assert decision.choice is None and decision.smallest_budget_usd is None
    assert "no budget is enough" in as_text(decision)


def test_a_cached_result_runs_on_a_pool_with_capacity() -> None:
    decision = decide(
        laptop_question((EVALUATE,), pools=(with_capacity(CPU_1), CPU_2), cached_outcome="cache/1.json")
    )
    assert decision.choice is not None and decision.choice.cached and decision.choice.pool == "cpu-2"


def test_a_cached_result_waits_for_a_place_and_takes_gpus_only_if_there_is_no_other_pool() -> None:
    gpus = CPU_2.model_copy(update={"name": "gpu", "gpu_count": 1, "gpu_tflops": 100, "gpu_memory_gb": 16})
    cases = (
        ((with_capacity(CPU_1), gpus), "cpu-1"),
        ((with_capacity(CPU_1, nodes=0, max_nodes=0), gpus), "gpu"),
        ((with_capacity(CPU_1, nodes=0, max_nodes=2), gpus), "cpu-1"),
        ((with_capacity(CPU_1), CPU_2, gpus), "cpu-2"),
    )
    for pools, taken in cases:
        prices = tuple(quote(pool.name, "0.01") for pool in pools)
        question = laptop_question((EVALUATE,), pools=pools, quotes=prices, cached_outcome="cache/1.json")
        choice = decide(question).choice
        assert choice is not None and choice.cached and choice.pool == taken


def test_a_cached_result_avoids_a_pool_with_an_expensive_start() -> None:
    slow = CPU_1.model_copy(update={"startup_s": 600})
    for pool, taken in ((CPU_1, "cpu-1"), (slow, "cpu-2")):
        choice = decide(
            laptop_question((EVALUATE,), pools=(pool, CPU_2), cached_outcome="cache/1.json")
        ).choice
        assert choice is not None and choice.cached and choice.pool == taken


@pytest.mark.parametrize(
    ("pool", "capacity", "sentence"),
    [
        (
            CPU_2.model_copy(update={"name": "od/2", "node_pool": "od"}),
            {"nodes": 1, "max_nodes": 1, "pending_pods": 1},
            "no capacity: the node of od has 0.4 cores and 1.2 GB free, "
            "a pod requests 2 cores and 4 GB; 1 pod is already pending",
        ),
        (
            CPU_1,
            {"nodes": 0, "max_nodes": 0, "pending_pods": 0},
            "no capacity: cpu-1 has no nodes, and no autoscaler adds one",
        ),
        (
            CPU_1.model_copy(update={"gpu_count": 1, "gpu_tflops": 100, "gpu_memory_gb": 16}),
            {"pending_pods": 0},
            "no capacity: the emptiest of 2 nodes of cpu-1 has 0 GPUs, 0.4 cores and 1.2 GB free, "
            "a pod requests 1 GPU, 1 core and 4 GB",
        ),
        (
            CPU_1,
            {"unschedulable": 2},
            "no capacity: the 2 nodes of cpu-1 take no pods: cordoned, not ready, or tainted by the cluster",
        ),
        (
            CPU_1,
            {"nodes": 1, "max_nodes": 1, "unschedulable": 1},
            "no capacity: the node of cpu-1 takes no pods: cordoned, not ready, or tainted by the cluster",
        ),
        (
            CPU_1,
            {"unschedulable": 1, "pending_pods": 0},
            "no capacity: the emptiest of 2 nodes of cpu-1 has 0.4 cores and 1.2 GB free, "
            "a pod requests 1 core and 4 GB; "
            "1 node takes no pods: cordoned, not ready, or tainted by the cluster",
        ),
    ],
)
def test_the_refusal_names_the_free_capacity_of_the_node_pool(
    pool: Pool, capacity: dict[str, int], sentence: str
) -> None:
    full = pool.model_copy(update={"capacity": NodeCapacity.model_validate(FULL.model_dump() | capacity)})
    assert (
        refusal(
            decide(laptop_question((EVALUATE,), pools=(full,), quotes=(quote(pool.name, "0.04"),))), pool.name
        )[1]
        == sentence
    )


def test_a_pod_that_exists_stays_where_it_is_whatever_its_pool_is_short_of_and_later_stages_do_not() -> None:
    pod = ExistingPod(decision_key="runs/r/decisions/ingest-1.json", pool="cpu-2", market=Market.ON_DEMAND)
    question = laptop_question((INGEST, PREPROCESS), pools=(CPU_1, with_capacity(CPU_2)))
    there = question.model_copy(
        update={"existing_pod": pod, "stockouts": (stockout("cpu-2", Market.ON_DEMAND),)}
    )
    decision = decide(there)
    assert decision.choice is not None and decision.choice.pool == "cpu-2"
    assert refusal(decision, "cpu-1") == (
        RefusalCode.POD_ELSEWHERE,
        "its pod exists already, on cpu-2 on-demand",
    )
    assert [planned.pool for planned in decision.plan] == ["cpu-1"]
    assert replay(record_bytes(decision)).verdict == "same"


def stockout(node_pool: str, market: Market) -> StockOut:
    return StockOut(
        node_pool=node_pool,
        market=market,
        at=NOON,
        until=NOON + timedelta(minutes=15),
        reason="r's train waited 300 s there",
    )


def test_a_stock_out_excludes_all_shares_of_a_node_pool_on_that_market() -> None:
    shares = tuple(pool.model_copy(update={"node_pool": "cpu-od"}) for pool in (CPU_1, CPU_2))
    decision = decide(laptop_question(pools=shares, stockouts=(stockout("cpu-od", Market.ON_DEMAND),)))
    assert decision.choice is None
    expected = (
        RefusalCode.STOCK_OUT,
        "excluded until 2026-11-01T12:15:00.000Z: r's train waited 300 s there",
    )
    assert {refusal(decision, pool.name) for pool in shares} == {expected}
    other = decide(
        laptop_question(
            pools=shares, stockouts=(stockout("cpu-od", Market.SPOT), stockout("cpu", Market.ON_DEMAND))
        )
    )
    assert other.choice is not None and other.choice.pool == "cpu-1"
    assert replay(record_bytes(decision)).verdict == "same"


def test_notes_are_on_the_page() -> None:
    decision = decide(laptop_question(notes=("prices.yaml could not be read: the last good copy is used",)))
    for page in (as_text(decision), as_markdown(decision)):
        assert "the last good copy is used" in page
