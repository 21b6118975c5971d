"""The costs of offers equal sums computed by hand."""

from __future__ import annotations

from decimal import Decimal
from math import exp, expm1, sqrt

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import (
    CPU_1,
    EVALUATE,
    INGEST,
    PACKED,
    PREPROCESS,
    TRAIN,
    laptop_question,
    questions,
    quote,
)

from shoestring.config.tariffs import Tariffs
from shoestring.config.world import CommittedHours
from shoestring.core.types import Format, Market, MarketTerms, Need, Pool
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_table import OfferTable, full_offer_table
from shoestring.routing.question import Question

ROWS = 1_000_000
MEAN, P95 = exp(0.125), exp(1.6448536269514722 / 2)


def only(question: Question, **fields: int) -> int:
    """Return the row whose columns hold these numbers."""
    columns = full_offer_table(enumerate_offers(question))
    (row,) = (
        row
        for row in range(len(columns.stage))
        if all(getattr(columns, name)[row] == value for name, value in fields.items())
    )
    return row


def one_pool(
    need: Need, pool: Pool = CPU_1, price: str = "0.36", market: Market = Market.ON_DEMAND, **fields: object
) -> OfferTable:
    return full_offer_table(
        enumerate_offers(
            laptop_question(
                (need,), rows=ROWS, pools=(pool,), quotes=(quote(pool.name, price, market),), **fields
            )
        )
    )


def test_a_scan_takes_setup_reading_computing_and_writing() -> None:
    """$0.36 an hour is 100 micro-dollars a second."""
    columns = one_pool(PREPROCESS, reads_format=Format.PARQUET, row_bytes=500)
    assert columns.writes.tolist() == [0, 1]
    reading_s = ROWS * 300e-9 + ROWS * 500 / 1e9
    writing_s = ROWS * 900e-9 + ROWS * 60 / 1e9
    prior_s = 1.5 + ROWS * 4000 / 1e9 + reading_s + writing_s
    assert columns.prior_ms[1] == pytest.approx(prior_s * 1e3, abs=1)
    assert columns.est_ms[1] == pytest.approx(prior_s * MEAN * 1e3, abs=1)
    assert columns.p95_ms[1] == pytest.approx(prior_s * P95 * 1e3, abs=1)
    held_micro = ROWS * 60 * 0.4 / 1e9 * 0.023 * 24 / 730 * 1e6
    assert columns.storage_microusd[1] == pytest.approx(held_micro, abs=1)
    assert columns.p95_microusd[1] == pytest.approx(prior_s * P95 * 100 + held_micro, abs=2)


def test_a_shuffled_reader_decodes_once_and_then_reads_packed_records() -> None:
    columns = one_pool(TRAIN, reads_format=Format.PARQUET, row_bytes=100)
    once_s = ROWS * 300e-9 + ROWS * 100 / 1e9
    takes_s = 12 * ROWS * (40e-9 + 100 / 1e9)
    assert columns.read_ms[0] == pytest.approx((once_s + takes_s) * 1e3, abs=1)
    assert columns.fixed_ms[0] == pytest.approx((3 + once_s) * 1e3, abs=1)
    assert (columns.samples[0], columns.min_samples[0]) == (12 * ROWS, ROWS)


def test_egress_is_paid_in_both_directions_by_size_on_disk() -> None:
    far = CPU_1.model_copy(update={"region": "far"})
    tariffs = Tariffs(egress_usd_per_gb={"local->far": Decimal("0.02"), "far->local": Decimal("0.09")})
    columns = one_pool(PREPROCESS, far, reads_format=Format.PACKED, row_bytes=1000, tariffs=tariffs)
    parquet = sorted((Format.PACKED, Format.PARQUET)).index(Format.PARQUET)
    assert columns.transfer_microusd[parquet] == pytest.approx(1e6 * (0.02 * 1.1 + 0.09 * 0.06 * 0.4), abs=1)
    assert set(
        one_pool(PREPROCESS, reads_format=Format.PACKED, row_bytes=1000, tariffs=tariffs).transfer_microusd
    ) == {0}


