"""No account spends more than its cap under any faults, and the ledger stays correct."""

from __future__ import annotations

from decimal import Decimal

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scenarios import NOTHING_WRONG, DieAt, budgeted, scenario

from shoestring.config.policy import StartPolicy
from shoestring.core.record import record_bytes
from shoestring.simulation.results import SimulationReport
from shoestring.simulation.simulate import run_simulation, simulate
from shoestring.simulation.simulated_world import Simulation

RATES = st.floats(0, 0.05)
FAULTS = st.fixed_dictionaries(
    {
        "crash_per_write": RATES,
        "error_per_write": RATES,
        "race_per_write": st.floats(0, 1),
        "pods_lost_per_hour": st.floats(0, 5),
        "failed_share": st.floats(0, 0.3),
        "abandoned_share": st.floats(0, 0.3),
        "clock_skew_sd_s": st.floats(0, 3600),
    }
)


def ledger_is_correct(report: SimulationReport) -> bool:
    """Check that no cap is exceeded, every ledger entry is valid, and nothing is reserved at the end."""
    held = [month for month in report.parent_accounts.values() if "$0.000000 held" not in month]
    return (
        report.accounts_over_cap == 0
        and report.ledger_check.startswith("every hash")
        and "pending" not in report.ledger_check
        and not held
    )


@examples(8)
@given(
    faults=FAULTS,
    seed=st.integers(0, 10**6),
    budget_factor=st.floats(0.3, 6),
    month_usd=st.sampled_from(["0.2", "3", "10000"]),
    market=st.fixed_dictionaries(
        {
            "log_sd_per_day": st.floats(0, 2),
            "preemption_factor": st.floats(0, 1000),
            "notice_share": st.floats(0, 1),
        }
    ),
    durations=st.fixed_dictionaries(
        {"log_sd": st.floats(0, 1), "tail_share": st.floats(0, 0.5), "tail_index": st.floats(1.1, 3)}
    ),
)
def test_no_account_spends_above_its_cap_despite_any_faults(
    faults: dict[str, float],
    seed: int,
    budget_factor: float,
    month_usd: str,
    market: dict[str, float],
    durations: dict[str, float],
) -> None:
    base = scenario(
        pipelines_per_hour=600,
        faults=faults,
        market=market,
        durations=durations,
        budgets={"month_usd": month_usd},
    )
    report = simulate(budgeted(budget_factor, base), 8, seed)
    assert ledger_is_correct(report), report
    assert report.spent_usd <= Decimal(month_usd)


def test_a_process_can_die_before_and_after_every_write_of_a_pipeline() -> None:
    faults = NOTHING_WRONG | {"faults": {"crash_per_write": 0.5}, "reap_every_s": 700}
    calm = DieAt(-1, before=True)
    assert run_simulation(Simulation(scenario("tables", **faults), 3, calm), 1, True, int).outcomes == {
        "done": 1
    }
    assert calm.writes > 15
    for write in range(calm.writes):
        for before in (True, False):
            report = run_simulation(
                Simulation(scenario("tables", **faults), 3, DieAt(write, before)), 1, True, int
            )
            assert report.crashes == 1
            assert ledger_is_correct(report), (write, before, report)
            assert report.outcomes in ({"done": 1}, {"failed": 1}), (write, before, report)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not() -> None:
    one, same, other = (record_bytes(simulate(scenario("tables"), 10, seed)) for seed in (5, 5, 6))
    assert one == same != other


def test_races_are_reproducible() -> None:
    racing = scenario(
        pipelines_per_hour=3000,
        faults={"race_per_write": 0.7, "clock_skew_sd_s": 60.0},
        budgets={"month_usd": "20"},
    )
    first, second = (simulate(racing, 30, 1) for _ in range(2))
    assert first.races and record_bytes(first) == record_bytes(second)


def test_tiny_rates_are_accepted() -> None:
    rare = scenario("tables", faults={"pods_lost_per_hour": 5e-324}, market={"preemption_factor": 5e-324})
    assert simulate(rare, 2, 1).outcomes


def test_without_faults_and_with_enough_money_all_pipelines_finish() -> None:
    report = simulate(budgeted(10.0, scenario("tables", **NOTHING_WRONG)), 10, 1)
    assert report.outcomes == {"done": 10}
    assert (report.crashes, report.preempted, report.reaped) == (0, 0, 0)
    assert report.p95_coverage == 1.0


def test_the_ledger_matches_the_bill_when_prices_change() -> None:
    moving = NOTHING_WRONG | {"market": {"log_sd_per_day": 3.0, "step_s": 60.0, "preemption_factor": 0.0}}
    report = simulate(scenario("images", **moving), 6, 2)
    assert report.admitted
    assert abs(report.billed_usd - report.spent_usd) < Decimal("0.002") * report.billed_usd


def test_a_month_that_reached_its_cap_admits_no_more_runs() -> None:
    report = simulate(
        scenario("images", **NOTHING_WRONG, pipelines_per_hour=600, budgets={"month_usd": "9"}), 20, 2
    )
    assert report.outcomes["cap-reached"] > 5
    assert report.spent_usd <= 9


def test_runs_wait_for_money_that_others_hold_if_the_policy_allows() -> None:
    base = scenario("tables", **NOTHING_WRONG, pipelines_per_hour=600, budgets={"month_usd": "6"})
    waiting = base.policy.model_copy(update={"start": StartPolicy(max_delay_s=86400, poll_s=600)})
    refused, patient = simulate(base, 20, 2), simulate(base.model_copy(update={"policy": waiting}), 20, 2)
    assert refused.outcomes["cap-reached"] > 5 and not refused.waited
    assert patient.waited > 5 and patient.longest_wait_h > 1
    assert patient.admitted > refused.admitted and ledger_is_correct(patient)
    assert refused.spent_usd < patient.spent_usd <= 6


@examples(3)
@given(seed=st.integers(0, 10**6), cap_usd=st.sampled_from(["0.5", "4", "20"]))
def test_a_campaign_keeps_to_its_cap_inside_its_month_while_writers_race(seed: int, cap_usd: str) -> None:
    budgets = {"month_usd": "30", "campaigns": {"spring": {"cap_usd": cap_usd}}}
    faults = {"race_per_write": 0.7, "crash_per_write": 0.01, "clock_skew_sd_s": 60.0}
    base = scenario("tables", pipelines_per_hour=3000, budgets=budgets, faults=faults)
    chains = tuple(kind.model_copy(update={"campaign": "spring"}) for kind in base.pipeline_kinds)
    report = simulate(base.model_copy(update={"pipeline_kinds": chains}), 10, seed)
    assert ledger_is_correct(report), report
    assert report.spent_usd <= Decimal(cap_usd)
    assert "spring.campaign" in report.parent_accounts or not report.admitted


@pytest.mark.parametrize(("times", "fitting"), [(0.6, 0), (1.2, 5)])
def test_the_oracle_knows_the_minimum_cost(times: float, fitting: int) -> None:
    assert simulate(budgeted(times, scenario("tables", **NOTHING_WRONG)), 5, 1).would_fit == fitting
