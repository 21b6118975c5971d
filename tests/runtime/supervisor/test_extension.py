"""Extensions: a stage asks for money ahead of time, without waiting, and stops if it gets none."""

from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import (
    INGEST,
    MONEY,
    TRAIN,
    SetClock,
    StartedAttempt,
    UnreachableStore,
    begin,
    run_request,
    small_world,
    start_process,
    watch_until_end,
)

from shoestring.backends.folder_store import FolderStore
from shoestring.core.money import MICRO
from shoestring.runtime.records.overhead import (
    overhead_excess_usd,
    overhead_reservation,
    overhead_timer,
)
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import background_io
from shoestring.runtime.supervisor.extension import EXTEND_AHEAD_S, EXTENSION_SHARE, extend_or_stop
from shoestring.spending.exit_money import ANSWER_TIMEOUT_S
from shoestring.spending.ledger.ledger import Ledger


@pytest.fixture
def fixed(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """An attempt at ingest, with a clock that the test moves."""
    return begin(small_world(laptop, tmp_path, SetClock()), run_request(flights_slice, needs=INGEST))


def ask(began: StartedAttempt) -> None:
    with background_io() as writer:
        extend_or_stop(began.attempt, began.ledger, writer)


def run_until_its_reservation_is_gone(began: StartedAttempt) -> None:
    attempt = began.attempt
    seconds = float(attempt.reserved_usd - attempt.exit_usd) * 3600 / float(attempt.choice.usd_per_hour)
    began.world.clock.sleep(attempt.started_s + seconds - began.world.clock.monotonic_s() + 0.01)


def test_an_attempt_inside_its_reservation_requests_no_extension(fixed: StartedAttempt) -> None:
    before = fixed.ledger.state(fixed.account).entries
    ask(fixed)
    assert fixed.ledger.state(fixed.account).entries == before
    assert not fixed.attempt.stop_reason


def test_a_stage_past_its_reservation_is_extended_while_the_run_has_free_money(fixed: StartedAttempt) -> None:
    attempt = fixed.attempt
    for _ in range(2):
        before_usd = attempt.reserved_usd
        run_until_its_reservation_is_gone(fixed)
        ask(fixed)
        assert attempt.reserved_usd > before_usd
        assert not attempt.stop_reason
    assert fixed.ledger.state(fixed.account).reservations["ingest-1"].amount_usd == attempt.reserved_usd


def test_an_extension_is_as_large_as_the_money_left_allows(fixed: StartedAttempt) -> None:
    attempt, least_usd = fixed.attempt, 2 * fixed.attempt.exit_usd
    left_usd = least_usd + MICRO
    assert left_usd < attempt.choice.p95_usd * EXTENSION_SHARE
    fixed.reserve_all_but(left_usd)
    before_usd = attempt.reserved_usd
    run_until_its_reservation_is_gone(fixed)
    ask(fixed)
    assert not attempt.stop_reason
    assert attempt.reserved_usd == before_usd + left_usd
    assert fixed.ledger.state(fixed.account).left_usd == 0


def test_an_extension_takes_a_rest_that_is_too_little_for_another_one(fixed: StartedAttempt) -> None:
    half_usd, min_usd = fixed.attempt.choice.p95_usd * EXTENSION_SHARE, 2 * fixed.attempt.exit_usd
    fixed.reserve_all_but(half_usd + min_usd - MICRO)
    run_until_its_reservation_is_gone(fixed)
    ask(fixed)
    assert fixed.attempt.reserved_usd == fixed.attempt.choice.p95_usd + half_usd + min_usd - MICRO
    assert fixed.ledger.state(fixed.account).left_usd == 0


def test_a_stage_does_not_get_what_the_overhead_costs_above_its_reservation(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    """The budget is ample: on any machine it leaves more free than half a minute of overhead costs."""
    world = small_world(laptop, tmp_path, SetClock())
    fixed = begin(world, run_request(flights_slice, needs=INGEST, budget_usd=10 * MONEY))
    with overhead_timer(fixed.world, fixed.run, "slow"):
        fixed.world.clock.sleep(30)
    name = overhead_reservation(fixed.run.start)
    reserved_usd = fixed.ledger.state(fixed.account).reservations[name].amount_usd
    excess_usd = overhead_excess_usd(fixed.world, fixed.run, reserved_usd)
    assert excess_usd > 0
    fixed.reserve_all_but(excess_usd + fixed.attempt.choice.reserved_later_usd + 2 * fixed.attempt.exit_usd)
    for _ in range(2):
        run_until_its_reservation_is_gone(fixed)
        ask(fixed)
    assert fixed.attempt.stop_cause == "money"
    left_usd = fixed.ledger.state(fixed.account).left_usd
    assert left_usd is not None and left_usd >= excess_usd + fixed.attempt.choice.reserved_later_usd


def test_the_price_of_the_exit_is_reserved_from_the_money_for_the_work(
    fixed: StartedAttempt,
) -> None:
    attempt = fixed.attempt
    assert attempt.exit_usd > 0
    assert attempt.meter().limit_usd == attempt.reserved_usd - attempt.exit_usd
    run_until_its_reservation_is_gone(fixed)
    assert attempt.spent_usd() <= attempt.reserved_usd


def costly(began: StartedAttempt) -> Attempt:
    """The attempt with a reservation of a minute, so that it can ask ahead of time."""
    more_usd = began.attempt.price_usd(60)
    began.ledger.extend(began.account, "ingest-1", more_usd)
    return replace(began.attempt, reserved_usd=began.attempt.reserved_usd + more_usd)


def run_until(began: StartedAttempt, attempt: Attempt, left_s: float) -> None:
    """Run until `left_s` before the moment when only the price of the exit is left."""
    left_usd = attempt.reserved_usd - attempt.exit_usd - attempt.spent_usd()
    began.world.clock.sleep(float(left_usd / attempt.price_usd(3600)) * 3600 - left_s)


def test_an_extension_is_requested_ahead_of_time_without_waiting(fixed: StartedAttempt) -> None:
    """The request also succeeds if the store is unreachable for a moment."""
    attempt, away = costly(fixed), UnreachableStore(fixed.world.store.root)
    before_usd, ledger = attempt.reserved_usd, Ledger(away, fixed.world.clock)
    run_until(fixed, attempt, 5.0)
    with background_io() as writer:
        extend_or_stop(attempt, ledger, writer)
        assert (attempt.stop_reason, attempt.reserved_usd) == ("", before_usd)
        away.back.set()
        run_until(fixed, attempt, 0.0)
        extend_or_stop(attempt, ledger, writer)
    assert not attempt.stop_reason
    assert (
        fixed.ledger.state(fixed.account).reservations["ingest-1"].amount_usd
        == attempt.reserved_usd
        > before_usd
    )


def test_a_stage_that_is_refused_ahead_of_time_continues_until_its_money_is_due(
    fixed: StartedAttempt,
) -> None:
    attempt = costly(fixed)
    fixed.reserve_all_but(Decimal(0))
    run_until(fixed, attempt, 5.0)
    with background_io() as writer:
        extend_or_stop(attempt, fixed.ledger, writer)
    with background_io() as writer:
        extend_or_stop(attempt, fixed.ledger, writer)
        assert not attempt.stop_reason
        run_until(fixed, attempt, 0.0)
        extend_or_stop(attempt, fixed.ledger, writer)
    assert "refused an extension" in attempt.stop_reason


def test_a_small_reservation_is_not_extended_at_once(fixed: StartedAttempt) -> None:
    before = fixed.ledger.state(fixed.account).entries
    assert fixed.attempt.reserved_usd < fixed.attempt.price_usd(2 * EXTEND_AHEAD_S)
    run_until(
        fixed, fixed.attempt, float(fixed.attempt.reserved_usd / fixed.attempt.price_usd(3600)) * 3600 * 0.5
    )
    ask(fixed)
    assert fixed.ledger.state(fixed.account).entries == before


def test_a_stage_that_starts_late_does_not_request_every_second_separately(
    fixed: StartedAttempt,
) -> None:
    """A pod is paid for from its start, and pulling its image may take a minute."""
    # A P95 as small as on a machine far quicker than this one.
    choice = fixed.attempt.choice.model_copy(update={"p95_usd": MICRO})
    small = replace(fixed.attempt, decision=fixed.attempt.decision.model_copy(update={"choice": choice}))
    fixed.world.clock.sleep(60)
    before = fixed.ledger.state(fixed.account).entries
    for _ in range(5):
        with background_io() as writer:
            extend_or_stop(small, fixed.ledger, writer)
    assert not small.stop_reason
    assert fixed.ledger.state(fixed.account).entries - before == 1


def test_a_heartbeat_that_hangs_does_not_delay_a_request(fixed: StartedAttempt) -> None:
    stuck, before_usd = UnreachableStore(fixed.world.store.root, "/heartbeats/"), fixed.attempt.reserved_usd
    run_until_its_reservation_is_gone(fixed)
    with background_io() as writer:
        writer.write(lambda: stuck.put("runs/r/heartbeats/ingest-1.json", b"{}"))
        extend_or_stop(fixed.attempt, Ledger(stuck, fixed.world.clock), writer)
        stuck.back.set()
    assert not fixed.attempt.stop_reason
    assert fixed.attempt.reserved_usd > before_usd


class SeenStore(FolderStore):
    """A folder that records which keys were fetched."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fetched: list[str] = []

    def fetch(self, key: str) -> Path:
        self.fetched.append(key)
        return super().fetch(key)


def test_the_account_is_read_before_the_first_request(fixed: StartedAttempt, tmp_path: Path) -> None:
    seen = SeenStore(fixed.world.store.root)
    watch_until_end(
        replace(fixed.attempt, world=replace(fixed.world, store=seen)),
        start_process("print(flush=True)"),
        tmp_path,
    )
    entries = fixed.ledger.state(fixed.account).entries
    assert {f"ledger/r/{number:08d}.json" for number in range(1, entries + 1)} <= set(seen.fetched)


def test_a_refused_extension_stops_the_stage_with_a_reason_that_has_the_numbers(
    fixed: StartedAttempt,
) -> None:
    fixed.reserve_all_but(Decimal("0.000001"))
    run_until_its_reservation_is_gone(fixed)
    ask(fixed)
    assert f"${fixed.attempt.choice.p95_usd}" in fixed.attempt.stop_reason
    assert "$0.000001" in fixed.attempt.stop_reason
    assert (
        fixed.ledger.state(fixed.account).reservations["ingest-1"].amount_usd == fixed.attempt.choice.p95_usd
    )


def test_an_attempt_that_was_settled_as_dead_stops_at_its_next_request(fixed: StartedAttempt) -> None:
    fixed.ledger.settle(fixed.account, "ingest-1", Decimal(0), "no heartbeat")
    run_until_its_reservation_is_gone(fixed)
    ask(fixed)
    assert "taken for dead" in fixed.attempt.stop_reason and fixed.attempt.stop_cause == "lost"


def test_an_extension_leaves_the_money_reserved_for_later_stages(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began = begin(small_world(laptop, tmp_path, SetClock()), run_request(flights_slice))
    keep_usd = began.attempt.choice.reserved_later_usd
    assert keep_usd > 0
    began.reserve_all_but(keep_usd)
    run_until_its_reservation_is_gone(began)
    ask(began)
    assert "refused an extension" in began.attempt.stop_reason
    assert began.ledger.state(began.account).left_usd == keep_usd


def test_an_elastic_stage_is_never_extended(laptop: Path, flights_slice: Path, tmp_path: Path) -> None:
    began = begin(small_world(laptop, tmp_path, SetClock()), run_request(flights_slice, needs=TRAIN))
    before = began.ledger.state(began.account).entries
    run_until_its_reservation_is_gone(began)
    ask(began)
    assert f"${began.attempt.reserved_usd} are spent" in began.attempt.stop_reason
    assert began.ledger.state(began.account).entries == before


def test_a_stage_past_its_reservation_stops_when_the_store_does_not_answer(fixed: StartedAttempt) -> None:
    attempt, away = costly(fixed), UnreachableStore(fixed.world.store.root)
    before_usd, ledger = attempt.reserved_usd, Ledger(away, fixed.world.clock)
    with background_io() as writer:
        for left_s in (5.0, 0.0):
            run_until(fixed, attempt, left_s)
            extend_or_stop(attempt, ledger, writer)
        assert (attempt.stop_cause, attempt.reserved_usd) == ("lost", before_usd)
        assert "did not answer within 1 s" in attempt.stop_reason
        away.back.set()


def test_a_stage_whose_start_took_its_reservation_waits_longer_for_a_slow_store(
    fixed: StartedAttempt,
) -> None:
    away, before_usd = UnreachableStore(fixed.world.store.root), fixed.attempt.reserved_usd
    run_until_its_reservation_is_gone(fixed)
    answers = threading.Timer(1.5 * ANSWER_TIMEOUT_S, away.back.set)
    answers.start()
    with background_io() as writer:
        extend_or_stop(fixed.attempt, Ledger(away, fixed.world.clock), writer)
    answers.join()
    assert not fixed.attempt.stop_reason
    assert fixed.attempt.reserved_usd > before_usd
