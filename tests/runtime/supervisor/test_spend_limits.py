"""A price that changes while a stage runs: the supervisor uses it, its child receives it, the ledger is
right.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import INGEST, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.core.receipt import Receipt
from shoestring.core.types import Market
from shoestring.data.run_records import read_record
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.spend_limits import LIMITS_FILE, LimitsReader
from shoestring.runtime.supervisor.supervisor import make_heartbeat, send_limits
from shoestring.spending.end_evidence import EndEvidence
from shoestring.spending.ends import cost_of_end
from shoestring.spending.meter import Meter, cost_between_usd

ROW = "{pool: cpu-1, market: %s, usd_per_hour: '%s', as_of: 2026-11-01, source: a test}"
TARIFFS = "tariffs: {storage_usd_per_gb_month: '0'}\n"


def write_world(path: Path, market: str, usd_per_hour: str) -> Path:
    pool = f"{{name: cpu-1, cores: 1, memory_gb: 2, markets: {{{market}: {{}}}}}}"
    path.write_text(
        f"name: one\nstore: {path.parent / 'store'}\npools: [{pool}]\n"
        f"prices: [{ROW % (market, usd_per_hour)}]\n{TARIFFS}"
    )
    return path


def began_on(market: str, recipe: Path, folder: Path) -> tuple[StartedAttempt, Path]:
    file = write_world(folder / "world.yaml", market, "0.04")
    return begin(small_world(file, folder, SetClock()), run_request(recipe, needs=INGEST)), file


@pytest.fixture
def spot(flights_slice: Path, tmp_path: Path) -> tuple[StartedAttempt, Path]:
    return began_on("spot", flights_slice, tmp_path)


def test_a_raised_spot_price_counts_from_the_read_before_it(spot: tuple[StartedAttempt, Path]) -> None:
    began, file = spot
    attempt, clock = began.attempt, began.world.clock
    attempt.reserved_usd = Decimal("0.010000")
    clock.sleep(90)
    attempt.update_price()
    clock.sleep(1)
    write_world(file, "spot", "0.12")
    attempt.update_price()
    clock.sleep(29)
    assert attempt.usd_per_hour == Decimal("0.12")
    assert attempt.spent_usd() == Decimal("0.001000") + Decimal("0.001000")
    assert attempt.price_usd(30) == Decimal("0.001000")
    heartbeat = make_heartbeat(attempt, "running")
    assert [price.usd_per_hour for price in heartbeat.prices] == [Decimal("0.04"), Decimal("0.12")]
    assert heartbeat.prices[1].at - heartbeat.prices[0].at == timedelta(seconds=90)
    assert heartbeat.usd_per_hour == Decimal("0.12")


def test_on_demand_keeps_the_price_of_the_decision(flights_slice: Path, tmp_path: Path) -> None:
    began, file = began_on("on-demand", flights_slice, tmp_path)
    write_world(file, "on-demand", "0.12")
    began.attempt.update_price()
    assert began.attempt.rate_changes == ()


def test_a_policy_can_make_on_demand_a_floating_market(flights_slice: Path, tmp_path: Path) -> None:
    began, file = began_on("on-demand", flights_slice, tmp_path)
    rules = began.world.policy.model_copy(update={"floating_markets": (Market.ON_DEMAND,)})
    attempt = replace(began.attempt, world=replace(began.world, policy=rules))
    write_world(file, "on-demand", "0.12")
    attempt.update_price()
    assert attempt.usd_per_hour == Decimal("0.12")


@pytest.mark.parametrize("says", ["half a fi", "", "name: one\nstore: x\npools: []\nprices: []\n"])
def test_an_unreadable_price_file_changes_nothing(spot: tuple[StartedAttempt, Path], says: str) -> None:
    began, file = spot
    file.write_text(says)
    began.attempt.update_price()
    assert began.attempt.rate_changes == ()
    write_world(file, "spot", "0.05")
    began.attempt.update_price()
    assert began.attempt.usd_per_hour == Decimal("0.05")


@pytest.mark.parametrize("usd_per_hour", ["0", "-1", "700"])
def test_a_rejected_price_changes_nothing(spot: tuple[StartedAttempt, Path], usd_per_hour: str) -> None:
    began, file = spot
    write_world(file, "spot", usd_per_hour)
    began.attempt.update_price()
    assert began.attempt.rate_changes == ()


def test_the_child_receives_the_price_and_its_limit(
    spot: tuple[StartedAttempt, Path], tmp_path: Path
) -> None:
    began, file = spot
    attempt, meter = began.attempt, began.attempt.meter()
    write_world(file, "spot", "0.08")
    attempt.update_price()
    send_limits(attempt, tmp_path)
    ends_s = meter.ends_s
    LimitsReader(tmp_path / LIMITS_FILE, meter).read()
    assert meter.current_usd_per_hour == Decimal("0.08")
    assert meter.limit_usd == attempt.reserved_usd - attempt.exit_usd
    assert meter.ends_s < ends_s
    (tmp_path / LIMITS_FILE).unlink()
    send_limits(attempt, tmp_path)
    assert not (tmp_path / LIMITS_FILE).exists(), "nothing new is told twice"
    attempt.reserved_usd += Decimal("0.001")
    send_limits(attempt, tmp_path)
    assert (tmp_path / LIMITS_FILE).exists()


def test_the_cost_in_a_receipt_is_its_seconds_times_its_prices(
    spot: tuple[StartedAttempt, Path],
) -> None:
    began, file = spot
    began.ledger.extend(began.account, "ingest-1", Decimal("0.005"))
    began.attempt.reserved_usd += Decimal("0.005")
    for price in ("0.12", "0.02"):
        began.world.clock.sleep(40)
        began.attempt.update_price()
        write_world(file, "spot", price)
        began.attempt.update_price()
    began.world.clock.sleep(40)
    settle_and_record(began.attempt, ChildResult(status="stopped", reason="the test is over"))
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert [price.usd_per_hour for price in receipt.prices] == [
        Decimal("0.04"),
        Decimal("0.12"),
        Decimal("0.02"),
    ]
    assert (
        receipt.spent_usd
        == cost_between_usd(receipt.prices, receipt.started_at, receipt.finished_at)
        == Decimal("0.002000")
    )
    assert began.ledger.state(began.account).settled_usd["ingest-1"] == receipt.spent_usd


def test_a_pod_lost_after_a_price_change_is_settled_with_both_prices(
    spot: tuple[StartedAttempt, Path],
) -> None:
    began, file = spot
    began.attempt.reserved_usd = Decimal(1)
    began.world.clock.sleep(90)
    began.attempt.update_price()
    write_world(file, "spot", "0.12")
    began.attempt.update_price()
    began.world.clock.sleep(29)
    beat = make_heartbeat(began.attempt, "running")
    cost = cost_of_end(EndEvidence(heartbeat=beat))
    assert cost.usd == Decimal("0.002000"), "to one interval of a second after its last heartbeat"
    assert cost.is_capped


def test_a_price_raised_beyond_the_money_left_spends_no_more_than_the_reservation(
    spot: tuple[StartedAttempt, Path],
) -> None:
    began, file = spot
    began.reserve_all_but(Decimal(0))
    write_world(file, "spot", "2.40")
    began.attempt.update_price()
    assert began.attempt.meter().seconds_left(began.world.clock.monotonic_s()) == 0.0
    began.world.clock.sleep(1)
    settle_and_record(began.attempt, ChildResult(status="stopped", reason="the test is over"))
    state = began.ledger.state(began.account)
    assert state.cap_usd is not None
    assert state.spent_usd + state.held_usd <= state.cap_usd


def test_a_meter_without_price_changes_uses_one_price() -> None:
    meter = Meter(Decimal("0.04"), 5.0, Decimal("0.001"), None)
    assert meter.ends_s == pytest.approx(95.0, abs=1e-5)
