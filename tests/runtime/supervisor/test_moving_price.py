"""The price of a running attempt on a floating market: plausibility may only raise its cost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import INGEST, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.backends.local import open_local_world
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market
from shoestring.data.run_records import read_record
from shoestring.runtime.settlement.settle import settle_start
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.spending.meter import costs_usd

ROW = "{pool: cpu-1, market: %s, usd_per_hour: '%s', as_of: 2026-11-01, source: a test}"
TARIFFS = "tariffs: {storage_usd_per_gb_month: '0'}\n"
BOTH_ROWS = f"{ROW % ('on-demand', '0.10')}, {ROW % ('spot', '%s')}"
WITHOUT_SPOT = ROW % ("on-demand", "0.10")
DOUBLED = f"{BOTH_ROWS % '0.04'}, {ROW % ('spot', '0.05')}"


def write_rows(path: Path, rows: str) -> Path:
    pool = "{name: cpu-1, cores: 1, memory_gb: 2, machine: m1, markets: {on-demand: {}, spot: {}}}"
    path.write_text(
        f"name: one\nstore: {path.parent / 'store'}\npools: [{pool}]\nprices: [{rows}]\n{TARIFFS}"
    )
    return path


def pass_seconds(began: StartedAttempt, seconds: int) -> None:
    """Let seconds pass; the price is read after each."""
    for _ in range(seconds):
        began.world.clock.sleep(1)
        began.attempt.update_price()


@pytest.fixture
def both(flights_slice: Path, tmp_path: Path) -> tuple[StartedAttempt, Path]:
    """An attempt on spot at $0.04, where on-demand costs $0.10."""
    file = write_rows(tmp_path / "world.yaml", BOTH_ROWS % "0.04")
    began = begin(small_world(file, tmp_path, SetClock()), run_request(flights_slice, needs=INGEST))
    assert began.attempt.choice.market is Market.SPOT
    began.attempt.reserved_usd = Decimal("0.010000")
    return began, file


@pytest.mark.parametrize("usd_per_hour", ["0.05", "0.10", "0.25", "1.00"])
def test_a_running_attempt_pays_a_spot_price_above_on_demand(
    both: tuple[StartedAttempt, Path], usd_per_hour: str
) -> None:
    began, file = both
    write_rows(file, BOTH_ROWS % usd_per_hour)
    began.attempt.update_price()
    assert began.attempt.usd_per_hour == Decimal(usd_per_hour)
    quotes = {each.market: each for each in open_local_world(file).prices.book().quotes}
    assert (Market.SPOT in quotes) == (Decimal(usd_per_hour) < Decimal("0.10")), "no stage is placed on it"


@pytest.mark.parametrize(
    "rows", [WITHOUT_SPOT, DOUBLED, BOTH_ROWS % "0", BOTH_ROWS % "700", BOTH_ROWS % "1.01", "half a row"]
)
def test_without_a_readable_price_on_demand_is_charged_from_the_last_one_on(
    both: tuple[StartedAttempt, Path], rows: str
) -> None:
    began, file = both
    attempt, clock = began.attempt, began.world.clock
    clock.sleep(90)
    attempt.update_price()
    write_rows(file, rows)
    pass_seconds(began, 5)
    assert attempt.rate_changes == ()
    # Its limits expect the on-demand price already.
    assert attempt.spent_usd() == Decimal("0.001000") + Decimal("0.000139")
    pass_seconds(began, 1)
    assert attempt.rate_changes == ((clock.monotonic_s() - 6, Decimal("0.10")),)
    clock.sleep(30)
    attempt.update_price()
    assert attempt.spent_usd() == Decimal("0.001000") + Decimal("0.001000")
    write_rows(file, BOTH_ROWS % "0.08")
    attempt.update_price()
    assert attempt.usd_per_hour == Decimal("0.08")


def test_a_price_that_is_unreadable_for_a_moment_changes_nothing(both: tuple[StartedAttempt, Path]) -> None:
    began, file = both
    attempt, clock = began.attempt, began.world.clock
    clock.sleep(90)
    attempt.update_price()
    file.write_text("half a fi")
    clock.sleep(4)
    attempt.update_price()
    write_rows(file, BOTH_ROWS % "0.04")
    clock.sleep(1)
    attempt.update_price()
    assert attempt.rate_changes == ()
    assert attempt.spent_usd() == Decimal("0.001056")


def test_silences_of_a_price_that_comes_and_goes_add_up(both: tuple[StartedAttempt, Path]) -> None:
    """On-demand applies while it is away, but for `unpriced_s` of the whole attempt."""
    began, file = both
    attempt, clock = began.attempt, began.world.clock
    attempt.reserved_usd = Decimal("0.100000")
    attempt.update_price()
    for _ in range(60):
        write_rows(file, WITHOUT_SPOT)
        pass_seconds(began, 3)
        write_rows(file, BOTH_ROWS % "0.04")
        pass_seconds(began, 1)
    # The last second of each silence, in which the price is read again, is charged at on-demand as well.
    least_usd = costs_usd([(Decimal("0.04"), 5), (Decimal("0.10"), 60 * 3 - 5)])
    most_usd = costs_usd([(Decimal("0.10"), 60 * 4)])
    assert least_usd <= attempt.meter().spent_usd(clock.monotonic_s()) <= most_usd


@pytest.mark.parametrize(("usd_per_hour", "old_s", "new_s"), [("0.12", 0, 120), ("0.02", 90, 30)])
def test_a_price_that_changed_before_the_first_look_counts_from_the_start_if_it_is_higher(
    both: tuple[StartedAttempt, Path], usd_per_hour: str, old_s: float, new_s: float
) -> None:
    began, file = both
    began.world.clock.sleep(90)
    write_rows(file, BOTH_ROWS % usd_per_hour)
    began.attempt.update_price()
    began.world.clock.sleep(30)
    began.attempt.update_price()
    spans = [(Decimal("0.04"), old_s), (Decimal(usd_per_hour), new_s)]
    assert began.attempt.spent_usd() == costs_usd(spans)


def test_between_two_reads_the_higher_price_is_charged(both: tuple[StartedAttempt, Path]) -> None:
    began, file = both
    attempt = began.attempt
    for price in ("0.04", "0.08", "0.04", "0.08"):
        write_rows(file, BOTH_ROWS % price)
        attempt.update_price()
        began.world.clock.sleep(18)
    assert attempt.spent_usd() == costs_usd([(Decimal("0.08"), 4 * 18)])
    prices = [point.usd_per_hour for point in attempt.prices()]
    assert prices == [Decimal("0.04"), Decimal("0.08")], "each price begins at a moment of its own"


def test_a_price_missing_at_the_start_is_charged_at_on_demand_until_one_is_read(
    both: tuple[StartedAttempt, Path],
) -> None:
    began, file = both
    attempt, clock = began.attempt, began.world.clock
    write_rows(file, WITHOUT_SPOT)
    pass_seconds(began, 18)
    write_rows(file, BOTH_ROWS % "0.05")
    attempt.update_price()
    clock.sleep(72)
    attempt.update_price()
    assert attempt.spent_usd() == costs_usd([(Decimal("0.10"), 18), (Decimal("0.05"), 72)])


def test_the_price_of_a_decision_is_good_for_as_long_as_any_other(
    both: tuple[StartedAttempt, Path],
) -> None:
    began, file = both
    write_rows(file, WITHOUT_SPOT)
    began.world.clock.sleep(4)
    young = replace(began.attempt, started_s=began.world.clock.monotonic_s())
    young.update_price()
    assert young.unpriced and young.rate_changes == ()
    began.world.clock.sleep(2)
    young.update_price()
    assert young.rate_changes == ((young.started_s, Decimal("0.10")),)
    old = replace(began.attempt, started_s=began.world.clock.monotonic_s(), rate_changes=())
    old.update_price()
    assert old.rate_changes == ((old.started_s, Decimal("0.10")),), "nobody has read a price for 6 s"


def test_a_price_above_on_demand_goes_on_while_none_can_be_read(both: tuple[StartedAttempt, Path]) -> None:
    began, file = both
    attempt = began.attempt
    write_rows(file, BOTH_ROWS % "0.20")
    attempt.update_price()
    write_rows(file, WITHOUT_SPOT)
    pass_seconds(began, 35)
    write_rows(file, BOTH_ROWS % "0.40")
    pass_seconds(began, 1)
    assert attempt.spent_usd() == costs_usd([(Decimal("0.20"), 35), (Decimal("0.40"), 1)])


def test_the_exit_is_reserved_at_on_demand_or_above(both: tuple[StartedAttempt, Path]) -> None:
    began, file = both
    assert began.attempt.price_usd(36) == Decimal("0.001000")
    write_rows(file, BOTH_ROWS % "0.20")
    began.attempt.update_price()
    assert began.attempt.price_usd(36) == Decimal("0.002000")


@pytest.mark.parametrize(
    ("changes", "usd_per_hour"), [({"max_price_factor": 20.0}, "1.5"), ({"unpriced_s": 0.0}, "0.10")]
)
def test_the_policy_sets_what_counts_as_a_price_and_for_how_long_it_may_be_missing(
    both: tuple[StartedAttempt, Path], changes: dict[str, float], usd_per_hour: str
) -> None:
    began, file = both
    rules = began.world.policy.model_copy(update=changes)
    attempt = replace(began.attempt, world=replace(began.world, policy=rules))
    write_rows(file, BOTH_ROWS % "1.50")
    began.world.clock.sleep(1)
    attempt.update_price()
    assert attempt.usd_per_hour == Decimal(usd_per_hour)


def test_what_a_price_jump_costs_beyond_the_cap_is_booked_up_to_it_and_recorded(
    both: tuple[StartedAttempt, Path],
) -> None:
    began, file = both
    began.attempt.reserved_usd = began.attempt.choice.p95_usd
    write_rows(file, BOTH_ROWS % "1.00")
    began.attempt.update_price()
    began.world.clock.sleep(600)
    settle_and_record(began.attempt, ChildResult(status="stopped", reason="the test is over"))
    state = began.ledger.state(began.account)
    cost_usd = Decimal("0.166667")
    assert (state.spent_usd + state.held_usd, state.left_usd) == (state.cap_usd, Decimal(0))
    receipt = read_record(began.world.store, f"runs/{began.run.run_id}/receipts/ingest-1.json", Receipt)
    assert receipt.spent_usd + receipt.overrun_usd == cost_usd
    assert state.overruns_usd == {"ingest-1": receipt.overrun_usd} and receipt.overrun_usd > 0
    assert f"it cost ${cost_usd}, of which its account had money for ${receipt.spent_usd}" in receipt.reason
    settle_start(began.world, began.run, began.run.start)
    month = began.ledger.state(f"{began.world.clock.now():%Y-%m}")
    assert month.spent_usd == began.run.start.budget_usd, "nothing is handed back"


LIST = "machine,region,market,usd_per_hour,as_of,source\nm1,eu,on-demand,0.10,2026-11-01,a test\n"


@pytest.fixture
def listed(flights_slice: Path, tmp_path: Path) -> tuple[StartedAttempt, Path]:
    """An attempt on spot at $0.04, priced by a list next to the world file."""
    prices = tmp_path / "prices.csv"
    prices.write_text(f"{LIST}m1,eu,spot,0.04,2026-11-01,a test\n")
    pool = (
        "{name: cpu-1, cores: 1, memory_gb: 2, machine: m1, region: eu, markets: {on-demand: {}, spot: {}}}"
    )
    file = tmp_path / "world.yaml"
    file.write_text(
        f"name: one\nstore: {tmp_path / 'store'}\npools: [{pool}]\ncatalogues: [prices.csv]\n{TARIFFS}"
    )
    began = begin(small_world(file, tmp_path, SetClock()), run_request(flights_slice, needs=INGEST))
    assert began.attempt.choice.market is Market.SPOT
    return began, prices


def test_a_price_that_moves_in_a_list_beside_the_world_file_is_paid(
    listed: tuple[StartedAttempt, Path],
) -> None:
    began, prices = listed
    prices.write_text(f"{LIST}m1,eu,spot,0.090,2026-11-01,a test\n")
    began.attempt.update_price()
    assert began.attempt.usd_per_hour == Decimal("0.09")


@pytest.mark.parametrize("text", ["", "machine,machine,market\n", LIST])
def test_a_list_without_the_price_is_charged_at_on_demand(
    listed: tuple[StartedAttempt, Path], text: str
) -> None:
    began, prices = listed
    prices.write_text(text)
    began.world.clock.sleep(6)
    began.attempt.update_price()
    assert began.attempt.usd_per_hour == Decimal("0.10")
    prices.write_text(f"{LIST}m1,eu,spot,0.050,2026-11-01,a test\n")
    began.attempt.update_price()
    assert began.attempt.usd_per_hour == Decimal("0.05")


def test_a_row_that_cannot_be_read_is_not_replaced_by_a_cheaper_one(
    both: tuple[StartedAttempt, Path],
) -> None:
    began, file = both
    # A row for the machine applies where the pool has no row of its own.
    cheaper = ", {machine: m1, market: spot, usd_per_hour: '0.01', as_of: 2026-11-01, source: a test}"
    for own in (DOUBLED, BOTH_ROWS % "0"):
        write_rows(file, own + cheaper)
        began.attempt.update_price()
        assert began.attempt.unpriced
