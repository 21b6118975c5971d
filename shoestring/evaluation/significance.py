"""The model and its baselines on the same sealed rows: scores, intervals, differences, calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.core.errors import StageFailed
from shoestring.evaluation.metrics import (
    BIASED_UNDER_RESAMPLING,
    Floats,
    Statistic,
    Targets,
    bin_indices,
    confidences,
    statistics,
)
from shoestring.evaluation.resampling import ResampledMetric, ResamplingUnits, resample
from shoestring.evaluation.results import BaselineFit, CalibrationBin, Score, ScoredModel

ReportPhase = Callable[[str, int], None]
"""Called with what is being done and how far it is; may raise to stop."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Somebody's predictions for the test rows: float[n, classes], or float[n]."""

    name: str
    description: str
    values: Floats
    fit: BaselineFit | None = None


@dataclass(frozen=True, slots=True)
class ModelComparison:
    scored_models: tuple[ScoredModel, ...]
    calibration: tuple[CalibrationBin, ...]


def score_models(
    encoding: Encoding,
    y: Targets,
    claims: Sequence[Predictions],
    units: ResamplingUnits,
    seed: int,
    tell: ReportPhase,
) -> ModelComparison:
    """Score every claim; the first is the model's, the others are measured against it over the same resamples.

    Raises StageFailed when somebody predicts what is no number.
    """
    for claim in claims:
        if wild := int((~np.isfinite(claim.values)).sum()):
            raise StageFailed(
                f"{wild} of {claim.values.size} predictions of the {claim.name} are no finite numbers: it cannot be judged"
            )
    ready = [statistics(encoding.task, y, claim.values) for claim in claims]
    bins = [] if encoding.task == "regression" else _bins(y, claims[0].values, units)
    asked = [statistic for each in ready for statistic in each.values()] + [each.observed for each in bins]
    found = iter(resample(asked, units, seed, tell))
    measured = [{metric: next(found) for metric in each} for each in ready]
    contenders = (
        _score_model(claim, each, measured[0]) for claim, each in zip(claims, measured, strict=True)
    )
    return ModelComparison(tuple(contenders), tuple(each.seen(next(found)) for each in bins))


def _score_model(
    claim: Predictions, measured: Mapping[str, ResampledMetric], models: Mapping[str, ResampledMetric]
) -> ScoredModel:
    scores = {metric: _score(metric, each) for metric, each in measured.items()}
    lead = (
        {}
        if measured is models
        else {metric: _score(metric, models[metric] - each) for metric, each in measured.items()}
    )
    return ScoredModel(
        name=claim.name, description=claim.description, scores=scores, difference=lead, fit=claim.fit
    )


def _score(metric: str, measured: ResampledMetric) -> Score:
    return Score(value=measured.value) if metric in BIASED_UNDER_RESAMPLING else measured.score()


@dataclass(frozen=True, slots=True)
class _CalibrationStatistic:
    predicted: float
    rows: int
    units: int
    observed: Statistic

    def seen(self, observed: ResampledMetric) -> CalibrationBin:
        share = replace(observed, units=self.units).score()
        return CalibrationBin(
            predicted=self.predicted, observed=share.value, rows=self.rows, low=share.low, high=share.high
        )


def _bins(y: Targets, p: Floats, units: ResamplingUnits) -> list[_CalibrationStatistic]:
    """Those that hold rows; `observed` is the share of their rows that turned out so, under weights."""
    probability, right = confidences(y, p)
    place = bin_indices(probability)
    found = []
    for index in np.unique(place):
        here = np.flatnonzero(place == index)
        count = len(np.unique(units.unit_of_row[here]))
        found.append(
            _CalibrationStatistic(
                float(probability[here].mean()), len(here), count, partial(_share, here, right[here])
            )
        )
    return found


def _share(here: Targets, right: Floats, w: Floats) -> float:
    weight = w[here].sum()
    return float(w[here] @ right / weight) if weight else float("nan")
