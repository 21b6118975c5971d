"""Score the model and its baselines on the same test rows: metrics, intervals, paired differences and
calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.core.errors import StageFailed
from shoestring.evaluation.metrics import (
    BIASED_UNDER_RESAMPLING,
    STANDARD,
    Judgement,
    Statistic,
    Targets,
    bin_indices,
    confidences,
    share,
    statistics,
)
from shoestring.evaluation.resampling import ResampledMetric, resample
from shoestring.evaluation.results import BaselineFit, CalibrationBin, Score, ScoredModel
from shoestring.evaluation.units import Floats, SamplingUnits

ReportPhase = Callable[[str, int], None]
"""Receives the current phase and a progress count. May raise to stop the evaluation."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """One model's predictions for the test rows: float[n, classes], or float[n]."""

    name: str
    description: str
    values: Floats
    fit: BaselineFit | None = None


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The scores of all models, the calibration of the first, and the draws of their intervals."""

    scored_models: tuple[ScoredModel, ...]
    calibration: tuple[CalibrationBin, ...]
    resamples: int


def score_models(
    encoding: Encoding,
    y: Targets,
    predictions: Sequence[Predictions],
    units: SamplingUnits,
    seed: int,
    report: ReportPhase,
    judgement: Judgement = STANDARD,
) -> ModelComparison:
    """Score all predictions over the same resamples. The first are the model's; the others are compared
    with them.

    Raises StageFailed when a prediction is not a finite number.
    """
    for each in predictions:
        if invalid := int((~np.isfinite(each.values)).sum()):
            raise StageFailed(
                f"{invalid} of {each.values.size} predictions of the {each.name} are not finite numbers: "
                "it cannot be scored"
            )
    metrics = [statistics(encoding.task, y, each.values, units, judgement) for each in predictions]
    bins = [] if encoding.task in ("regression", "next_token") else _bins(y, predictions[0].values, units)
    wanted = [statistic for each in metrics for statistic in each.values()] + [each.observed for each in bins]
    resampled = resample(wanted, units, seed, report)
    found = iter(resampled)
    measured = [{metric: next(found) for metric in each} for each in metrics]
    scored = (
        _score_model(each, values, measured[0]) for each, values in zip(predictions, measured, strict=True)
    )
    calibration = tuple(each.calibration_bin(next(found)) for each in bins)
    return ModelComparison(tuple(scored), calibration, len(resampled[0].draws))


def _score_model(
    predictions: Predictions,
    measured: Mapping[str, ResampledMetric],
    model: Mapping[str, ResampledMetric],
) -> ScoredModel:
    scores = {metric: _score(metric, each) for metric, each in measured.items()}
    difference = (
        {}
        if measured is model
        else {metric: _score(metric, model[metric] - each) for metric, each in measured.items()}
    )
    return ScoredModel(
        name=predictions.name,
        description=predictions.description,
        scores=scores,
        difference=difference,
        fit=predictions.fit,
    )


def _score(metric: str, measured: ResampledMetric) -> Score:
    return Score(value=measured.value) if metric in BIASED_UNDER_RESAMPLING else measured.score()


@dataclass(frozen=True, slots=True)
class _CalibrationStatistic:
    """One non-empty calibration bin. `observed` computes the share of its rows with a positive outcome."""

    predicted: float
    rows: int
    units: int
    observed: Statistic

    def calibration_bin(self, observed: ResampledMetric) -> CalibrationBin:
        found = replace(observed, units=self.units).score()
        return CalibrationBin(
            predicted=self.predicted, observed=found.value, rows=self.rows, low=found.low, high=found.high
        )


def _bins(y: Targets, p: Floats, units: SamplingUnits) -> list[_CalibrationStatistic]:
    probability, outcome = confidences(y, p)
    bin_of_row = bin_indices(probability)
    found = []
    for index in np.unique(bin_of_row):
        chosen = bin_of_row == index
        weights = None if units.weights is None else units.weights[chosen]
        unit_count = len(np.unique(units.unit_of_row[chosen]))
        observed = share(outcome, chosen.astype(np.float64), units)
        predicted, rows = float(np.average(probability[chosen], weights=weights)), int(chosen.sum())
        found.append(_CalibrationStatistic(predicted, rows, unit_count, observed))
    return found
