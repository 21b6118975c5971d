"""Time and price of offers that can be preempted, against closed forms and a simulation."""

from __future__ import annotations

import itertools
from math import exp, expm1, sqrt

import numpy as np
import pytest
from routing_cases import laptop_question, quote

from shoestring.config.engines import Engine, assumed_times
from shoestring.core.types import Market, MarketTerms, Need, Pool
from shoestring.pricing.checkpoint_interval import checkpoint_interval_s
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.candidates import Floats
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_costs import portable_expm1
from shoestring.routing.offers.offer_table import OfferTable, full_offer_table

Z95 = 1.6448536269514722
WORK_S = 1000.0
MICRO_PER_S = 100
"""$0.36 an hour."""


def spot_offer(
    need: Need, per_hour: float, startup_s: float, log_mean: float = 0.0, engine: Engine = "argo"
) -> OfferTable:
    """Return the only offer of a stage: on spot, at $0.36 an hour, at a known speed."""
    terms = MarketTerms(preemptions_per_hour=per_hour)
    pool = Pool(name="p", cores=1, memory_gb=4, startup_s=startup_s, markets={Market.SPOT: terms})
    learned = LearnedSpeed(stage=need.stage, pool="p", runs=99, log_mean=log_mean, log_sd=0.0)
    question = laptop_question(
        (need,), pools=(pool,), quotes=(quote("p", "0.36", Market.SPOT),), learned=(learned,)
    )
    question = question.model_copy(update={"engine": assumed_times(engine, 0.0)})
    return full_offer_table(enumerate_offers(question))


def simulated_s(work_s: float, per_hour: float, startup_s: float, runs: int = 100_000) -> Floats:
    """Return the billed seconds of runs that begin again after each preemption; lifetimes are exponential."""
    dice, total, left = np.random.default_rng(5), np.zeros(runs), np.arange(runs)
    while left.size:
        lifetime_s = dice.exponential(3600 / per_hour, left.size)
        total[left] += startup_s + np.minimum(work_s, lifetime_s)
        left = left[lifetime_s < work_s]
    return total


@pytest.mark.parametrize("startup_s", [0.0, 40.0, 500.0])
@pytest.mark.parametrize("preemptions", [0.02, 0.1, 0.5, 1.0, 3.0])
def test_without_checkpoints_time_and_price_are_those_of_the_closed_form(
    preemptions: float, startup_s: float
) -> None:
    columns = spot_offer(Need(stage="work", setup_s=WORK_S), 3600 / WORK_S * preemptions, startup_s)
    restarts = expm1(preemptions)
    mean_s = (1 + restarts) * startup_s + WORK_S * restarts / preemptions
    p95_s = mean_s + Z95 * sqrt(preemptions) * (startup_s + WORK_S / 2)
    for name, seconds in (("est", mean_s), ("min_est", mean_s), ("p95", p95_s), ("min_p95", p95_s)):
        assert getattr(columns, f"{name}_ms")[0] == pytest.approx(1000 * seconds, abs=1)
        assert getattr(columns, f"{name}_microusd")[0] == pytest.approx(MICRO_PER_S * seconds, abs=2)
    assert columns.loss_ms[0] == pytest.approx(1000 * (mean_s - WORK_S - startup_s), abs=1)


@pytest.mark.parametrize("startup_s", [0.0, 40.0, 500.0])
@pytest.mark.parametrize("preemptions", [0.1, 1.0, 3.0])
def test_with_checkpoints_a_preemption_costs_a_start_the_setup_and_the_checkpoint(
    preemptions: float, startup_s: float
) -> None:
    need = Need(stage="work", setup_s=WORK_S, checkpoint_s=5.0)
    columns = spot_offer(need, 3600 / WORK_S * preemptions, startup_s)
    each_s = startup_s + WORK_S + 5
    mean_s = startup_s + WORK_S + preemptions * each_s
    p95_s = mean_s + Z95 * sqrt(preemptions) * each_s
    assert columns.est_ms[0] == pytest.approx(1000 * mean_s, abs=1)
    assert columns.p95_ms[0] == pytest.approx(1000 * p95_s, abs=1)
    assert columns.p95_microusd[0] == pytest.approx(MICRO_PER_S * p95_s, abs=2)


