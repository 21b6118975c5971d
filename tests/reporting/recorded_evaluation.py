"""The curve and the evaluation of a successful run. The numbers are invented; their shapes are real."""

from __future__ import annotations

import math
from decimal import Decimal

from shoestring.evaluation.results import BaselineFit, CalibrationBin, EvaluationResults, Score, ScoredModel
from shoestring.training.curve import CurvePoint, TrainingCurve


def curve(run_id: str, stop_usd: Decimal, points: int = 120) -> TrainingCurve:
    """Return losses that fall and level off, with a phase for each part."""
    points_so_far = []
    for number in range(points + 1):
        share = number / points
        points_so_far.append(
            CurvePoint(
                samples=number * 22_000,
                epoch=number * 0.08,
                spent_usd=stop_usd * number / points,
                training_s=number * 0.5,
                train_loss=0.55 * math.exp(-10 * share) + 0.44 - 0.04 * share + 0.01 * math.sin(2.4 * number),
                val_loss=0.5 * math.exp(-12 * share) + 0.452 - 0.012 * share if number % 6 == 5 else None,
                learning_rate=0.002,
                phase="warm-up" if share < 0.06 else "stable" if share < 0.8 else "decay",
            )
        )
    return TrainingCurve(run_id=run_id, metric="log_loss", points=tuple(points_so_far))


def score_with_interval(value: float, half_width: float) -> Score:
    return Score(value=value, low=value - half_width, high=value + half_width)


MODEL = ScoredModel(
    name="model",
    description="an embedding MLP after 9.6 epochs",
    scores={
        "log_loss": score_with_interval(0.4413, 0.0081),
        "accuracy": score_with_interval(0.8011, 0.011),
        "auc": score_with_interval(0.7412, 0.007),
    },
)
PRIOR = ScoredModel(
    name="class prior",
    description="the shares of the classes in train",
    scores={
        "log_loss": score_with_interval(0.5012, 0.019),
        "accuracy": score_with_interval(0.7711, 0.014),
        "auc": Score(value=0.5),
    },
    difference={"log_loss": score_with_interval(-0.0599, 0.011)},
)
BOOSTING = ScoredModel(
    name="gradient boosting",
    description="scikit-learn's HistGradientBoostingClassifier, given the same seconds",
    scores={
        "log_loss": score_with_interval(0.4396, 0.0083),
        "accuracy": score_with_interval(0.8021, 0.011),
        "auc": score_with_interval(0.7466, 0.007),
    },
    difference={"log_loss": score_with_interval(0.0017, 0.0021)},
    fit=BaselineFit(
        limit_s=61.2,
        limit_reason="what training took",
        elapsed_s=48.1,
        cores=2,
        iterations=180,
        fitted_iterations=214,
        stop_reason="the validation split stalled",
    ),
)


def scorecard(run_id: str) -> EvaluationResults:
    bins = [
        (0.03, 0.034, 15_000),
        (0.1, 0.098, 9_000),
        (0.23, 0.241, 4_000),
        (0.36, 0.35, 2_000),
        (0.5, 0.512, 800),
        (0.7, 0.68, 120),
    ]
    return EvaluationResults(
        run_id=run_id,
        inputs={"data": "datasets/flights/1.json", "model": "runs/model.json"},
        task="binary",
        classes=("on time", "late"),
        metric="log_loss",
        rows=33_412,
        resampling_unit="groups",
        unit_count=37,
        resamples=1000,
        model=MODEL,
        baselines=(PRIOR, BOOSTING),
        calibration=tuple(
            CalibrationBin(
                predicted=predicted, observed=observed, rows=rows, low=observed - 0.02, high=observed + 0.02
            )
            for predicted, observed, rows in bins
        ),
        training_s=61.2,
    )
