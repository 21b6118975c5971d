"""Receipts correct the prediction: for a used pool, for its hardware, and for hardware never used."""

from __future__ import annotations

import math
from typing import Any

import pytest
from example_receipts import A100, CPU, H100, NEED, T4, gpu_pool, receipt, receipts
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.types import Pool
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.pricing.learned.learning import learn
from shoestring.pricing.learned.runtime_factors import exploration_bonus, runtime_factor, runtime_factors
from shoestring.pricing.throughput import hardware_of


def ran_on(pool: Pool, **fields: Any) -> dict[str, Any]:
    return {"pool": pool.name, "hardware": hardware_of(NEED, pool)} | fields


def log_of(learned: tuple[LearnedSpeed, ...], pool: Pool) -> float:
    by_name = [each for each in learned if each.pool == pool.name]
    return (by_name or [each for each in learned if each.hardware == hardware_of(NEED, pool).name])[
        0
    ].log_mean


def test_an_unknown_stage_has_the_priors_factors() -> None:
    unseen = runtime_factor(NEED, CPU, ())
    assert (unseen.mean, unseen.p95) == (pytest.approx(math.exp(0.125)), pytest.approx(2.2760, abs=1e-3))
    assert learn([], [NEED], [CPU]) == ()


def test_one_run_moves_the_estimate_most_of_the_way() -> None:
    (learned,) = learn([receipt(20.0)], [NEED], [CPU])
    assert (learned.stage, learned.pool, learned.hardware, learned.runs) == (
        "train",
        "cpu",
        "1 x 1 Gop/s core",
        1,
    )
    assert 0.5 * math.log(2) < learned.log_mean < math.log(2)


def test_the_items_of_a_loop_are_one_stage() -> None:
    items = [receipt(20.0 + number, number, stage=f"train.{number}") for number in range(3)]
    plain = [each.model_copy(update={"stage": "train"}) for each in items]
    of_item = NEED.model_copy(update={"stage": "train.7"})
    (found,), (expected,) = learn(items, [of_item], [CPU]), learn(plain, [NEED], [CPU])
    assert found == expected.model_copy(update={"stage": "train.7"})


@examples(25)
@given(st.floats(0.02, 50))
def test_many_equal_runs_teach_their_ratio_and_narrow_the_factors(ratio: float) -> None:
    few, many = (learn(receipts([10.0 * ratio] * runs), [NEED], [CPU])[0] for runs in (5, 100))
    assert math.exp(many.log_mean) == pytest.approx(ratio, rel=0.03)
    assert many.log_sd < 0.15 and many.log_sd <= few.log_sd


@examples(25)
@given(st.lists(st.floats(1, 100), min_size=1, max_size=20), st.randoms())
def test_the_order_of_receipts_does_not_matter(seconds: list[float], random: Any) -> None:
    given_in = receipts(seconds)
    before = learn(given_in, [NEED], [CPU])
    random.shuffle(given_in)
    assert learn(given_in, [NEED], [CPU]) == before


@examples(25)
@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=20))
def test_the_p95_is_never_below_the_mean(seconds: list[float]) -> None:
    found = runtime_factor(NEED, CPU, learn(receipts(seconds), [NEED], [CPU]))
    assert 0 < found.mean <= found.p95 < math.inf


def test_an_unknown_pool_starts_from_its_hardware() -> None:
    twin = CPU.model_copy(update={"name": "twin"})
    learned = learn(receipts([30.0] * 5), [NEED], [CPU, twin])
    assert [(each.pool, each.runs) for each in learned] == [(None, 5), ("cpu", 5)]
    assert math.log(2) < log_of(learned, twin) <= math.log(3)


def test_unknown_hardware_starts_from_the_work_on_other_hardware_of_its_kind() -> None:
    """The predicted time was three times too short on every measured GPU, so the model expects the same on
    other GPUs.

    It learns nothing about cores.
    """
    seen = [*receipts([30.0] * 4, **ran_on(T4)), *receipts([30.0] * 4, **ran_on(A100))]
    learned = learn(seen, [NEED], [T4, A100, H100])
    assert math.log(2) < log_of(learned, H100) < math.log(4)
    on_cores = NEED.model_copy(update={"gpu": "no"})
    assert [each.log_mean for each in learn(seen, [on_cores], [CPU])] == [0.0]


