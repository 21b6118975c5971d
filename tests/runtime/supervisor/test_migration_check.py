"""Migration checks: current prices decide, the child stops at a checkpoint, and the stage is routed again."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from runtime_world import TRAIN, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.backends.folder_store import FolderStore
from shoestring.config.policy import MigrationPolicy, Policy
from shoestring.core import store_layout
from shoestring.core.errors import StoreError
from shoestring.core.receipt import AdaptationChange
from shoestring.data.run_records import read_record
from shoestring.routing.policy.migration import MigrationCheck, MigrationReason
from shoestring.runtime.route_step.retry import settle_earlier_attempts
from shoestring.runtime.supervisor.attempt_receipt import write_attempt_receipt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.migration_check import (
    MigrationMonitor,
    make_monitor,
    migrate_if_cheaper,
    write_last_check,
)
from shoestring.stages.work import StageProgress

EVERY = MigrationPolicy(check_every_s=10, min_dwell_s=30, max_migrations=1)


def world_file(laptop: Path, folder: Path, cpu_1: str, cpu_2: str) -> Path:
    """A machine with two pools of equal cores, at these prices."""
    content = yaml.safe_load(laptop.read_text())
    pool = content["pools"][0] | {"startup_s": 0.0}
    content["pools"] = [pool | {"name": "one"}, pool | {"name": "two"}]
    row = content["prices"][0]
    content["prices"] = [
        row | {"pool": "one", "usd_per_hour": cpu_1},
        row | {"pool": "two", "usd_per_hour": cpu_2},
    ]
    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """A training on `one`, the cheaper of two equal pools."""
    world = small_world(world_file(laptop, tmp_path, "0.04", "0.05"), tmp_path, SetClock())
    found = begin(
        replace(world, policy=Policy(migration=EVERY)),
        run_request(flights_slice, needs=TRAIN, budget_usd=Decimal("0.02")),
    )
    assert found.attempt.choice.pool == "one"
    found.attempt.reserved_usd = found.attempt.choice.budget_usd
    return found


def run_for(began: StartedAttempt, seconds: float, monitor: MigrationMonitor, phase: str = "stable") -> None:
    """Train a thousand samples a second, and check each second."""
    total = began.attempt.decision.question.rows * 30
    for _ in range(int(seconds)):
        began.world.clock.sleep(1)
        samples = began.attempt.progress.samples + 1000
        began.attempt.progress = StageProgress(phase=phase, samples=samples, total=total)
        migrate_if_cheaper(began.attempt, monitor)


def test_a_training_whose_pool_became_expensive_migrates_after_its_dwell_time(
    began: StartedAttempt, laptop: Path, tmp_path: Path
) -> None:
    monitor = make_monitor(began.attempt)
    run_for(began, 50, monitor)
    assert (
        not began.attempt.stop_reason
        and monitor.last_check is not None
        and monitor.last_check.decision.code is MigrationReason.SAME_TARGET
    )
    world_file(laptop, tmp_path, "0.4", "0.05")
    began.attempt.rate_changes = ((began.world.clock.monotonic_s(), Decimal("0.4")),)
    run_for(began, 11, monitor)
    assert began.attempt.stop_cause == "migrated" and began.attempt.stop_reason.startswith(
        "migrates: two on-demand at $0.05"
    )
    assert monitor.last_check is not None and monitor.last_check.running.s_per_sample == pytest.approx(
        0.001, rel=0.05
    )
    write_last_check(began.attempt, monitor)
    assert (
        read_record(began.world.store, store_layout.migration_check("r", began.attempt.id), MigrationCheck)
        == monitor.last_check
    )


def test_a_pool_that_became_cheaper_is_found_with_current_prices(
    began: StartedAttempt, laptop: Path, tmp_path: Path
) -> None:
    monitor = make_monitor(began.attempt)
    run_for(began, 35, monitor)
    world_file(laptop, tmp_path, "0.04", "0.008")
    run_for(began, 11, monitor)
    assert (
        began.attempt.stop_cause == "migrated"
        and "two on-demand at $0.008000 an hour" in began.attempt.stop_reason
    )


@pytest.mark.parametrize("phase", ["warm-up", "decay", ""])
def test_no_training_migrates_while_it_warms_up_or_anneals(
    began: StartedAttempt, laptop: Path, tmp_path: Path, phase: str
) -> None:
    monitor = make_monitor(began.attempt)
    world_file(laptop, tmp_path, "0.04", "0.001")
    run_for(began, 60, monitor, phase)
    assert (
        not began.attempt.stop_reason
        and monitor.last_check is not None
        and monitor.last_check.decision.code is MigrationReason.PHASE
    )


def test_without_the_setting_nothing_is_checked(began: StartedAttempt, laptop: Path, tmp_path: Path) -> None:
    quiet = replace(began.attempt, world=replace(began.world, policy=Policy()))
    monitor = make_monitor(quiet)
    world_file(laptop, tmp_path, "0.04", "0.001")
    run_for(replace(began, attempt=quiet), 60, monitor)
    assert not quiet.stop_reason and monitor.last_check is None


def test_a_request_for_another_pool_is_checked_at_once(
    began: StartedAttempt, laptop: Path, tmp_path: Path
) -> None:
    rare = Policy(migration=EVERY.model_copy(update={"check_every_s": 10_000}))
    attempt = replace(began.attempt, world=replace(began.world, policy=rare))
    asked = replace(began, attempt=attempt)
    monitor = make_monitor(attempt)
    world_file(laptop, tmp_path, "0.04", "0.008")
    run_for(asked, 35, monitor)
    assert monitor.may_migrate and monitor.last_check is None
    change = AdaptationChange(
        at=began.world.clock.now(),
        samples=1,
        lever="pool",
        before="this pool",
        after="another",
        reason="drift",
    )
    began.world.clock.sleep(1)
    attempt.progress = attempt.progress.model_copy(update={"changes": (change,)})
    migrate_if_cheaper(attempt, monitor)
    assert attempt.stop_cause == "migrated"


def test_a_stage_that_cannot_migrate_may_not_ask_for_another_pool(began: StartedAttempt) -> None:
    never = Policy(migration=EVERY.model_copy(update={"max_migrations": 0}))
    for policy in (Policy(), never):
        attempt = replace(began.attempt, world=replace(began.world, policy=policy))
        assert not make_monitor(attempt).may_migrate


def test_an_unreachable_store_does_not_stop_the_supervisor(began: StartedAttempt) -> None:
    class UnreachableListStore(FolderStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            raise StoreError("away")

    unreachable = replace(
        began.attempt, world=replace(began.world, store=UnreachableListStore(Path("/nowhere")))
    )
    monitor = make_monitor(unreachable)
    run_for(replace(began, attempt=unreachable), 60, monitor)
    assert monitor.last_check is None and not unreachable.stop_reason


def test_a_migrated_stage_is_routed_again_and_migrates_at_most_as_often_as_allowed(
    began: StartedAttempt,
) -> None:
    attempt = began.attempt
    began.ledger.settle(began.account, str(attempt.id), Decimal("0.0001"), "migrated")
    write_attempt_receipt(
        attempt,
        ChildResult(status="stopped", cause="migrated", reason="migrates: two is cheaper"),
        Decimal("0.0001"),
    )
    earlier = settle_earlier_attempts(began.world, began.run, began.ledger, "train")
    assert earlier.notes == ("attempt 1 stopped: migrates: two is cheaper",)
    monitor = make_monitor(attempt)
    assert monitor.migrations == 1
    run_for(began, 60, monitor)
    assert monitor.last_check is not None and monitor.last_check.decision.code is MigrationReason.LIMIT
