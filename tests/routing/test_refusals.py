"""Each refusal names its numbers or its reason; an inconsistent question is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from dag_cases import branching
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from routing_cases import (
    CPU_1,
    EVALUATE,
    INGEST,
    PACKED,
    PARQUET,
    PREPROCESS,
    TRAIN,
    laptop_question,
    quote,
    tight_questions,
)

from shoestring.config.tariffs import Tariffs
from shoestring.core.types import Market, Pool, RejectedPrice
from shoestring.routing.decide import decide
from shoestring.routing.pages.refusal_text import refusal_text
from shoestring.routing.question import Question


def refusals_of(question: Question) -> set[tuple[str, str]]:
    return {(refusal.code, refusal.sentence) for refusal in decide(question).refusals}


def test_a_budget_refusal_holds_the_numbers() -> None:
    assert refusals_of(laptop_question((EVALUATE,), "0.00005")) == {
        ("over-budget", "$0.000056 expected (P95 $0.000111), $0.000050 left"),
        ("over-budget", "$0.000102 expected (P95 $0.000205), $0.000050 left"),
    }


def test_a_refusal_of_an_overdrawn_run_holds_the_excess() -> None:
    (first, _) = decide(laptop_question((EVALUATE,), "0.001", held_usd="0.0015")).refusals
    assert (
        first.sentence
        == "$0.000056 expected (P95 $0.000111), nothing left: the budget is exceeded by $0.000500"
    )


def test_a_deadline_refusal_names_the_shortest_deadline_that_is_enough() -> None:
    decision = decide(laptop_question((EVALUATE,), deadline_left_s=2.0))
    assert decision.smallest_budget_usd is None
    sentences = [refusal.sentence for refusal in decision.refusals]
    assert sentences == ["10.0 s at P95, 2.0 s left", "9.2 s at P95, 2.0 s left"]
    assert decision.smallest_deadline_s == 9.2
    assert refusal_text(decision).splitlines() == [
        "a deadline of 2.0 s is too short: no budget is enough in this time: the smallest deadline that is "
        "enough is 9.2 s",
        "  nearest: cpu-2 on-demand: 9.2 s at P95, 2.0 s left",
        "  cpu-1 on-demand: 10.0 s at P95, 2.0 s left",
    ]
    assert decide(laptop_question((EVALUATE,), deadline_left_s=9.2)).choice is not None


def test_where_neither_limit_is_enough_alone_both_are_named() -> None:
    question = laptop_question((EVALUATE,), "0.00005", deadline_left_s=2.0)
    both = decide(question).smallest_both
    assert both is not None and "it needs a budget of $" in refusal_text(decide(question))
    enough = {"budget_usd": both.budget_usd, "deadline_left_s": both.deadline_s}
    assert decide(question.model_copy(update=enough)).choice is not None
    for name, value in (("budget_usd", Decimal("0.99")), ("deadline_left_s", 0.99)):
        less = enough | {name: enough[name] * value}  # type: ignore[operator]
        assert decide(question.model_copy(update=less)).choice is None


@examples(60)
@given(st.one_of(tight_questions(), branching()), st.floats(0, 1), st.sampled_from([0.0, 17.5]))
def test_the_deadline_that_is_named_is_enough_and_one_percent_less_is_not(
    question: Question, share: float, used_s: float
) -> None:
    decision = decide(question.model_copy(update={"deadline_left_s": 100 * share, "deadline_used_s": used_s}))
    named_s = decision.smallest_deadline_s
    if named_s is None:
        return
    assert decision.choice is None

    def fits(deadline_s: float) -> bool:
        left_s = max(0.0, deadline_s - used_s)
        return decide(question.model_copy(update={"deadline_left_s": left_s})).choice is not None

    assert fits(named_s)
    assert named_s < 1 or not fits(0.99 * named_s - 0.002)


def test_a_memory_refusal_holds_both_numbers() -> None:
    need = EVALUATE.model_copy(update={"memory_fixed_gb": 1.0, "memory_bytes_per_row": 20_000.0})
    assert refusals_of(laptop_question((need,))) == {
        ("too-little-memory", "needs 7.74 GB of memory, cpu-1 has 4"),
        ("too-little-memory", "needs 7.74 GB of memory, cpu-2 has 4"),
    }


def test_a_pool_without_a_gpu_or_with_a_small_one_is_refused() -> None:
    small = Pool(name="gpu", cores=4, memory_gb=16, gpu="T4", gpu_count=1, gpu_memory_gb=16, gpu_tflops=65)
    need = TRAIN.model_copy(update={"gpu": "must", "gpu_memory_gb": 24.0})
    question = laptop_question(
        (need,), pools=(CPU_1, small), quotes=(quote("cpu-1", "0.04"), quote("gpu", "0.5"))
    )
    assert refusals_of(question) == {
        ("no-gpu", "needs a GPU of known speed, cpu-1 has none"),
        ("too-little-gpu-memory", "needs 24 GB of GPU memory, gpu has 16"),
    }


def test_a_pool_without_an_accepted_price_is_refused_with_the_reason() -> None:
    rejected = RejectedPrice(
        row="cpu-2 on-demand $0.000000 (2026-11-01, x)",
        reason="$0.000000 an hour is not a price: nobody gives cpu-2 away",
    )
    question = laptop_question(
        (EVALUATE,),
        quotes=(quote("cpu-1", "0.04"), quote("cpu-1", "0.01", Market.SPOT)),
        rejected_prices=(rejected,),
    )
    assert refusals_of(question) == {
        (
            "no-price",
            "no accepted price: $0.000000 an hour is not a price: nobody gives cpu-2 away",
        ),
        (
            "market-not-declared",
            "cpu-1 has a price for spot, but does not declare it: add spot to its markets",
        ),
    }
    unpriced = decide(laptop_question((EVALUATE,), quotes=()))
    assert unpriced.choice is None and unpriced.smallest_budget_usd is None
    assert unpriced.refusals[0].sentence == "no accepted price for cpu-1 on-demand"


def test_a_share_of_a_node_is_refused_with_the_reason_why_the_node_price_was_rejected() -> None:
    share = Pool(name="cpu/2", node_pool="cpu", cores=2, memory_gb=4)
    rejected = RejectedPrice(
        row="cpu on-demand $700.000000 (2026-11-01, x)", reason="$700.000000 an hour is a placeholder"
    )
    question = laptop_question((EVALUATE,), pools=(share,), quotes=(), rejected_prices=(rejected,))
    assert refusals_of(question) == {("no-price", "no accepted price: $700.000000 an hour is a placeholder")}


def test_a_later_stage_that_cannot_run_anywhere_makes_every_offer_refused() -> None:
    large_memory_need = TRAIN.model_copy(update={"memory_fixed_gb": 32.0})
    assert refusals_of(laptop_question((INGEST, PREPROCESS, large_memory_need))) == {
        ("later-stage-infeasible", "train cannot follow: needs 32.00 GB of memory, cpu-1 has 4")
    }
    declared = laptop_question(stage_budgets={"evaluate": Decimal("0.00001")})
    assert {code for code, _ in refusals_of(declared)} == {"later-stage-infeasible"}


def test_an_offer_that_fits_budget_or_deadline_but_not_both_is_refused() -> None:
    """The second stage writes quickly in a format that is expensive to store, or slowly in a cheap one."""
    stages = (
        INGEST.model_copy(update={"writes_bytes_per_row": 0}),
        INGEST.model_copy(update={"stage": "write"}),
    )
    slow = PARQUET.model_copy(update={"write_ns_per_row": 10**5})
    tariffs = Tariffs(storage_usd_per_gb_month=Decimal("0.5"), storage_held_hours=24 * 30)
    both = {
        "speeds": (slow, PACKED),
        "tariffs": tariffs,
        "pools": (CPU_1,),
        "quotes": (quote("cpu-1", "0.04"),),
    }
    dear, cheap = (
        laptop_question(stages, "1", deadline_left_s=30.0, **both),
        laptop_question(stages, "0.012", **both),
    )
    assert decide(dear).choice is not None and decide(cheap).choice is not None
    assert {code for code, _ in refusals_of(cheap.model_copy(update={"deadline_left_s": 30.0}))} == {
        "over-budget-or-deadline"
    }


def test_a_question_without_pools_is_refused_without_an_error() -> None:
    decision = decide(laptop_question(pools=(), quotes=()))
    assert decision.choice is None and decision.refusals == () and decision.smallest_budget_usd is None


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"stage": "train"}, "its first need"),
        ({"needs": (INGEST, TRAIN, TRAIN)}, "more than one elastic"),
        ({"reads_format": "arrow"}, "no speed for arrow"),
        ({"speeds": ()}, "no format has a speed"),
        ({"deadline_left_s": float("inf")}, "finite"),
        ({"budget_usd": 0.003}, "write it in quotes"),
    ],
)
def test_an_inconsistent_question_is_refused(wrong: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        Question.model_validate(laptop_question().model_dump() | wrong)
