"""Laws of migrations: each pays for itself, none happens in a protected phase, fluctuating prices cause no
oscillation.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.config.policy import MigrationPolicy
from shoestring.core.types import Market
from shoestring.routing.policy.migration import (
    PHASES_WITHOUT_MIGRATION,
    MigrationReason,
    MigrationTarget,
    RunningStage,
    affordable_samples,
    check_migration,
    saving_and_disruption,
)

RUNNING: dict[str, Any] = {
    "pool": "a",
    "market": Market.SPOT,
    "usd_per_hour": 1.0,
    "s_per_sample": 0.01,
    "phase": "stable",
    "elapsed_s": 3600.0,
    "migrations": 0,
    "left_usd": 10.0,
    "left_s": None,
    "samples_left": 1e9,
    "exit_s": 5.0,
}
TARGET: dict[str, Any] = {
    "pool": "b",
    "market": Market.SPOT,
    "usd_per_hour": 0.5,
    "s_per_sample": 0.01,
    "startup_s": 120.0,
}
amounts = st.floats(0.001, 1000)
running_stages = st.builds(
    RunningStage,
    pool=st.just("a"),
    market=st.just(Market.SPOT),
    usd_per_hour=amounts,
    s_per_sample=amounts,
    phase=st.sampled_from(["", "warm-up", "stable", "decay", "tuning"]),
    elapsed_s=st.floats(0, 2000),
    migrations=st.integers(0, 3),
    left_usd=st.floats(-1, 1000),
    left_s=st.none() | st.floats(-1, 1e6),
    samples_left=st.floats(0, 1e9),
    exit_s=st.floats(0, 100),
    delay_usd_per_hour=st.just(0.0) | st.floats(0, 10),
)
targets = st.builds(
    MigrationTarget,
    pool=st.sampled_from(["a", "b"]),
    market=st.just(Market.SPOT),
    usd_per_hour=amounts,
    s_per_sample=amounts,
    startup_s=st.floats(0, 1000),
)
migration_policies = st.builds(
    MigrationPolicy,
    saving_over_disruption=st.floats(1, 5),
    min_dwell_s=st.floats(0, 2000),
    extra_saving_per_migration=st.floats(0, 1),
    max_migrations=st.integers(0, 3),
    critical_phases=st.sampled_from([(), ("tuning",)]),
)


def worthwhile(
    at: RunningStage, price: float, speed: float, startup_s: float, rules: MigrationPolicy
) -> tuple[RunningStage, MigrationTarget, MigrationPolicy]:
    """Return a check in mid-training, with a target that is cheaper and faster by these factors."""
    at = at.model_copy(
        update={
            "phase": "stable",
            "elapsed_s": at.elapsed_s + rules.min_dwell_s,
            "left_usd": abs(at.left_usd) + at.usd_per_hour,
            "left_s": None if at.left_s is None else abs(at.left_s) + 3600.0,
            "samples_left": max(at.samples_left, 1.0),
        }
    )
    target = MigrationTarget(
        pool="b",
        market=Market.SPOT,
        usd_per_hour=at.usd_per_hour * price,
        s_per_sample=at.s_per_sample * speed,
        startup_s=startup_s,
    )
    return at, target, rules.model_copy(update={"max_migrations": at.migrations + 1})


migrations = st.builds(
    worthwhile,
    running_stages,
    st.floats(0.05, 0.7),
    st.floats(0.05, 0.7),
    st.floats(0, 300),
    st.builds(
        MigrationPolicy,
        saving_over_disruption=st.floats(1, 2),
        min_dwell_s=st.floats(0, 2000),
        extra_saving_per_migration=st.floats(0, 0.1),
    ),
).filter(lambda check: check_migration(*check).migrates)
"""Checks that end in a migration: the drawn saving is worth the disruption in most of them."""


@given(st.one_of(migrations, st.tuples(running_stages, targets, migration_policies)))
def test_a_stage_never_migrates_in_a_protected_phase_or_without_a_saving(
    check: tuple[RunningStage, MigrationTarget, MigrationPolicy],
) -> None:
    at, target, rules = check
    found = check_migration(at, target, rules)
    if not found.migrates:
        assert found.sentence.startswith("stays: ")
        return
    assert at.phase not in PHASES_WITHOUT_MIGRATION and at.phase not in rules.critical_phases
    assert (
        at.elapsed_s >= rules.min_dwell_s and at.migrations < rules.max_migrations and target.pool != at.pool
    )
    assert found.saving > 0
    assert (
        found.saving
        >= found.disruption * rules.saving_over_disruption + rules.extra_saving_per_migration * at.migrations
    )


@given(migrations)
def test_a_migration_never_affords_fewer_samples_than_staying(
    check: tuple[RunningStage, MigrationTarget, MigrationPolicy],
) -> None:
    at, target, _ = check
    moving_usd, moving_s = (
        (at.usd_per_hour * at.exit_s + target.usd_per_hour * target.startup_s) / 3600,
        at.exit_s + target.startup_s,
    )
    running = affordable_samples(at, at.usd_per_hour, at.s_per_sample)
    migrated = affordable_samples(at, target.usd_per_hour, target.s_per_sample, moving_usd, moving_s)
    assert migrated >= running * (1 - 1e-9)
    if migrated == running == at.samples_left:
        price_here, price_there = (
            at.usd_per_hour + at.delay_usd_per_hour,
            target.usd_per_hour + at.delay_usd_per_hour,
        )
        cost = (
            moving_usd
            + at.delay_usd_per_hour * moving_s / 3600
            + at.samples_left * target.s_per_sample * price_there / 3600
        )
        assert cost <= at.samples_left * at.s_per_sample * price_here / 3600 * (1 + 1e-9)


@given(running_stages, migration_policies, amounts)
def test_a_stage_does_not_migrate_to_a_worse_target(
    at: RunningStage, rules: MigrationPolicy, extra: float
) -> None:
    like = MigrationTarget.model_validate(
        TARGET
        | {"usd_per_hour": at.usd_per_hour * (1 + extra), "s_per_sample": at.s_per_sample * (1 + extra)}
    )
    # A policy under which this stage may migrate: only the target is in the way.
    at, _, rules = worthwhile(at, 1.0, 1.0, 0.0, rules.model_copy(update={"critical_phases": ()}))
    assert check_migration(at, like, rules).code in (MigrationReason.NO_SAVING, MigrationReason.DISRUPTION)
    assert check_migration(at, None, rules).code is MigrationReason.SAME_TARGET


@pytest.mark.parametrize(
    ("running", "target", "code", "sentence"),
    [
        (
            {},
            {},
            MigrationReason.MIGRATE,
            "migrates: b spot at $0.500000 an hour saves 50.0% a sample, the migration costs 0.2%",
        ),
        (
            {"samples_left": 1e6},
            {},
            MigrationReason.MIGRATE,
            "migrates: b spot at $0.500000 an hour saves 50.0%, the migration costs 0.7%",
        ),
        (
            {"left_usd": 0.02},
            {"usd_per_hour": 0.9},
            MigrationReason.DISRUPTION,
            "stays: b spot at $0.900000 an hour saves 10.0% a sample, the migration costs 100.0%, "
            "200.0% saving is required",
        ),
        (
            {},
            {"usd_per_hour": 1.2},
            MigrationReason.NO_SAVING,
            "stays: b spot at $1.200000 an hour saves nothing",
        ),
        ({"left_s": 3600.0}, {"usd_per_hour": 4.0, "s_per_sample": 0.0025}, MigrationReason.MIGRATE, None),
        ({}, {"usd_per_hour": 4.0, "s_per_sample": 0.0025}, MigrationReason.NO_SAVING, None),
        ({"phase": "decay"}, {}, MigrationReason.PHASE, "stays: no migration during decay"),
        ({"phase": ""}, {}, MigrationReason.PHASE, "stays: no migration during its first steps"),
        ({"elapsed_s": 599.0}, {}, MigrationReason.DWELL, "stays: 599 s on this pool, the minimum is 600 s"),
        ({"migrations": 1}, {}, MigrationReason.LIMIT, "stays: migrations made 1, allowed 1"),
        ({}, {"pool": "a"}, MigrationReason.SAME_TARGET, "stays: the router would choose a spot again"),
    ],
)
def test_each_rule_of_the_migration_check_gives_its_reason_in_a_sentence(
    running: dict[str, Any], target: dict[str, Any], code: MigrationReason, sentence: str | None
) -> None:
    """One case: with an hour to the deadline, a faster pool at four times the price is chosen. Without a
    deadline it saves nothing.
    """
    found = check_migration(
        RunningStage.model_validate(RUNNING | running),
        MigrationTarget.model_validate(TARGET | target),
        MigrationPolicy(),
    )
    assert found.code is code
    assert sentence is None or found.sentence == sentence


def test_the_price_of_delay_can_justify_a_faster_pool() -> None:
    target = MigrationTarget.model_validate(TARGET | {"usd_per_hour": 1.5, "s_per_sample": 0.008})
    assert saving_and_disruption(RunningStage.model_validate(RUNNING | {"samples_left": 1e6}), target)[0] < 0
    assert (
        saving_and_disruption(
            RunningStage.model_validate(RUNNING | {"samples_left": 1e6, "delay_usd_per_hour": 5.0}), target
        )[0]
        > 0
    )


def migrations_over(prices: list[tuple[float, float]], rules: MigrationPolicy) -> list[int]:
    """Check once every ten minutes between two equal targets; return the checks that migrated the stage."""
    index, since, migrated = 0, 0, list[int]()
    for number, now in enumerate(prices):
        at = RUNNING | {
            "usd_per_hour": now[index],
            "elapsed_s": 600.0 * (number - since),
            "migrations": len(migrated),
            "left_usd": 100.0,
        }
        target = TARGET | {"usd_per_hour": now[1 - index]}
        if check_migration(
            RunningStage.model_validate(at), MigrationTarget.model_validate(target), rules
        ).migrates:
            migrated, index, since = [*migrated, number], 1 - index, number
    return migrated


@pytest.mark.parametrize("seed", range(10))
def test_price_fluctuations_within_the_margin_cause_at_most_one_migration(seed: int) -> None:
    rng = random.Random(seed)
    prices = [(1 + rng.uniform(-0.03, 0.03), 1 + rng.uniform(-0.03, 0.03)) for _ in range(1000)]
    eager = MigrationPolicy(
        saving_over_disruption=1, min_dwell_s=0, extra_saving_per_migration=0, max_migrations=1000
    )
    calm = MigrationPolicy(max_migrations=1000)
    assert len(migrations_over(prices, eager)) > 100
    assert len(migrations_over(prices, calm)) <= 1


@given(st.integers(0, 10**6), st.floats(0.05, 0.5))
def test_the_margin_limits_the_number_of_migrations_at_any_prices(seed: int, margin: float) -> None:
    rng = random.Random(seed)
    prices = [(rng.lognormvariate(0, 2), rng.lognormvariate(0, 2)) for _ in range(60)]
    restless = MigrationPolicy(
        saving_over_disruption=1, min_dwell_s=0, extra_saving_per_migration=margin, max_migrations=1000
    )
    assert len(migrations_over(prices, restless)) <= 1 + 1 / margin


def test_a_stage_never_migrates_twice_within_its_dwell_time() -> None:
    rng = random.Random(3)
    prices = [(rng.uniform(0.2, 2), rng.uniform(0.2, 2)) for _ in range(2000)]
    migrated = migrations_over(
        prices, MigrationPolicy(min_dwell_s=3600, extra_saving_per_migration=0, max_migrations=10_000)
    )
    assert len(migrated) > 20 and min(b - a for a, b in pairwise(migrated)) >= 6