@pytest.mark.parametrize(
    ("checkpoint_s", "preemptions", "interval_s"),
    # At the least, at a share of the time, and by the rate: sqrt(2 x 30 x 1000 / 3).
    [(0.05, 1.0, 5.0), (2.0, 0.1, 100.0), (30.0, 3.0, 141.4213562)],
)
def test_without_notice_a_preemption_costs_half_of_a_checkpoint_interval_instead_of_the_checkpoint(
    checkpoint_s: float, preemptions: float, interval_s: float
) -> None:
    need = Need(stage="work", setup_s=WORK_S, checkpoint_s=checkpoint_s)
    columns = spot_offer(need, 3600 / WORK_S * preemptions, 40.0, engine="kubeflow")
    each_s = 40 + WORK_S + interval_s / 2
    mean_s = 40 + WORK_S + preemptions * each_s
    assert columns.est_ms[0] == pytest.approx(1000 * mean_s, abs=1)
    assert columns.p95_ms[0] == pytest.approx(1000 * (mean_s + Z95 * sqrt(preemptions) * each_s), abs=1)


def test_a_checkpoint_interval_loses_least_time_at_its_rate() -> None:
    """Among all intervals from 5 s to two hours, at rates from one in ten hours to thirty an hour."""
    intervals = np.geomspace(5, 7200, 2000)
    for checkpoint_s, per_hour in itertools.product((0.5, 5.0, 60.0), (0.1, 1.0, 5.0, 30.0)):
        lost = checkpoint_s / intervals + per_hour * intervals / 7200
        best_s = min(intervals[lost.argmin()], checkpoint_s / 0.02)
        assert checkpoint_interval_s(checkpoint_s, per_hour) == pytest.approx(max(5.0, best_s), rel=0.01)
    assert checkpoint_interval_s(0.0, 0.0) == 5.0


@pytest.mark.parametrize("startup_s", [0.0, 40.0, 500.0])
@pytest.mark.parametrize(
    ("preemptions", "min_covered"),
    [(0.02, 0.97), (0.05, 0.95), (0.1, 0.91), (0.5, 0.86), (1.0, 0.82), (2.0, 0.74)],
)
def test_without_checkpoints_the_mean_is_that_of_a_simulation_and_the_p95_covers_this_share(
    preemptions: float, min_covered: float, startup_s: float
) -> None:
    """At a known speed the normal approximation is below the P95 from a preemption in ten runs on."""
    per_hour = 3600 / WORK_S * preemptions
    columns = spot_offer(Need(stage="work", setup_s=WORK_S), per_hour, startup_s)
    taken_s = simulated_s(WORK_S, per_hour, startup_s)
    assert columns.est_ms[0] == pytest.approx(1000 * taken_s.mean(), rel=0.01)
    assert (1000 * taken_s <= columns.p95_ms[0]).mean() >= min_covered


def test_a_slower_pool_is_exposed_to_preemptions_for_longer() -> None:
    """It runs e times as long as the prior predicts, and is preempted e times as often."""
    columns = spot_offer(Need(stage="work", setup_s=WORK_S), 1.8, 30.0, log_mean=1.0)
    running_s, preemptions = exp(1) * WORK_S, exp(1) * WORK_S * 1.8 / 3600
    mean_s = exp(preemptions) * 30 + running_s * expm1(preemptions) / preemptions
    assert columns.est_ms[0] == pytest.approx(1000 * mean_s, abs=1)
    assert columns.prior_ms[0] == pytest.approx(1000 * WORK_S, abs=1)


def test_the_exponential_is_exact_to_a_few_last_digits_up_to_the_largest_number_of_preemptions() -> None:
    values = np.concatenate([np.linspace(0, 50, 20_001), np.geomspace(1e-12, 50, 5001)])
    np.testing.assert_allclose(portable_expm1(values), np.expm1(values), rtol=1e-14)
    assert portable_expm1(np.zeros(1))[0] == 0.0


def test_more_preemptions_than_the_maximum_cost_no_more() -> None:
    need = Need(stage="work", setup_s=WORK_S, checkpoint_s=5.0)
    most, more = (spot_offer(need, 3600 / WORK_S * each, 0.0) for each in (50.0, 500.0))
    assert most.est_ms[0] == more.est_ms[0] and most.p95_ms[0] == more.p95_ms[0]
    assert spot_offer(need, 3600 / WORK_S * 30.0, 0.0).est_ms[0] < most.est_ms[0]