OUT_OF_FAR = {"far->local": [{"up_to_gb": 100, "usd_per_gb": "0"}, {"usd_per_gb": "0.09"}], "local->far": "0"}


@given(st.integers(1, 3), st.integers(0, 120), st.integers(0, 400))
def test_the_stages_of_a_run_share_a_free_egress_tier(stages: int, transferred_gb: int, row_kb: int) -> None:
    """Each stage leaves the region with the same bytes; the free GB are counted once."""
    far = CPU_1.model_copy(update={"region": "far"})
    tariffs = {"egress_usd_per_gb": OUT_OF_FAR, "transferred_gb": {"far->local": transferred_gb}}
    needs = tuple(
        PREPROCESS.model_copy(update={"stage": name, "writes_bytes_per_row": row_kb * 1000})
        for name in "abc"[:stages]
    )
    fields = {"rows": ROWS, "pools": (far,), "quotes": (quote("cpu-1", "0.36"),), "speeds": (PACKED,)}
    columns = full_offer_table(
        enumerate_offers(laptop_question(needs, tariffs=Tariffs.model_validate(tariffs), **fields))
    )
    gb = stages * ROWS * row_kb * 1000 * PACKED.size_ratio / 1e9
    over = max(0.0, transferred_gb + gb - 100) - max(0, transferred_gb - 100)
    assert sum(columns.transfer_microusd) == pytest.approx(over * 90_000, abs=stages)


def test_a_later_stage_does_not_count_on_free_egress_that_an_earlier_one_may_use() -> None:
    """With two pools, the planner cannot know whether the first stage transfers its bytes out of the far
    region.
    """
    far = CPU_1.model_copy(update={"name": "far", "region": "far"})
    tariffs = {"egress_usd_per_gb": OUT_OF_FAR}
    needs = tuple(
        PREPROCESS.model_copy(update={"stage": name, "writes_bytes_per_row": 100_000}) for name in "ab"
    )
    fields = {
        "rows": ROWS,
        "pools": (CPU_1, far),
        "quotes": (quote("cpu-1", "0.36"), quote("far", "0.36")),
        "speeds": (PACKED,),
    }
    names = enumerate_offers(laptop_question(needs, tariffs=Tariffs.model_validate(tariffs), **fields))
    columns = full_offer_table(names)
    paid = {
        (stage, names.pools[pool]): usd
        for stage, pool, usd in zip(columns.stage, columns.pool, columns.transfer_microusd, strict=True)
    }
    gb = ROWS * 100_000 * PACKED.size_ratio / 1e9
    assert paid[0, "far"] == pytest.approx(max(0, gb - 100) * 90_000, abs=1)
    assert (
        paid[1, "far"] == pytest.approx((2 * gb - 100 - max(0, gb - 100)) * 90_000, abs=1)
        and paid[1, "cpu-1"] == 0
    )


@given(st.floats(0, 0.02), st.floats(0, 0.02), st.floats(0.1, 1))
def test_committed_hours_are_free_until_used_up_and_never_at_p95(
    most: float, used: float, part: float
) -> None:
    commitment = CommittedHours(
        name="c",
        pool="cpu-1",
        market=Market.ON_DEMAND,
        month="2026-11",
        max_hours=most + 1e-9,
        hours_per_hour=part,
        used_hours=used,
    )
    fresh, free = one_pool(PREPROCESS), one_pool(PREPROCESS, commitments=(commitment,))
    assert (
        free.est_ms.tolist() == fresh.est_ms.tolist()
        and free.p95_microusd.tolist() == fresh.p95_microusd.tolist()
    )
    for row in range(len(free.stage)):
        paid_ms = max(0, free.est_ms[row] - commitment.left_ms)
        assert free.est_microusd[row] == pytest.approx(paid_ms / 10 + fresh.storage_microusd[row], abs=1)


def spot(rate: float) -> Pool:
    return Pool(
        name="p",
        cores=1,
        memory_gb=4,
        startup_s=60,
        markets={Market.SPOT: MarketTerms(preemptions_per_hour=rate)},
    )


