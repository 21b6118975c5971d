"""Exploration: an unmeasured pool that may be better is tried, and left within minutes if it is not."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from runtime_world import TRAIN, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.policy import MigrationPolicy, Policy
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.receipt import Receipt
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import read_record
from shoestring.routing.decide import decide
from shoestring.routing.policy.migration import EXPLORATION_SD, MigrationReason
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.migration_check import (
    MigrationMonitor,
    expected_s_per_sample,
    make_monitor,
    migrate_if_cheaper,
)
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.stages.work import StageProgress

TWICE = Policy(migration=MigrationPolicy(check_every_s=10, min_dwell_s=30, max_migrations=2))
MONEY = Decimal(1)


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    """Two pools: `one`, and `two` with faster cores, a little more expensive per sample if its speed is as
    declared.
    """
    content = yaml.safe_load(laptop.read_text())
    pool = content["pools"][0] | {"startup_s": 0.0, "cores": 1}
    content["pools"] = [pool | {"name": "one", "core_speed": 1.0}, pool | {"name": "two", "core_speed": 2.0}]
    row = content["prices"][0]
    content["prices"] = [
        row | {"pool": "one", "usd_per_hour": "0.04"},
        row | {"pool": "two", "usd_per_hour": "0.10"},
    ]
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(content))
    return replace(small_world(tmp_path / "world.yaml", tmp_path, SetClock()), policy=TWICE)


def start_training(world: World, recipe: Path, run_id: str = "r") -> StartedAttempt:
    found = begin(world, run_request(recipe, run_id, needs=TRAIN, budget_usd=MONEY))
    found.attempt.reserved_usd = found.attempt.choice.budget_usd
    return found


def next_attempt(began: StartedAttempt, recipe: Path) -> StartedAttempt:
    """Return the attempt that an engine makes after a migrated one."""
    decision, key = decide_and_reserve(
        began.world, began.run, run_request(recipe, needs=TRAIN, budget_usd=MONEY), StageInputs()
    )
    assert decision.choice is not None
    new_attempt = Attempt(
        began.world, began.run, decision, key, {}, began.world.clock.monotonic_s(), decision.choice.budget_usd
    )
    new_attempt.progress = StageProgress(
        phase="stable", samples=began.attempt.progress.samples, resumed_samples=began.attempt.progress.samples
    )
    return replace(began, attempt=new_attempt)


def train_for(began: StartedAttempt, seconds: int, times: float = 1.0) -> MigrationMonitor:
    """Train at `times` the expected time per sample, and check each second."""
    attempt, monitor = began.attempt, make_monitor(began.attempt)
    pace_s = times * expected_s_per_sample(attempt.decision.question, attempt.choice)
    first_sample, total = (
        attempt.progress.resumed_samples,
        attempt.progress.resumed_samples + attempt.choice.samples * 1000,
    )
    for second in range(1, seconds + 1):
        began.world.clock.sleep(1)
        attempt.progress = StageProgress(
            phase="stable",
            samples=first_sample + int(second / pace_s),
            resumed_samples=first_sample,
            total=total,
        )
        migrate_if_cheaper(attempt, monitor)
        if attempt.stop_reason:
            break
    return monitor


def stop_to_migrate(began: StartedAttempt) -> Receipt:
    assert began.attempt.stop_cause == "migrated"
    settle_and_record(
        began.attempt, ChildResult(status="stopped", cause="migrated", reason=began.attempt.stop_reason)
    )
    return read_record(began.world.store, store_layout.receipt("r", began.attempt.id), Receipt)


def check_that_it_stays(began: StartedAttempt, monitor: MigrationMonitor, reason: MigrationReason) -> None:
    assert not began.attempt.stop_reason
    assert monitor.last_check is not None
    assert monitor.last_check.decision.code is reason


def test_a_training_tries_an_unmeasured_pool_and_leaves_a_slower_one_for_good(
    world: World, flights_slice: Path
) -> None:
    at_one = start_training(world, flights_slice)
    assert at_one.attempt.choice.pool == "one"
    assert at_one.attempt.decision.question.exploration_sd == EXPLORATION_SD
    train_for(at_one, 60)
    assert "migrates: two on-demand at $0.100000" in at_one.attempt.stop_reason
    assert "subtracted for measuring its speed" in at_one.attempt.stop_reason
    stop_to_migrate(at_one)

    at_two = next_attempt(at_one, flights_slice)
    assert at_two.attempt.choice.pool == "two"
    assert "less an exploration bonus" in at_two.attempt.choice.sentence
    train_for(at_two, 60, times=3)
    assert "migrates: one on-demand at $0.040000" in at_two.attempt.stop_reason
    assert "measuring its speed" not in at_two.attempt.stop_reason
    stop_to_migrate(at_two)

    back = next_attempt(at_two, flights_slice)
    assert back.attempt.choice.pool == "one" and back.attempt.decision.question.exploration_sd == 0
    check_that_it_stays(back, train_for(back, 60), MigrationReason.LIMIT)
    outcome = StageOutcome(key="k", samples=back.attempt.progress.samples)
    settle_and_record(back.attempt, ChildResult(status="done", outcome=outcome))

    # The next run knows what was tried.
    after = start_training(world, flights_slice, "after")
    assert after.attempt.choice.pool == "one"
    check_that_it_stays(after, train_for(after, 60), MigrationReason.SAME_TARGET)


def test_a_migrated_attempt_teaches_its_speed_and_the_next_one_only_its_own(
    world: World, flights_slice: Path
) -> None:
    at_one = start_training(world, flights_slice)
    train_for(at_one, 60, times=2)
    migrated = stop_to_migrate(at_one)
    assert migrated.is_learnable and migrated.seconds / migrated.prior_s == pytest.approx(2, rel=0.25)
    assert [
        read_record(world.store, key, Receipt) for key in world.store.list(store_layout.LEARNED_RECEIPTS)
    ] == [migrated]
    second = next_attempt(at_one, flights_slice)
    train_for(second, 25)
    samples = second.attempt.progress.samples
    settle_and_record(
        second.attempt, ChildResult(status="done", outcome=StageOutcome(key="k", samples=samples))
    )
    receipt = read_record(world.store, store_layout.receipt("r", second.attempt.id), Receipt)
    assert receipt.prior_s == pytest.approx(
        second.attempt.choice.prior_s_of(samples - second.attempt.progress.resumed_samples)
    )
    assert receipt.prior_s < second.attempt.choice.prior_s_of(samples)


def test_a_stage_that_was_stopped_for_another_reason_teaches_nothing(
    world: World, flights_slice: Path
) -> None:
    began = start_training(world, flights_slice)
    train_for(began, 20)
    settle_and_record(began.attempt, ChildResult(status="stopped", cause="stop-requested", reason="SIGTERM"))
    assert not read_record(world.store, store_layout.receipt("r", began.attempt.id), Receipt).is_learnable
    assert not list(world.store.list(store_layout.LEARNED_RECEIPTS))


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(migration=MigrationPolicy(check_every_s=10, min_dwell_s=30, max_migrations=0)),
        Policy(migration=MigrationPolicy(check_every_s=10, min_dwell_s=30, max_migrations=1)),
        Policy(
            migration=MigrationPolicy(check_every_s=10, min_dwell_s=30, max_migrations=2),
            adaptation_limits=AdaptationLimits(pool=False),
        ),
    ],
    ids=["no checks", "no moves", "no way back", "not allowed"],
)
def test_no_pool_is_explored_if_the_policy_does_not_allow_a_migration_away_from_it(
    world: World, flights_slice: Path, policy: Policy
) -> None:
    began = start_training(replace(world, policy=policy), flights_slice)
    train_for(began, 60)
    assert not began.attempt.stop_reason


def test_exploration_takes_no_samples_from_a_training_with_little_money(
    world: World, flights_slice: Path
) -> None:
    """If not all passes fit at P95 in the unmeasured pool, it gets no exploration bonus."""
    began = start_training(world, flights_slice)
    train_for(began, 60)
    stop_to_migrate(began)
    question = next_attempt(began, flights_slice).attempt.decision.question
    rich = decide(question).choice
    assert rich is not None and rich.pool == "two"
    poor = decide(
        question.model_copy(update={"budget_usd": question.spent_usd + question.held_usd + rich.est_usd})
    ).choice
    assert poor is not None and poor.pool == "one"
