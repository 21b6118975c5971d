"""The prior's arithmetic, and how receipts correct it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.model import Market, Need, Pool
from shoestring.pricing.throughput import learn, row_seconds, setup_seconds, spread, uses_gpu
from shoestring.receipt import Receipt

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
GPU = Pool(name="gpu", cores=4, memory_gb=16, gpu_count=1, gpu_memory_gb=16, gpu_tflops=65)


def receipt(seconds: float, prior_s: float = 10.0, **fields: Any) -> Receipt:
    defaults = {
        "run_id": "1",
        "stage": "train",
        "attempt": 1,
        "pod_uid": "p",
        "decision_key": "k",
        "status": "done",
        "pool": "cpu",
        "market": Market.ON_DEMAND,
        "format": None,
        "cache_hit": False,
        "budget_usd": Decimal(1),
        "est_usd": Decimal(1),
        "p95_usd": Decimal(1),
        "est_s": 1.0,
        "spent_usd": Decimal(1),
        "started_at": NOON,
        "finished_at": NOON,
        "ledger_head": "h",
    }
    return Receipt.model_validate(defaults | {"seconds": seconds, "prior_s": prior_s} | fields)


def test_more_cores_speed_up_the_parallel_share_only() -> None:
    need = Need(stage="s", op_per_row=1e6, parallel_fraction=0.75)
    assert row_seconds(need, Pool(name="p", cores=1, memory_gb=1)) == pytest.approx(1e-3)
    assert row_seconds(need, Pool(name="p", cores=3, memory_gb=1)) == pytest.approx(0.5e-3)
    assert row_seconds(need, Pool(name="p", cores=3, memory_gb=1, core_gops=2)) == pytest.approx(0.25e-3)
    assert setup_seconds(Need(stage="s", setup_s=6), Pool(name="p", cores=4, memory_gb=1, core_gops=2)) == 3


def test_a_gpu_is_as_fast_as_its_arithmetic_or_as_its_host() -> None:
    need = Need(stage="s", op_per_row=1e6, parallel_fraction=0.9, gpu="may", gpu_flop_per_row=1e10)
    assert row_seconds(need, GPU) == pytest.approx(1e10 / (65e12 * 0.3))
    assert row_seconds(need.model_copy(update={"gpu_flop_per_row": 1.0}), GPU) == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("fields", "used"),
    [
        ({"gpu": "no", "gpu_flop_per_row": 1.0}, False),
        ({"gpu": "may", "gpu_flop_per_row": 1.0}, True),
        ({"gpu": "may"}, False),
        ({"gpu": "must"}, True),
        ({"gpu": "must", "gpu_memory_gb": 24.0}, False),
    ],
)
def test_a_gpu_is_used_when_the_stage_can_and_it_is_large_enough(fields: dict[str, Any], used: bool) -> None:
    assert uses_gpu(Need(stage="s", **fields), GPU) is used


def test_what_was_never_seen_has_the_priors_spread() -> None:
    unseen = spread("train", "cpu", ())
    assert (unseen.mean, unseen.p95) == (pytest.approx(math.exp(0.125)), pytest.approx(2.2760, abs=1e-3))


def test_one_run_moves_the_estimate_half_way() -> None:
    (learned,) = learn([receipt(40.0)])
    assert (learned.stage, learned.pool, learned.runs) == ("train", "cpu", 1)
    assert learned.log_mean == pytest.approx(math.log(4) / 2)
    assert learned.log_sd == pytest.approx(math.sqrt((2 * 0.25 + math.log(4) ** 2 / 2) / 3))


@given(st.floats(0.05, 20))
def test_many_equal_runs_teach_their_ratio_and_narrow_the_spread(ratio: float) -> None:
    few, many = (learn([receipt(10.0 * ratio)] * runs)[0] for runs in (5, 500))
    assert math.exp(many.log_mean) == pytest.approx(ratio, rel=0.01)
    assert many.log_sd < 0.15 and many.log_sd <= few.log_sd


@given(st.lists(st.floats(1, 100), min_size=1, max_size=20), st.randoms())
def test_the_order_of_receipts_teaches_nothing(seconds: list[float], random: Any) -> None:
    receipts = [receipt(each, pool=f"pool-{int(each) % 3}") for each in seconds]
    before = learn(receipts)
    random.shuffle(receipts)
    assert learn(receipts) == before


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=20))
def test_the_p95_is_never_below_the_mean(seconds: list[float]) -> None:
    learned = learn([receipt(each) for each in seconds])
    assert 0 < spread("train", "cpu", learned).mean <= spread("train", "cpu", learned).p95
    assert spread("train", "other", learned) == spread("train", "cpu", ())


@pytest.mark.parametrize(
    "useless", [receipt(5, status="stopped"), receipt(5, status="failed"), receipt(5, prior_s=0), receipt(0), receipt(5, cache_hit=True)]
)
def test_a_run_that_did_not_finish_its_own_work_teaches_nothing(useless: Receipt) -> None:
    assert learn([useless]) == ()
