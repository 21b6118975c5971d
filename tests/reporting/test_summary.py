"""The summary that scripts rely on, for every way a run can end."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from recorded_evaluation import PRIOR, score_with_interval, scorecard
from recorded_run import ROWS, RUN_ID, STAGES, Recording
from run_stories import (
    STORIES,
    Story,
    done,
    failed,
    impossible,
    on_argo,
    refused,
    refused_on_the_way,
    resumed,
    running,
    stopped,
)

from shoestring.config.engines import assumed_times
from shoestring.core import store_layout
from shoestring.core.errors import UnknownName
from shoestring.core.money import usd
from shoestring.core.record import record_bytes
from shoestring.data.run_records import StepError
from shoestring.evaluation.results import Score
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import RunSummary, engine_text, summarise_run

REQUIRED_FIELDS = {
    "name",
    "pool",
    "market",
    "format",
    "budget_usd",
    "est_usd",
    "p95_usd",
    "spent_usd",
    "seconds",
    "cache_hit",
}


def summary_of(run: Recording) -> RunSummary:
    return summarise_run(read_run_story(run.store, RUN_ID))


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_stages_and_overhead_sum_to_the_run(story: Story, tmp_path: Path) -> None:
    summary = summary_of(story(tmp_path))
    assert sum((stage.spent_usd for stage in summary.stages), summary.overhead_usd) == summary.spent_usd
    assert summary.spent_usd <= summary.budget_usd


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_money_is_written_as_strings_and_read_back(story: Story, tmp_path: Path) -> None:
    summary = summary_of(story(tmp_path))
    written = json.loads(record_bytes(summary))
    amounts = [
        written["budget_usd"],
        written["spent_usd"],
        *(stage["spent_usd"] for stage in written["stages"]),
    ]
    assert all(isinstance(amount, str) for amount in amounts)
    assert RunSummary.model_validate_json(record_bytes(summary)) == summary


def test_a_run_that_is_done_has_a_row_for_each_stage_in_the_order_of_their_decisions(tmp_path: Path) -> None:
    summary = summary_of(done(tmp_path))
    assert (summary.status, summary.reason, summary.starts) == ("done", "", 1)
    assert [stage.name for stage in summary.stages] == STAGES
    assert all(set(stage) >= REQUIRED_FIELDS for stage in json.loads(record_bytes(summary))["stages"])
    assert [stage.cache_hit for stage in summary.stages] == [False] * 4
    assert summary.quality["log_loss"] == 0.4413


def test_the_time_of_the_engine_is_measured_between_the_stages_beside_what_was_planned(
    tmp_path: Path,
) -> None:
    summary = summary_of(on_argo(tmp_path / "argo"))
    assert (summary.engine_s, summary.engine_planned_s) == (2.4, 45.0)
    assert engine_text(summary) == "2.40 s between the stages, 45.0 s planned"
    unplanned = summary_of(done(tmp_path / "done"))
    assert (unplanned.engine_s, unplanned.engine_planned_s, engine_text(unplanned)) == (0.0, 0.0, "")


def test_the_hour_between_two_starts_is_no_time_of_the_engine(tmp_path: Path) -> None:
    run = resumed(tmp_path, assumed_times("argo", pod_s=3.0))
    assert summary_of(run).engine_s == 2.4


def test_a_refused_run_reports_the_smallest_budget_and_spent_nothing(tmp_path: Path) -> None:
    summary = summary_of(refused(tmp_path))
    assert (summary.status, summary.spent_usd, summary.starts, summary.stages) == ("refused", 0, 0, ())
    assert summary.budget_usd == Decimal("0.0002")
    assert summary.smallest_budget_usd is not None
    assert f"the smallest budget that is enough is ${summary.smallest_budget_usd}" in summary.reason


def test_a_run_for_which_no_budget_is_enough_reports_the_reason(tmp_path: Path) -> None:
    summary = summary_of(impossible(tmp_path))
    assert (summary.status, summary.smallest_budget_usd) == ("refused", None)
    assert "no budget is enough" in summary.reason
    assert "of memory, tiny has 0.01" in summary.reason


def test_a_failed_run_names_the_stage_and_the_reason_once(tmp_path: Path) -> None:
    summary = summary_of(failed(tmp_path))
    assert summary.status == "failed"
    assert [stage.state for stage in summary.stages] == ["done", "failed"]
    assert summary.reason.count("preprocess failed") == 1
    assert "dep_time" in summary.reason


def step_error(run: Recording, step: str, minutes: int = 60) -> None:
    """Write an error of a step, at that many minutes after the run's last entry."""
    error = StepError(step=step, ended_at=run.clock.now() + timedelta(minutes=minutes), reason="no column x")
    run.store.put(store_layout.step_error(RUN_ID), record_bytes(error))


