"""Each rule of a policy, and the world's commitments, change a simulation: two scenarios that differ in that
rule alone give different reports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scenarios import NOTHING_WRONG, budgeted, scenario

from shoestring.core.errors import WorldError
from shoestring.core.record import record_bytes
from shoestring.pricing.templates import cloud_world
from shoestring.simulation.results import SimulationReport
from shoestring.simulation.scenario import Scenario
from shoestring.simulation.simulate import simulate
from shoestring.simulation.simulated_world import Simulation

CHEAP_HOURS: list[dict[str, Any]] = [{"from_hour": 12, "to_hour": 20, "price_factor": 0.3}]
PEAK: list[dict[str, Any]] = [{"from_hour": 0, "to_hour": 6, "peak": True}]
CHEAP_LATER = NOTHING_WRONG | {"market": {"preemption_factor": 0.0, "windows": CHEAP_HOURS}}
MOVING = NOTHING_WRONG | {"market": {"preemption_factor": 0.0, "log_sd_per_day": 8.0, "step_s": 300.0}}
MIGRATION = {"check_every_s": 120, "min_dwell_s": 60, "saving_over_disruption": 1, "max_migrations": 2}
EQUAL_GPUS = ("n2-standard-4", "a2-highgpu-1g", "a2-ultragpu-1g")
ON_DEMAND_ONLY = {kind: {"markets": ["on-demand"]} for kind in ("data", "compute", "memory")}
GRIDS = {"us-central1": {"g_per_kwh": 400, "source": "a test"}}


def simulated(base: Scenario, pipelines: int = 5, seed: int = 2, **policy: Any) -> SimulationReport:
    """Simulate a scenario under a policy, and check its ledger."""
    changed = base.policy.model_validate(base.policy.model_dump(mode="json") | policy)
    report = simulate(base.model_copy(update={"policy": changed}), pipelines, seed)
    assert report.accounts_over_cap == 0 and report.ledger_check.startswith("every hash")
    return report


def with_priority(base: Scenario, priority: str) -> Scenario:
    kinds = tuple(kind.model_copy(update={"priority": priority}) for kind in base.pipeline_kinds)
    return base.model_copy(update={"pipeline_kinds": kinds})


def on(pools: tuple[str, ...], base: Scenario) -> Scenario:
    return base.model_copy(update={"pools": pools})


def test_a_run_waits_for_cheaper_hours_and_pays_their_prices() -> None:
    base, start = scenario("tables", **CHEAP_LATER), {"max_delay_s": 86400, "windows": CHEAP_HOURS}
    now, later = simulated(base), simulated(base, start=start)
    assert (now.delayed, later.delayed) == (0, later.admitted)
    assert later.longest_wait_h > 10 and later.spent_usd < now.spent_usd / 2


def test_a_run_of_high_priority_does_not_wait_and_one_of_low_priority_waits_out_a_peak() -> None:
    base, start = scenario("tables", **CHEAP_LATER), {"max_delay_s": 86400, "windows": CHEAP_HOURS}
    assert simulated(with_priority(base, "high"), start=start).delayed == 0
    peak = {"max_delay_s": 86400, "windows": PEAK}
    normal, low = (simulated(with_priority(base, each), start=peak) for each in ("normal", "low"))
    assert (normal.delayed, low.delayed) == (0, low.admitted)


def test_a_run_of_low_priority_waits_while_pods_are_pending(tmp_path: Path) -> None:
    (tmp_path / "availability.csv").write_text("tick,a\n0,0\n1,0\n2,1\n3,1\n4,1\n5,1\n")
    (tmp_path / "prices.csv").write_text("zone,spot_usd_per_hour\na,1\n")
    market = {"trace": str(tmp_path), "zones": {"n2-standard-4": "a"}, "preemption_factor": 0.0}
    base = scenario("tables", **NOTHING_WRONG | {"market": market}, pipelines_per_hour=600)
    base = with_priority(on(("n2-standard-4",), base), "low")
    slow = {"queue_delay_s": 600, "stockout_ttl_s": 0}
    hasty, polite = (
        simulated(base, start={"max_delay_s": 36000, "yield_to_queue": queue}, **slow) for queue in (0, 1)
    )
    assert (hasty.delayed, polite.delayed > 0) == (0, True)


def test_the_runs_of_a_trial_follow_the_candidate_until_it_is_rolled_back() -> None:
    base = budgeted(12.0, scenario("tables", **NOTHING_WRONG, pipelines_per_hour=0.2))
    candidate = {"policy": {"name": "safe", "workload_classes": ON_DEMAND_ONLY}, "min_runs": 2}
    none, recorded, dear, kept = (
        simulated(base, 8, candidate=trial)
        for trial in (
            None,
            candidate | {"share": 0},
            candidate | {"share": 1},
            candidate | {"share": 1, "max_overspend": 50},
        )
    )
    assert record_bytes(none) == record_bytes(recorded)
    assert none.candidate_runs == 0 and not any("on-demand" in each for each in none.spent_by_target)
    assert "safe 1" in dear.rollback and 2 <= dear.candidate_runs < kept.candidate_runs == kept.admitted
    assert kept.rollback == "" and not any("spot" in each for each in kept.spent_by_target)


def test_a_training_migrates_when_another_pool_becomes_cheaper() -> None:
    base = on(EQUAL_GPUS, budgeted(1.0, scenario("images", **MOVING)))
    stays, moves = (simulated(base, 10, 3, migration=each) for each in ({}, MIGRATION))
    assert stays.migrations == 0 < moves.migrations
    assert moves.attempts > stays.attempts and moves.spent_by_target != stays.spent_by_target
    assert moves.trained_share is not None and moves.trained_share > (stays.trained_share or 0)


def test_the_limits_of_adaptation_apply() -> None:
    base = on(("n2-standard-4", "g2-standard-4"), budgeted(0.6, scenario("images", **MOVING)))
    base = base.model_copy(update={"market": base.market.model_copy(update={"log_sd_per_day": 12.0})})
    free = simulated(base, 6, 3)
    for limits in ({"length": False}, {"min_validation_share": 1}, {"max_batch_factor": 1}):
        bound = simulated(base, 6, 3, adaptation_limits=limits)
        assert (bound.spent_usd, bound.trained_share) != (free.spent_usd, free.trained_share), limits
    gpus = on(EQUAL_GPUS, budgeted(1.0, scenario("images", **MOVING)))
    bound = simulated(gpus, 6, 3, migration=MIGRATION, adaptation_limits={"pool": False})
    assert bound.migrations == 0


@pytest.mark.parametrize(
    "guardrails",
    [
        {"core_minutes": {"max": 60}},
        {"joules": {"max": 50_000}},
        {"co2_g": {"max": 10}},
        {"skill": {"min": 0.45, "after_epochs": 1}},
        {"usd_per_epoch": {"max_usd": "0.02"}},
    ],
    ids=lambda each: next(iter(each)),
)
def test_a_guardrail_stops_what_breaks_it(guardrails: dict[str, Any]) -> None:
    base = scenario("images", **NOTHING_WRONG)
    free, bound = (simulated(base, 4, carbon_grids=GRIDS, guardrails=each) for each in ({}, guardrails))
    assert "guardrail" not in free.outcomes and bound.outcomes["guardrail"] > 0
    assert bound.spent_usd < free.spent_usd


def test_a_guardrail_acts_as_its_action_says() -> None:
    base = scenario("images", **NOTHING_WRONG)
    stop, rebalance, pause = (
        simulated(base, 4, guardrails={"core_minutes": {"max": 60, "action": action}})
        for action in ("stop", "rebalance", "pause")
    )
    # A training ends annealed before the cap; a paused stage is tried again, and stopped again.
    assert rebalance.outcomes["done"] > stop.outcomes["done"]
    assert rebalance.trained_share is not None and rebalance.trained_share < 1
    assert pause.attempts > stop.attempts and "guardrail" not in pause.outcomes
    epochs = {"usd_per_epoch": {"max_usd": "0.02", "action": "rebalance"}}
    saved = simulated(base, 4, guardrails=epochs)
    assert saved.spent_usd > simulated(base, 4, guardrails={"usd_per_epoch": {"max_usd": "0.02"}}).spent_usd
    tables = scenario("tables", **NOTHING_WRONG)
    # With half of its cores, a stage takes longer than it saves.
    stopped, throttled = (
        simulated(tables, 4, guardrails={"core_minutes": {"max": 200, "action": action}})
        for action in ("stop", "throttle")
    )
    assert throttled.outcomes == stopped.outcomes and throttled.spent_usd > stopped.spent_usd


def test_a_training_whose_skill_collapses_rolls_back_or_stops() -> None:
    base = scenario("images", **NOTHING_WRONG)
    training = base.pipeline_kinds[0].training.model_copy(update={"collapse_share": 1.0, "skill_log_sd": 0.0})
    kinds = tuple(kind.model_copy(update={"training": training}) for kind in base.pipeline_kinds)
    base = base.model_copy(update={"pipeline_kinds": kinds})
    stopped, back = (
        simulated(base, 4, guardrails={"skill": {"min": 0.1, "after_epochs": 1, "action": action}})
        for action in ("stop", "roll-back")
    )
    assert stopped.outcomes["guardrail"] > back.outcomes.get("guardrail", 0)
    assert back.outcomes["done"] > stopped.outcomes.get("done", 0) and back.spent_usd > stopped.spent_usd


def test_commitments_pay_until_their_hours_are_used_up(tmp_path: Path) -> None:
    world = cloud_world("store") | {
        "commitments": [
            {"name": "yearly", "pool": "n2-standard-4", "hours_per_month": 20, "source": "a contract"}
        ]
    }
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(world))
    base = scenario("tables", **NOTHING_WRONG)
    prepaid = base.model_copy(update={"world": str(tmp_path / "world.yaml")})
    without, some, more = simulated(base), simulated(prepaid), simulated(prepaid, 12)
    assert without.committed_usd == 0 < some.committed_usd
    assert some.spent_usd < without.spent_usd and some.billed_usd < without.billed_usd
    # 20 hours of one machine at its price on demand, whatever the number of runs.
    assert some.committed_usd <= more.committed_usd <= 20
    assert more.spent_usd > some.spent_usd


def test_a_cap_on_memory_is_refused_by_name() -> None:
    base = scenario("tables", **NOTHING_WRONG)
    capped = base.policy.model_validate({"guardrails": {"memory_gb": {"max": 4}}})
    with pytest.raises(WorldError, match="memory_gb"):
        Simulation(base.model_copy(update={"policy": capped}), 0)


def test_a_simulated_policy_is_reproducible() -> None:
    base = on(EQUAL_GPUS, budgeted(1.0, scenario("images", **MOVING)))
    policy = {
        "migration": MIGRATION,
        "start": {"max_delay_s": 86400, "windows": CHEAP_HOURS},
        "guardrails": {"skill": {"min": 0.2, "after_epochs": 2}},
    }
    first, second = (simulated(base, 6, 3, **policy) for _ in range(2))
    assert record_bytes(first) == record_bytes(second)


@examples(20)
@given(
    seed=st.integers(0, 10**6),
    migration=st.sampled_from([{}, MIGRATION]),
    start=st.sampled_from([{}, {"max_delay_s": 20_000, "windows": CHEAP_HOURS, "yield_to_queue": 1}]),
    guardrails=st.sampled_from(
        [
            {},
            {"core_minutes": {"max": 100, "action": "rebalance"}},
            {"core_minutes": {"max": 100, "action": "throttle"}},
            {"skill": {"min": 0.4}, "usd_per_epoch": {"max_usd": "0.05", "action": "rebalance"}},
            {"joules": {"max": 1e6, "action": "pause"}},
        ]
    ),
    limits=st.fixed_dictionaries({"length": st.booleans(), "pool": st.booleans()}),
    share=st.sampled_from([0, 0.5]),
)
def test_no_account_spends_above_its_cap_under_any_policy_and_faults(
    seed: int,
    migration: dict[str, Any],
    start: dict[str, Any],
    guardrails: dict[str, Any],
    limits: dict[str, bool],
    share: float,
) -> None:
    faults = {"crash_per_write": 0.02, "error_per_write": 0.01, "race_per_write": 0.3, "clock_skew_sd_s": 30}
    market = MOVING["market"] | {"preemption_factor": 100.0, "windows": CHEAP_HOURS}
    base = scenario(pipelines_per_hour=60, faults=faults | {"pods_lost_per_hour": 0.5}, market=market)
    simulated(
        on(EQUAL_GPUS, budgeted(1.5, base)),
        6,
        seed,
        migration=migration,
        start=start,
        guardrails=guardrails,
        adaptation_limits=limits,
        candidate={"policy": {"name": "other", "workload_classes": ON_DEMAND_ONLY}, "share": share},
    )


def with_deadlines(base: Scenario, **changes: Any) -> Scenario:
    ample = {"deadline_factor": 2.0, "budget_factor": 40.0, "budget_log_sd": 0.0}
    kinds = tuple(kind.model_copy(update=ample | changes) for kind in base.pipeline_kinds)
    return base.model_copy(update={"pipeline_kinds": kinds})


def test_a_soft_deadline_finishes_what_a_hard_one_stops_after_its_training_is_paid() -> None:
    noisy = NOTHING_WRONG | {"durations": {"bias_log_sd": 0.0, "log_sd": 1.0, "tail_share": 0.0}}
    base = scenario("images", **noisy)
    hard, soft = (simulated(with_deadlines(base, deadline_kind=kind), 12, 1) for kind in ("hard", "soft"))
    assert hard.late == 0 < soft.late
    assert soft.outcomes["done"] > hard.outcomes["done"] and hard.outcomes["stopped"]


def test_an_engine_that_takes_longer_between_stages_leaves_less_time_to_train() -> None:
    base = with_deadlines(scenario("images", **NOTHING_WRONG), deadline_factor=0.75)
    laptop, kubeflow = (
        simulated(base.model_copy(update={"engine": engine}), 4) for engine in ("local", "kubeflow")
    )
    assert laptop.trained_share is not None and kubeflow.trained_share is not None
    assert kubeflow.trained_share < laptop.trained_share
