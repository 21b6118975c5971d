"""Usage caps: each cap's action is carried out and recorded; a senseless one is refused with the policy."""

from __future__ import annotations

import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError
from runtime_world import (
    INGEST,
    TRAIN,
    SetClock,
    StartedAttempt,
    begin,
    run_request,
    small_world,
    start_process,
)

from shoestring.config.guardrails import CAPS as ACTIONS
from shoestring.config.guardrails import CarbonGrid, Guardrails, UsageCap
from shoestring.config.policy import Policy
from shoestring.core.receipt import Receipt
from shoestring.core.types import Need, Pool
from shoestring.data.run_records import read_record
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.guardrails import check_guardrails, earlier_usage
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.spending.energy import CORE_W, JOULES_PER_KWH, joules

GRIDS = {
    "local": CarbonGrid(g_per_kwh=400, source="a test"),
    "far": CarbonGrid(g_per_kwh=50, source="a test"),
}


def guarded(began: StartedAttempt, **caps: UsageCap) -> Attempt:
    rules = Policy(guardrails=Guardrails(**caps), carbon_grids=GRIDS)
    return replace(began.attempt, world=replace(began.world, policy=rules))


@pytest.fixture
def make(laptop: Path, flights_slice: Path, tmp_path: Path):
    def start(needs: tuple[Need, ...] = INGEST) -> StartedAttempt:
        return begin(small_world(laptop, tmp_path, SetClock()), run_request(flights_slice, needs=needs))

    return start


def work(attempt: Attempt, seconds: float, cpu_s: float) -> None:
    attempt.world.clock.sleep(seconds)
    attempt.cpu_s += cpu_s


CAPS = {
    "joules": 60 * CORE_W,
    "core_minutes": 1.0,
    "co2_g": 60 * CORE_W / JOULES_PER_KWH * 400,
    "memory_gb": 1.0,
}


@pytest.mark.parametrize(
    ("name", "action"), [(name, action) for name, actions in ACTIONS.items() for action in actions]
)
def test_a_stage_stops_at_its_cap_with_every_action_and_names_it(make, name: str, action: str) -> None:
    """A minute of one core, or a gigabyte."""
    attempt = guarded(make(), **{name: UsageCap(max=CAPS[name], action=action)})
    work(attempt, 30, 30)
    attempt.peak_rss_bytes = 500_000_000
    check_guardrails(attempt, os.getpid())
    assert not attempt.stop_reason
    work(attempt, 31, 31)
    attempt.peak_rss_bytes = 1_100_000_000
    check_guardrails(attempt, os.getpid())
    cause = {"pause": "stop-requested", "rebalance": "memory" if name == "memory_gb" else "guardrail"}.get(
        action, "guardrail"
    )
    assert attempt.stop_cause == cause
    assert f"guardrail {name}" in attempt.stop_reason
    assert action in attempt.stop_reason
    assert attempt.changes[-1].lever == "guardrail"
    assert attempt.changes[-1].reason in attempt.stop_reason


def test_the_usage_of_earlier_attempts_counts(make) -> None:
    began = make()
    attempt = guarded(began, core_minutes=UsageCap(max=1.5))
    work(attempt, 60, 60)
    check_guardrails(attempt, os.getpid())
    settle_and_record(attempt, ChildResult(status="stopped", reason="the test is over"))
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert receipt.usage.core_minutes == 1.0
    assert receipt.usage.co2_g == pytest.approx(60 * CORE_W / JOULES_PER_KWH * 400, abs=1e-6)
    again = guarded(began, core_minutes=UsageCap(max=1.5))
    again.usage_before = earlier_usage(began.world.store, "r", "ingest")
    again.started_s = began.world.clock.monotonic_s()
    work(again, 31, 31)
    check_guardrails(again, os.getpid())
    assert again.stop_cause == "guardrail"
    assert earlier_usage(began.world.store, "r", "train").joules == 0


def test_a_rebalanced_training_ends_before_its_cap_and_records_it_once(make) -> None:
    attempt = guarded(make(TRAIN), joules=UsageCap(max=60 * CORE_W, action="rebalance"))
    attempt.reserved_usd = Decimal(1)
    before_s = attempt.meter().ends_s
    for _ in range(20):
        work(attempt, 1, 1)
        check_guardrails(attempt, os.getpid())
    assert attempt.meter().ends_s == pytest.approx(attempt.started_s + 60, abs=1)
    assert attempt.meter().ends_s < before_s
    assert [change.lever for change in attempt.changes] == ["guardrail"]
    assert "rebalance" in attempt.changes[0].reason
    assert not attempt.stop_reason


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process to cores")
def test_a_throttled_stage_keeps_half_of_its_cores(make) -> None:
    child = start_process("print(flush=True); import time; time.sleep(60)")
    try:
        cores = len(os.sched_getaffinity(child.pid))
        attempt = guarded(make(), core_minutes=UsageCap(max=1.0, action="throttle"))
        work(attempt, 50, 50)
        check_guardrails(attempt, child.pid)
        check_guardrails(attempt, child.pid)
        assert len(os.sched_getaffinity(child.pid)) == max(1, cores // 2)
        assert len(attempt.changes) == (1 if cores > 1 else 0)
        assert not attempt.stop_reason
    finally:
        child.kill()
        child.wait()


def test_an_action_that_lowers_no_usage_is_refused() -> None:
    with pytest.raises(ValidationError, match="throttle is no action for memory_gb"):
        Guardrails(memory_gb=UsageCap(max=1, action="throttle"))
    with pytest.raises(ValidationError, match="needs the carbon intensity of a region"):
        Policy(guardrails=Guardrails(co2_g=UsageCap(max=1)))
    with pytest.raises(ValidationError):
        UsageCap(max=0)


def test_joules_are_watts_by_utilisation_and_declared_watts_take_precedence() -> None:
    pool = Pool(name="p", cores=4, memory_gb=8)
    assert joules(pool, 100, 0) == 0
    assert joules(pool, 100, 400) == joules(pool, 100, 10**6) == 4 * CORE_W * 100
    assert joules(pool.model_copy(update={"power_w": 80.0}), 100, 200) == 80 * 100 / 2
    gpu = Pool(name="g", cores=4, memory_gb=8, gpu="NVIDIA L40S", gpu_count=2)
    assert joules(gpu, 10, 0) == 2 * 350 * 10
