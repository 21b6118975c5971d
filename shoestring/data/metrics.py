"""The metrics that a recipe may name, and the loss that each is trained by."""

from __future__ import annotations

from typing import Literal

from shoestring.core.datasets import MEDIAN, Loss

Task = Literal["binary", "multiclass", "regression", "next_token"]
Metric = Literal[
    "log_loss",
    "accuracy",
    "balanced_accuracy",
    "auc",
    "ece",
    "rmse",
    "mae",
    "r2",
    "quantile_loss",
    "bits_per_byte",
]

METRICS: dict[Task, tuple[Metric, ...]] = {
    "binary": ("log_loss", "accuracy", "auc", "ece"),
    "multiclass": ("log_loss", "accuracy", "ece"),
    "regression": ("rmse", "mae", "r2"),
    "next_token": ("bits_per_byte",),
}
"""The metrics of each task. The first is the primary metric when a recipe names none."""

WANTED_METRICS: dict[Task, tuple[Metric, ...]] = {
    "binary": ("balanced_accuracy",),
    "multiclass": ("balanced_accuracy",),
    "regression": ("quantile_loss",),
    "next_token": (),
}
"""The further metrics of each task, which are computed when a recipe names them."""


def no_metric(metric: Metric | None, task: Task) -> str:
    """Return a sentence if a metric does not apply to a task, else ""."""
    known = (*METRICS[task], *WANTED_METRICS[task])
    if metric is None or metric in known:
        return ""
    return f"{metric} does not apply to a {task} target: choose one of {', '.join(known)}"


def loss_of(metric: Metric | None, quantile: float | None) -> Loss:
    """Return what training minimises: what the metric judges. `quantile`: of `quantile_loss`."""
    return Loss(balanced=metric == "balanced_accuracy", quantile=MEDIAN if metric == "mae" else quantile)
