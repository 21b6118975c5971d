"""A pool that may well be better is tried, inside the budget, and said to be."""

from __future__ import annotations

from typing import Any

from routing_cases import CPU_1, EVALUATE, laptop_question, quote

from shoestring.model import Learned
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision

OTHER = CPU_1.model_copy(update={"name": "other"})


def decided(unknown_log_sd: float, log_sd: float = 0.5, **fields: Any) -> Decision:
    """The other pool is a tenth dearer, and its speed is not well known."""
    learned = (
        Learned(stage="evaluate", pool="cpu-1", runs=20, log_mean=0.1, log_sd=0.1),
        Learned(stage="evaluate", pool="other", runs=0, log_mean=0, log_sd=log_sd, unknown_log_sd=unknown_log_sd),
    )
    prices = (quote("cpu-1", "0.040000"), quote("other", "0.044000"))
    return decide(laptop_question((EVALUATE,), pools=(CPU_1, OTHER), quotes=prices, learned=learned, **fields))


def pool_of(decision: Decision) -> str:
    assert decision.choice is not None
    return decision.choice.pool


def test_what_may_well_be_better_is_tried_and_what_cannot_be_is_not() -> None:
    tried, known = decided(0.45), decided(0.0)
    assert (pool_of(tried), pool_of(known)) == ("other", "cpu-1")
    assert tried.choice is not None and "taken off for finding out how fast it is here" in tried.choice.sentence
    assert known.choice is not None and "finding out" not in known.choice.sentence


def test_the_expectation_and_the_reservation_know_nothing_of_it() -> None:
    tried, known = decided(0.45), decided(0.0)
    for name in ("mean_ppb_by_machine", "p95_ppb_by_machine"):
        assert getattr(tried.candidates.offers[0], name).tolist() == getattr(known.candidates.offers[0], name).tolist()
    assert tried.choice is not None and known.choice is not None and tried.choice.est_usd > known.choice.est_usd


def test_a_p95_that_does_not_fit_is_not_tried_for_what_it_teaches() -> None:
    tried = decided(0.45).choice
    assert tried is not None
    assert pool_of(decided(0.45, budget_usd=str(tried.p95_usd))) == "other"
    assert pool_of(decided(0.45, budget_usd=str(tried.p95_usd - tried.p95_usd / 10))) == "cpu-1"