@pytest.mark.parametrize("times", [0.3, 0.5, 2.0, 4.0])
def test_an_error_common_to_all_observed_gpus_is_not_extrapolated(
    times: float,
) -> None:
    """Equal errors of two A100 models give no information about how a faster GPU differs from them."""
    larger = gpu_pool("larger", "A100", 80, 312)
    seen = [receipt for pool in (A100, larger) for receipt in receipts([10 * times] * 4, **ran_on(pool))]
    assert log_of(learn(seen, [NEED], [A100, larger, H100]), H100) == pytest.approx(math.log(times), abs=0.15)


def test_an_unknown_work_starts_from_other_works_on_that_hardware() -> None:
    """Every work is twice as slow on T4, and as predicted on A100."""
    seen = []
    for number in range(6):
        seen += receipts([20.0], **ran_on(T4, work=f"work-{number}")) + receipts(
            [10.0], **ran_on(A100, work=f"work-{number}")
        )
    learned = learn(seen, [NEED], [T4, A100])
    assert log_of(learned, T4) - log_of(learned, A100) > 0.5 * math.log(2)


def test_a_work_that_gains_less_from_faster_arithmetic_is_expected_to_gain_less_again() -> None:
    seen = [*receipts([10.0] * 8, **ran_on(T4)), *receipts([24.0] * 8, **ran_on(A100))]
    learned = learn(seen, [NEED], [T4, A100, H100])
    assert log_of(learned, H100) > math.log(2.4) * 0.9


def test_one_outlier_makes_no_other_pool_impossible() -> None:
    two_cores = CPU.model_copy(update={"name": "two", "cores": 2})
    learned = learn(receipts([200.0]), [NEED], [CPU, two_cores])
    tried, untried = runtime_factor(NEED, CPU, learned), runtime_factor(NEED, two_cores, learned)
    assert tried.mean == pytest.approx(20, rel=0.1)
    assert untried.mean < 3 * tried.mean and untried.p95 < 30 * tried.mean


def test_old_runs_count_less() -> None:
    early, late = [10.0] * 60, [20.0] * 60
    (risen,), (fallen,) = (learn(receipts(each), [NEED], [CPU]) for each in (early + late, late + early))
    assert risen.log_mean > math.log(1.8) and fallen.log_mean < math.log(1.15)


def test_receipts_without_hardware_teach_by_the_name_of_their_pool() -> None:
    old = receipts([30.0] * 5, work="", hardware=None)
    (of_pool,) = learn(old, [NEED], [CPU])
    assert of_pool.log_mean > math.log(2) and of_pool.runs == 5
    gone = receipts([30.0] * 5, work="", hardware=None, pool="no longer there")
    assert 0 < learn(gone, [NEED], [CPU])[0].log_mean < of_pool.log_mean


@pytest.mark.parametrize(
    "useless",
    [
        receipt(5, status="stopped"),
        receipt(5, status="failed"),
        receipt(5, prior_s=0),
        receipt(0),
        receipt(5, cache_hit=True),
    ],
)
def test_a_run_that_did_not_finish_its_work_teaches_nothing(useless: Any) -> None:
    assert learn([useless], [NEED], [CPU]) == ()


def test_a_learned_speed_without_hardware_is_found_by_its_pool() -> None:
    old = LearnedSpeed.model_validate(
        {"stage": "train", "pool": "cpu", "runs": 3, "log_mean": 1.0, "log_sd": 0.0}
    )
    mean, p95 = runtime_factors(NEED, [CPU, T4], [old])
    assert mean.tolist() == pytest.approx([math.e, math.exp(0.125)]) and p95[0] == mean[0]


def test_the_exploration_bonus_falls_with_knowledge_and_is_zero_before_the_first_run() -> None:
    assert exploration_bonus(NEED, [T4, A100], (), 1.0).tolist() == [0.0, 0.0]
    few, many = (learn(receipts([30.0] * runs, **ran_on(T4)), [NEED], [T4, A100]) for runs in (1, 20))
    t4_few, a100_few = exploration_bonus(NEED, [T4, A100], few, 1.0).tolist()
    t4_many, a100_many = exploration_bonus(NEED, [T4, A100], many, 1.0).tolist()
    assert 0 < t4_many < t4_few < a100_few < 1 and t4_many < a100_many
    assert (
        exploration_bonus(NEED, [T4, A100], few, 2.0) > exploration_bonus(NEED, [T4, A100], few, 1.0)
    ).all() and not exploration_bonus(NEED, [T4, A100], few, 0.0).any()
