"""What training and evaluation leave of a run that went well. The numbers are made up; their shapes are real."""

from __future__ import annotations

import math
from decimal import Decimal

from shoestring.evaluation.results import CalibrationBin, Contender, Fit, Score, Scorecard
from shoestring.training.curve import Curve, Point


def curve(run_id: str, stop_usd: Decimal, points: int = 120) -> Curve:
    """Losses that fall and level off, with a phase for each part of the way."""
    looks = []
    for number in range(points + 1):
        share = number / points
        looks.append(
            Point(
                samples=number * 22_000,
                epoch=number * 0.08,
                spent_usd=stop_usd * number / points,
                seconds=number * 0.5,
                train_loss=0.55 * math.exp(-10 * share) + 0.44 - 0.04 * share + 0.01 * math.sin(2.4 * number),
                val_loss=0.5 * math.exp(-12 * share) + 0.452 - 0.012 * share if number % 6 == 5 else None,
                learning_rate=0.002,
                phase="warm-up" if share < 0.06 else "stable" if share < 0.8 else "decay",
            )
        )
    return Curve(run_id=run_id, metric="log_loss", points=tuple(looks))


def around(value: float, by: float) -> Score:
    return Score(value=value, low=value - by, high=value + by)


MODEL = Contender(
    name="model",
    what="an embedding MLP after 9.6 epochs",
    scores={
        "log_loss": around(0.4413, 0.0081),
        "accuracy": around(0.8011, 0.011),
        "auc": around(0.7412, 0.007),
    },
)
PRIOR = Contender(
    name="class prior",
    what="the shares of the classes in train",
    scores={"log_loss": around(0.5012, 0.019), "accuracy": around(0.7711, 0.014), "auc": Score(value=0.5)},
    lead={"log_loss": around(-0.0599, 0.011)},
)
BOOSTING = Contender(
    name="gradient boosting",
    what="scikit-learn's HistGradientBoostingClassifier, given the same seconds",
    scores={
        "log_loss": around(0.4396, 0.0083),
        "accuracy": around(0.8021, 0.011),
        "auc": around(0.7466, 0.007),
    },
    lead={"log_loss": around(0.0017, 0.0021)},
    fit=Fit(
        given_s=61.2,
        why_s="what training took",
        taken_s=48.1,
        cores=2,
        iterations=180,
        grown=214,
        ended="signal validation stalled",
    ),
)


def scorecard(run_id: str) -> Scorecard:
    bins = [
        (0.03, 0.034, 15_000),
        (0.1, 0.098, 9_000),
        (0.23, 0.241, 4_000),
        (0.36, 0.35, 2_000),
        (0.5, 0.512, 800),
        (0.7, 0.68, 120),
    ]
    return Scorecard(
        run_id=run_id,
        inputs={"data": "datasets/flights/1.json", "model": "runs/model.json"},
        task="binary",
        classes=("on time", "late"),
        metric="log_loss",
        rows=33_412,
        resampled="groups",
        units=37,
        resamples=1000,
        model=MODEL,
        baselines=(PRIOR, BOOSTING),
        calibration=tuple(
            CalibrationBin(
                predicted=predicted, observed=observed, rows=rows, low=observed - 0.02, high=observed + 0.02
            )
            for predicted, observed, rows in bins
        ),
        trained_s=61.2,
    )