def test_preemption_without_checkpoints_costs_repeated_trials() -> None:
    need = Need(stage="work", setup_s=3600.0)
    running_s = 3600 * MEAN
    losses = running_s / 3600
    lost_s = expm1(losses) * 60 + (expm1(losses) / losses - 1) * running_s
    columns = one_pool(need, spot(1.0), market=Market.SPOT)
    assert columns.loss_ms[0] == pytest.approx(lost_s * 1e3, abs=1)
    assert columns.est_ms[0] == pytest.approx((60 + running_s + lost_s) * 1e3, abs=2)


def test_preemption_with_checkpoints_costs_a_restart() -> None:
    need = Need(stage="work", setup_s=3600.0, checkpoint_s=5)
    columns = one_pool(need, spot(1.0), market=Market.SPOT)
    each_s = 60 + 3600 + 5
    assert columns.loss_ms[0] == pytest.approx(MEAN * each_s * 1e3, abs=1)
    assert columns.p95_ms[0] == pytest.approx(
        (60 + 3600 * P95 + (P95 + 1.6448536269514722 * sqrt(P95)) * each_s) * 1e3, abs=2
    )


def test_a_rare_preemption_costs_its_probability_times_half_the_work() -> None:
    columns = one_pool(Need(stage="work", setup_s=3600.0), spot(0.001), market=Market.SPOT)
    assert columns.loss_ms[0] == pytest.approx(0.001 * MEAN * (60 + 1800 * MEAN) * 1e3, rel=0.01)


def test_learned_speeds_change_the_estimate_and_not_the_prior() -> None:
    learned = (LearnedSpeed(stage="evaluate", pool="cpu-1", runs=9, log_mean=1.0, log_sd=0.0),)
    fresh, taught = one_pool(EVALUATE), one_pool(EVALUATE, learned=learned)
    assert fresh.prior_ms == taught.prior_ms
    assert taught.est_ms[0] == taught.p95_ms[0] == pytest.approx(fresh.prior_ms[0] * exp(1.0), abs=3)


def test_a_later_stage_reads_each_format_that_the_one_before_may_write() -> None:
    columns = full_offer_table(enumerate_offers(laptop_question((INGEST, PREPROCESS, TRAIN))))
    met: dict[int, set[tuple[int, int]]] = {0: set(), 1: set(), 2: set()}
    for stage, reads, writes in zip(columns.stage, columns.reads, columns.writes, strict=True):
        met[stage].add((reads, writes))
    assert met == {0: {(-1, 0), (-1, 1)}, 1: {(0, 0), (0, 1), (1, 0), (1, 1)}, 2: {(0, -1), (1, -1)}}


def test_a_cached_result_is_one_free_offer_on_the_cheapest_pool() -> None:
    question = laptop_question((PREPROCESS,), cached_outcome="cache/1.json", cached_format="parquet")
    row = only(question, cached=1)
    names = enumerate_offers(question)
    columns = full_offer_table(names)
    assert (names.pools[columns.pool[row]], names.formats[columns.writes[row]]) == ("cpu-1", Format.PARQUET)
    assert columns.est_microusd[row] == columns.p95_microusd[row] == columns.est_ms[row] == 0


@examples(50)
@given(questions())
def test_estimates_are_ordered_and_small_enough_to_add(question: Question) -> None:
    columns = full_offer_table(enumerate_offers(question))
    for row in range(len(columns.stage)):
        assert (
            0
            <= columns.min_est_microusd[row]
            <= columns.est_microusd[row]
            <= columns.p95_microusd[row]
            <= 10**15
        )
        assert columns.min_est_microusd[row] <= columns.min_p95_microusd[row] <= columns.p95_microusd[row]
        assert columns.min_est_ms[row] <= columns.est_ms[row] <= columns.p95_ms[row] <= 10**15


def test_extremely_slow_offers_get_capped_numbers() -> None:
    columns = one_pool(Need(stage="work", setup_s=1e30), spot(1e6), market=Market.SPOT)
    assert (columns.p95_ms[0], columns.p95_microusd[0]) == (10**15, 10**14)
