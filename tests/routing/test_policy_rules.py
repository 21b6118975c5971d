"""A policy excludes pools and prices delay; it changes the choice, and each refusal names it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import (
    CPU_1,
    CPU_2,
    EVALUATE,
    INGEST,
    LAST_RESORT,
    PREPROCESS,
    TRAIN,
    answered,
    laptop_question,
    questions,
    quote,
)

from shoestring.config.preferences import Preferences, WorkloadClass
from shoestring.core.record import record_bytes
from shoestring.core.types import Market, MarketTerms, Need, Pool
from shoestring.routing.analysis.replay import replay
from shoestring.routing.candidates import POLICY_CODES, RefusalCode
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_table import stage_offer_table
from shoestring.routing.question import Question
from shoestring.routing.question_parts import workload_kind

L4 = Pool(
    name="gpu-l4/1gpu",
    node_pool="gpu-l4",
    cores=8,
    memory_gb=32,
    gpu="NVIDIA-L4",
    gpu_count=1,
    gpu_memory_gb=24,
    gpu_tflops=121,
    markets={Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms(preemptions_per_hour=0.3)},
)
PLACES: dict[str, Any] = {
    "pools": (CPU_1, CPU_2, L4),
    "quotes": (
        quote("cpu-1", "0.04"),
        quote("cpu-2", "0.08"),
        quote(L4.name, "0.8"),
        quote(L4.name, "0.3", Market.SPOT),
    ),
}


def decision_of(
    classes: dict[str, Any], needs: tuple[Need, ...] = (TRAIN, EVALUATE), **more: Any
) -> Decision:
    preferences = Preferences.model_validate(
        {"name": "house", "version": 3, "workload_classes": classes} | more
    )
    return decide(laptop_question(needs, "5", **PLACES, preferences=preferences))


def refused(decision: Decision, pool: str, market: Market) -> tuple[RefusalCode, str]:
    names, columns = decision.candidates, stage_offer_table(decision.candidates, 0)
    return next(
        (each.code, each.sentence)
        for each in decision.refusals
        if (names.pools[columns.pool[each.candidate]], names.markets[columns.market[each.candidate]])
        == (pool, market)
    )


def exclusions(decision: Decision) -> list[RefusalCode | None]:
    """Return the exclusion of every target, stage by stage."""
    return [
        None if code < 0 else each.exclusions[code]
        for each in decision.candidates.offers
        for code in each.exclusion.tolist()
    ]


workload_classes = st.builds(
    WorkloadClass,
    markets=st.none() | st.lists(st.sampled_from(Market), min_size=1, max_size=3, unique=True).map(tuple),
    pools=st.none()
    | st.lists(st.sampled_from(["pool-*", "*-1", "*0", "cpu*", "nothing"]), min_size=1, max_size=2).map(
        tuple
    ),
    hardware=st.sampled_from(["any", "gpu"]),
    gpus=st.none() | st.just(("L4",)),
    max_preemptions_per_hour=st.none() | st.floats(0, 1),
    delay_usd_per_hour=st.none() | st.decimals("0", "100", places=2),
)
policies = st.builds(
    Preferences,
    workload_classes=st.dictionaries(st.sampled_from(["compute", "data", "memory"]), workload_classes),
)


def with_policy(question: Question, preferences: Preferences) -> Question:
    """Return the question with a policy that allows LAST_RESORT, too."""
    classes = {
        kind: each.model_copy(
            update={
                "pools": each.pools and (*each.pools, LAST_RESORT.name),
                "markets": each.markets and tuple({*each.markets, Market.ON_DEMAND}),
            }
        )
        for kind, each in preferences.workload_classes.items()
    }
    changed = preferences.model_copy(update={"workload_classes": classes})
    return question.model_copy(update={"preferences": changed})


@examples(60)
@given(answered(st.builds(with_policy, questions(), policies)))
def test_no_stage_is_planned_where_its_workload_class_excludes_it(question: Question) -> None:
    decision, preferences = decide(question), question.preferences
    assert decision.choice is not None
    chosen = [] if decision.choice.cached else [decision.choice]
    for need, place in zip(question.needs[1 - len(chosen) :], [*chosen, *decision.plan], strict=True):
        workload = preferences.workload_class(question.workload_kind(need))
        assert not workload.violated_key(question.pool(place.pool), place.market)


@examples(60)
@given(questions(), policies)
def test_a_policy_only_excludes_offers_and_each_refusal_names_it(
    question: Question, preferences: Preferences
) -> None:
    free, kept = decide(question), decide(question.model_copy(update={"preferences": preferences}))
    for before, after in zip(exclusions(free), exclusions(kept), strict=True):
        assert after == before or (before is None and after in POLICY_CODES.values())
    for refusal in kept.refusals:
        assert (refusal.code in POLICY_CODES.values()) == refusal.sentence.startswith(
            "policy default 1 allows "
        )
    assert replay(record_bytes(kept)).verdict == "same"


@examples(30)
@given(questions())
def test_an_empty_policy_changes_nothing(question: Question) -> None:
    empty = Preferences(
        name="other",
        version=9,
        workload_classes={"compute": WorkloadClass(), "data": WorkloadClass(), "memory": WorkloadClass()},
    )
    free, kept = decide(question), decide(question.model_copy(update={"preferences": empty}))
    assert (kept.choice, kept.plan, kept.refusals) == (free.choice, free.plan, free.refusals)
    assert kept.applied_policy is not None and (
        kept.applied_policy.name,
        kept.applied_policy.version,
        kept.applied_policy.sha256,
    ) == (
        "other",
        9,
        empty.sha256,
    )


@pytest.mark.parametrize(
    ("workload", "pool", "market", "code", "sentence"),
    [
        (
            {"markets": ["on-demand"]},
            L4.name,
            "spot",
            "market-not-allowed",
            "policy house 3 allows compute-heavy work only on on-demand, this is spot",
        ),
        (
            {"pools": ["gpu-*", "big"]},
            "cpu-1",
            "on-demand",
            "pool-not-allowed",
            "policy house 3 allows compute-heavy work only on pools like gpu-* or big, this is cpu-1",
        ),
        (
            {"hardware": "gpu"},
            "cpu-2",
            "on-demand",
            "hardware-not-allowed",
            "policy house 3 allows compute-heavy work only on machines with GPUs, cpu-2 has none",
        ),
        (
            {"hardware": "cpu"},
            L4.name,
            "spot",
            "hardware-not-allowed",
            "policy house 3 allows compute-heavy work only on machines without GPUs, gpu-l4/1gpu has 1",
        ),
        (
            {"gpus": ["*H100*"]},
            L4.name,
            "spot",
            "gpu-type-not-allowed",
            "policy house 3 allows compute-heavy work only on GPUs like *H100*, gpu-l4/1gpu has NVIDIA-L4",
        ),
        (
            {"max_preemptions_per_hour": 0.1},
            L4.name,
            "spot",
            "preemption-rate-not-allowed",
            "policy house 3 allows compute-heavy work only where it is preempted at most 0.1 times an hour, "
            "on gpu-l4/1gpu spot it is 0.3 times",
        ),
    ],
)
def test_each_key_of_a_workload_class_has_its_own_refusal(
    workload: dict[str, Any], pool: str, market: str, code: str, sentence: str
) -> None:
    assert refused(decision_of({"compute": workload}), pool, Market(market)) == (RefusalCode(code), sentence)
    assert all(
        each.code not in POLICY_CODES.values() for each in decision_of({"memory": workload}).refusals
    ), "the rules of another workload class"


def test_a_workload_class_moves_its_stages_to_a_gpu_and_no_others() -> None:
    decision = decision_of({"compute": {"hardware": "gpu", "markets": ["on-demand"]}})
    assert decision.choice is not None and (decision.choice.pool, decision.choice.market) == (
        L4.name,
        Market.ON_DEMAND,
    )
    assert [later.pool for later in decision.plan] == ["cpu-1"]


def test_a_stage_without_allowed_pools_is_refused_at_any_budget() -> None:
    decision = decision_of({"compute": {"pools": ["tpu-*"]}})
    assert decision.choice is None and decision.smallest_budget_usd is None


@pytest.mark.parametrize(
    ("need", "kind"),
    [
        (INGEST, "data"),
        (PREPROCESS, "data"),
        (TRAIN, "compute"),
        (Need(stage="s", cpu_us_per_row=9.999), "data"),
        (Need(stage="s", cpu_us_per_row=10), "compute"),
        (Need(stage="s", cpu_us_per_row=1, passes=10, elastic=True), "compute"),
        (Need(stage="s", gpu="must"), "compute"),
        (Need(stage="s", memory_fixed_gb=16), "memory"),
        (Need(stage="s", memory_fixed_gb=16, workload="data"), "data"),
    ],
)
def test_the_kind_of_work_follows_from_the_need_unless_it_names_one(need: Need, kind: str) -> None:
    assert workload_kind(need, 1000) == kind


def test_a_price_of_delay_selects_the_faster_machine() -> None:
    patient, hasty = (
        decision_of({}, (PREPROCESS, EVALUATE)),
        decision_of({}, (PREPROCESS, EVALUATE), delay_usd_per_hour="3"),
    )
    assert patient.choice is not None and hasty.choice is not None
    assert (patient.choice.pool, hasty.choice.pool) == (
        "cpu-1",
        "cpu-2",
    ) and hasty.choice.est_s < patient.choice.est_s
    assert hasty.choice.sentence.startswith(
        "the lowest expected cost with evaluate, with delay at $3.000000 an hour: "
    )
    assert hasty.choice.est_usd < Decimal("0.01"), "money is reserved and expected without it"
    own = decision_of({"data": {"delay_usd_per_hour": 0}}, (PREPROCESS, EVALUATE), delay_usd_per_hour="3")
    assert own.choice is not None and own.choice.pool == "cpu-1"
