"""An elastic stage is decided by the price of a sample, among plans that buy nearly as many samples."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from routing_cases import EVALUATE, TRAIN, laptop_question, quote

from shoestring.config.preferences import Preferences
from shoestring.core.types import Market, MarketTerms, Pool
from shoestring.routing.candidates import RefusalCode
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision

QUICK, SLOW = "quick", "slow"
ON_DEMAND_USD, SPOT_USD = "0.194", "0.056"


def machine(name: str, core_speed: float) -> Pool:
    markets = {Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms()}
    return Pool(name=name, cores=4, memory_gb=16, core_speed=core_speed, markets=markets)


def decided(share: float, slow_by: float = 0.999, **more: Any) -> Decision:
    """Return the decision about a training that its deadline limits: a pool is a little slower on spot."""
    preferences = Preferences(min_sample_share=share)
    fields: dict[str, Any] = {
        "pools": (machine(QUICK, 1.0), machine(SLOW, slow_by)),
        "quotes": (quote(QUICK, ON_DEMAND_USD), quote(SLOW, SPOT_USD, Market.SPOT)),
        "deadline_left_s": 30.0,
        "preferences": preferences,
    }
    return decide(laptop_question((TRAIN, EVALUATE), "5", **fields | more))


def test_a_few_samples_more_are_not_worth_a_higher_price() -> None:
    """The spot pool buys a few samples fewer at two sevenths of the price."""
    found, most = decided(0.95), decided(1.0)
    assert found.choice is not None and most.choice is not None
    assert (found.choice.pool, most.choice.pool) == (SLOW, QUICK)
    assert 0 < most.choice.samples - found.choice.samples < most.choice.samples / 100
    assert found.choice.est_usd < most.choice.est_usd * Decimal("0.3")
    assert (
        "the lowest cost for each sample, of the plans with at least 95% of the most" in found.choice.sentence
    )
    assert f"next is {QUICK} on-demand, each 2" in found.choice.sentence


@pytest.mark.parametrize(("slow_by", "pool"), [(0.97, SLOW), (0.93, QUICK)])
def test_the_share_of_the_policy_limits_how_many_samples_are_given_up(slow_by: float, pool: str) -> None:
    choice = decided(0.95, slow_by).choice
    assert choice is not None and choice.pool == pool
    assert (decided(0.9, slow_by).choice or choice).pool == SLOW


def test_each_refusal_names_its_price_or_its_samples() -> None:
    sentences = {each.code: each.sentence for each in decided(0.95).refusals}
    assert "samples, each 2" in sentences[RefusalCode.MORE_EXPENSIVE]
    assert "% more expensive" in sentences[RefusalCode.MORE_EXPENSIVE]
    far = {each.code: each.sentence for each in decided(0.95, 0.8).refusals}
    assert "samples expected" in far[RefusalCode.FEWER_SAMPLES]


def test_a_later_stage_on_a_quicker_machine_is_not_reserved_for_a_few_samples() -> None:
    """Evaluating on the quick pool leaves the training a little more time, at three times the price."""
    dear = {"quotes": (quote(QUICK, "4"), quote(SLOW, SPOT_USD, Market.SPOT))}
    found, most = decided(0.95, 0.98, **dear), decided(1.0, 0.98, **dear)
    assert [each.pool for each in found.plan] == [SLOW]
    assert [each.pool for each in most.plan] == [QUICK]