def test_a_run_whose_step_ended_in_an_error_gives_it_as_the_reason(tmp_path: Path) -> None:
    between = Recording(tmp_path / "between")
    between.start()
    between.route("ingest")
    between.end(6.1, rows=10)
    between.close()
    ended = "the run ended after ingest, before the next stage was routed"
    assert summary_of(between).reason == ended
    step_error(between, "route", minutes=-60)
    assert summary_of(between).reason == ended, "the error of an earlier start"
    step_error(between, "route")
    assert (summary_of(between).status, summary_of(between).reason) == ("stopped", f"{ended}: no column x")

    lost = running(tmp_path / "lost")
    lost.ledger.settle(lost.account, lost.hold, lost.spent(21.0), "its pod is gone")
    lost.close()
    step_error(lost, "evaluate")
    assert summary_of(lost).reason == "train was lost without a message"
    step_error(lost, "train")
    assert (summary_of(lost).status, summary_of(lost).reason) == ("failed", "train failed: no column x")

    unrouted = Recording(tmp_path / "unrouted")
    unrouted.start()
    unrouted.close()
    step_error(unrouted, "route")
    assert summary_of(unrouted).reason == "the run started, but no stage was routed: no column x"
    step_error(finished := done(tmp_path / "done"), "route")
    assert summary_of(finished).reason == ""


def test_a_run_whose_branch_failed_before_another_was_done_is_failed_until_it_is_started_again(
    tmp_path: Path,
) -> None:
    run = Recording(tmp_path)
    run.start()
    run.route("ingest")
    run.end(6.1, "failed", "exit code 1")
    run.route("preprocess")
    run.end(3.0, rows=ROWS)
    run.close()
    summary = summary_of(run)
    assert (summary.status, summary.reason) == ("failed", "ingest failed: exit code 1")
    run.start()
    run.route("preprocess", cached="cache/1.json")
    run.end(0.2, rows=ROWS)
    run.close()
    assert summary_of(run).status == "stopped"


def test_a_run_ended_by_sigterm_is_stopped(tmp_path: Path) -> None:
    summary = summary_of(stopped(tmp_path))
    assert (summary.status, summary.reason) == ("stopped", "ingest stopped: told to stop by SIGTERM")


def test_a_run_that_spends_its_budget_before_its_end_is_stopped_not_refused(tmp_path: Path) -> None:
    summary = summary_of(refused_on_the_way(tmp_path))
    assert summary.status == "stopped"
    assert summary.spent_usd > 0
    assert summary.smallest_budget_usd is not None
    assert "too small" in summary.reason
    assert [stage.name for stage in summary.stages] == ["ingest"]


def test_a_running_run_counts_the_spending_of_its_pods_so_far(tmp_path: Path) -> None:
    run = running(tmp_path)
    summary = summary_of(run)
    assert (summary.status, summary.reason) == ("running", "")
    train = summary.stages[-1]
    assert (train.name, train.state, train.seconds) == ("train", "running", 20.0)
    assert train.spent_usd == run.spent(20.0)


def test_a_resumed_run_has_one_row_per_stage_with_the_totals_of_all_attempts(tmp_path: Path) -> None:
    summary = summary_of(resumed(tmp_path))
    assert (summary.status, summary.starts) == ("done", 2)
    ingest, _, train, evaluate = summary.stages
    assert (ingest.attempts, ingest.cache_hit, ingest.seconds) == (2, True, 6.3)
    assert (train.attempts, train.state, train.seconds) == (2, "done", 51.0)
    assert train.spent_usd == usd(Decimal("0.04") * 21 / 3600) + usd(Decimal("0.04") * 30 / 3600)
    assert evaluate.attempts == 1


def test_the_hour_between_two_starts_is_not_wall_time(tmp_path: Path) -> None:
    assert 60 < summary_of(resumed(tmp_path)).wall_s < 120


def test_a_pod_that_is_gone_when_the_account_is_closed_is_lost(tmp_path: Path) -> None:
    run = running(tmp_path)
    run.ledger.settle(run.account, run.hold, run.spent(21.0), "its pod is gone")
    run.close()
    summary = summary_of(run)
    assert (summary.status, summary.reason) == ("failed", "train was lost without a message")


def test_an_unknown_run_lists_the_known_runs(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=RUN_ID):
        read_run_story(done(tmp_path).store, "no-such-run")


@pytest.mark.parametrize(
    ("difference", "warned"),
    [
        (score_with_interval(-0.05, 0.011), False),
        (score_with_interval(-0.005, 0.011), True),
        (score_with_interval(0.05, 0.011), True),
        (Score(value=-0.06), False),
    ],
)
def test_a_model_that_is_no_better_than_a_constant_says_so(difference: Score, warned: bool) -> None:
    constant = PRIOR.model_copy(update={"difference": {"log_loss": difference}})
    results = scorecard("one").model_copy(update={"baselines": (constant,)})
    assert results.constant_warning == (
        "no better than a constant prediction (log_loss 0.4413, class prior 0.5012)" if warned else ""
    )


def test_a_metric_that_should_be_high_warns_where_it_is_low() -> None:
    constant = PRIOR.model_copy(update={"difference": {"accuracy": score_with_interval(0.03, 0.01)}})
    results = scorecard("one").model_copy(update={"baselines": (constant,), "metric": "accuracy"})
    assert results.constant_warning == ""
    worse = constant.model_copy(update={"difference": {"accuracy": score_with_interval(0.005, 0.01)}})
    assert results.model_copy(update={"baselines": (worse,)}).constant_warning
