"""The model and its baselines on the same sealed rows: scores, intervals, differences, calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.core.errors import StageFailed
from shoestring.evaluation.metrics import UNCENTRED, Answers, Floats, Statistic, bins_of, statistics, sureness
from shoestring.evaluation.resampling import Sampled, Units, sample
from shoestring.evaluation.results import CalibrationBin, Contender, Fit, Score

Tell = Callable[[str, int], None]
"""Called with what is being done and how far it is; may raise to stop."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody's predictions for the test rows: float[n, classes], or float[n]."""

    name: str
    what: str
    predicted: Floats
    fit: Fit | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    contenders: tuple[Contender, ...]
    calibration: tuple[CalibrationBin, ...]


def judge(
    encoding: Encoding, y: Answers, claims: Sequence[Claim], units: Units, seed: int, tell: Tell
) -> Verdict:
    """Score every claim; the first is the model's, the others are measured against it over the same resamples.

    Raises StageFailed when somebody predicts what is no number.
    """
    for claim in claims:
        if wild := int((~np.isfinite(claim.predicted)).sum()):
            raise StageFailed(
                f"{wild} of {claim.predicted.size} predictions of the {claim.name} are no finite numbers: it cannot be judged"
            )
    ready = [statistics(encoding.task, y, claim.predicted) for claim in claims]
    bins = [] if encoding.task == "regression" else _bins(y, claims[0].predicted, units)
    asked = [statistic for each in ready for statistic in each.values()] + [each.observed for each in bins]
    found = iter(sample(asked, units, seed, tell))
    measured = [{metric: next(found) for metric in each} for each in ready]
    contenders = (_contender(claim, each, measured[0]) for claim, each in zip(claims, measured, strict=True))
    return Verdict(tuple(contenders), tuple(each.seen(next(found)) for each in bins))


def _contender(claim: Claim, measured: Mapping[str, Sampled], models: Mapping[str, Sampled]) -> Contender:
    scores = {metric: _score(metric, each) for metric, each in measured.items()}
    lead = (
        {}
        if measured is models
        else {metric: _score(metric, models[metric] - each) for metric, each in measured.items()}
    )
    return Contender(name=claim.name, what=claim.what, scores=scores, lead=lead, fit=claim.fit)


def _score(metric: str, measured: Sampled) -> Score:
    return Score(value=measured.value) if metric in UNCENTRED else measured.score()


@dataclass(frozen=True, slots=True)
class _Bin:
    predicted: float
    rows: int
    units: int
    observed: Statistic

    def seen(self, observed: Sampled) -> CalibrationBin:
        share = replace(observed, units=self.units).score()
        return CalibrationBin(
            predicted=self.predicted, observed=share.value, rows=self.rows, low=share.low, high=share.high
        )


def _bins(y: Answers, p: Floats, units: Units) -> list[_Bin]:
    """Those that hold rows; `observed` is the share of their rows that turned out so, under weights."""
    probability, right = sureness(y, p)
    place = bins_of(probability)
    found = []
    for index in np.unique(place):
        here = np.flatnonzero(place == index)
        count = len(np.unique(units.of_row[here]))
        found.append(
            _Bin(float(probability[here].mean()), len(here), count, partial(_share, here, right[here]))
        )
    return found


def _share(here: Answers, right: Floats, w: Floats) -> float:
    weight = w[here].sum()
    return float(w[here] @ right / weight) if weight else float("nan")
