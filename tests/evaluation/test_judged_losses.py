"""Evaluations by a metric that has a loss of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from encoded_datasets import Task
from test_evaluate import evaluated

from shoestring.core.datasets import Loss
from shoestring.evaluation.evaluate import BOOSTING
from shoestring.evaluation.results import HIGHER_IS_BETTER


@pytest.mark.parametrize(
    ("task", "metric", "loss", "constant"),
    [
        ("binary", "balanced_accuracy", Loss(balanced=True), "class prior"),
        ("multiclass", "balanced_accuracy", Loss(balanced=True), "class prior"),
        ("regression", "mae", Loss(quantile=0.5), "median"),
        ("regression", "quantile_loss", Loss(quantile=0.9), "0.9 quantile"),
    ],
)
def test_the_baselines_learn_the_loss_of_the_metric(
    tmp_path: Path, task: Task, metric: str, loss: Loss, constant: str
) -> None:
    asked: dict[str, Any] = {"metric_for": lambda _: metric, "loss": loss}
    for folder in ("asked", "plain"):
        (tmp_path / folder).mkdir()
    card = evaluated(tmp_path / "asked", task, **asked)
    plain = evaluated(tmp_path / "plain", task, metric_for=asked["metric_for"])
    assert [each.name for each in card.baselines] == [constant, BOOSTING]
    assert metric in card.model.scores and card.metric == metric
    sign = 1 if metric in HIGHER_IS_BETTER else -1
    for ours, before in zip(card.baselines, plain.baselines, strict=True):
        assert sign * ours.scores[metric].value >= sign * before.scores[metric].value - 0.05
    if loss.balanced:
        classes = len(card.classes)
        assert card.baselines[0].scores[metric].value == pytest.approx(1 / classes)
