"""Two runs side by side, and the verdict on their metrics."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from recorded_run import RUN_ID
from run_stories import done, failed

from shoestring.evaluation.results import Score
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.runs.run_comparison import compare_runs, metric_pairs, metric_verdict
from shoestring.reporting.runs.run_text import comparison_text, main_quality_text


@pytest.mark.parametrize(
    ("metric", "first", "second", "verdict"),
    [
        ("log_loss", (0.48, 0.47, 0.49), (0.49, 0.485, 0.50), "intervals overlap"),
        ("log_loss", (0.48, 0.47, 0.49), (0.52, 0.51, 0.53), "first better"),
        ("auc", (0.70, 0.69, 0.71), (0.75, 0.74, 0.76), "second better"),
        ("auc", (0.70, None, None), (0.75, 0.74, 0.76), "no interval"),
    ],
)
def test_a_verdict_follows_from_the_intervals(
    metric: str,
    first: tuple[float, float | None, float | None],
    second: tuple[float, float | None, float | None],
    verdict: str,
) -> None:
    one, other = (Score(value=value, low=low, high=high) for value, low, high in (first, second))
    assert metric_verdict(metric, one, other) == verdict


def test_models_that_were_tested_on_other_rows_are_not_judged(tmp_path: Path) -> None:
    results = read_run_story(done(tmp_path).store, RUN_ID).evaluation
    assert results is not None
    others = results.model_copy(update={"rows": results.rows + 1})
    assert {pair.verdict for pair in metric_pairs(results, others)} == {"other test rows"}
    assert metric_pairs(results, results)[0].metric == results.metric


def test_the_text_shows_intervals_and_the_difference_in_dollars(tmp_path: Path) -> None:
    one = read_run_story(done(tmp_path / "one").store, RUN_ID)
    other = read_run_story(failed(tmp_path / "other").store, RUN_ID)
    text = comparison_text(compare_runs(one, replace(other, evaluation=one.evaluation)))
    assert one.evaluation is not None
    score = one.evaluation.model.scores[one.evaluation.metric]
    assert f"{score.value:.4f} ({score.low:.4f} to {score.high:.4f})" in text
    assert "placed differently: train, evaluate" in text
    less = one.spent_usd - other.spent_usd
    assert less > Decimal(0) and f"the second ${less:.6f} less" in text


def test_the_main_metric_is_the_one_that_has_an_interval_or_baselines() -> None:
    scores = {"accuracy": 0.79, "log_loss": 0.48, "log_loss_low": 0.43, "log_loss_high": 0.53}
    assert main_quality_text(scores) == "log loss 0.4800 (0.4300 to 0.5300)"
    assert main_quality_text({"rmse": 2.0}) == "RMSE 2.0000"
    assert main_quality_text({}) == "-"
