"""The model and its baselines on the same sealed rows: scores, intervals, differences, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shoestring.evaluation.metrics import Answers, Floats, Statistic, bins_of, statistics, sureness
from shoestring.evaluation.resampling import Units, resample, score
from shoestring.evaluation.scorecard import CalibrationBin, Contender, Fit, Score
from shoestring.model import Encoding

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


def judge(encoding: Encoding, y: Answers, claims: Sequence[Claim], units: Units, seed: int, tell: Tell) -> Verdict:
    """Score every claim; the first is the model's, the others are measured against it over the same resamples."""
    ready = [statistics(encoding.task, y, claim.predicted) for claim in claims]
    bins = [] if encoding.task == "regression" else _bins(y, claims[0].predicted)
    asked = [statistic for each in ready for statistic in each.values()] + [each.observed for each in bins]
    values = np.array([statistic(np.ones(len(y))) for statistic in asked])
    drawn = resample(asked, units, seed, tell)

    def scored(value: float, resampled: Floats) -> Score:
        return score(float(value), resampled, units.count)

    metrics, contenders = list(ready[0]), []
    for place, claim in enumerate(claims):
        scores, lead = {}, {}
        for ours, metric in enumerate(metrics):
            theirs = place * len(metrics) + ours
            scores[metric] = scored(values[theirs], drawn[:, theirs])
            if place:
                lead[metric] = scored(values[ours] - values[theirs], drawn[:, ours] - drawn[:, theirs])
        contenders.append(Contender(name=claim.name, what=claim.what, scores=scores, lead=lead, fit=claim.fit))
    first = len(claims) * len(metrics)
    calibration = []
    for place, each in enumerate(bins, first):
        observed = scored(values[place], drawn[:, place])
        made = CalibrationBin(predicted=each.predicted, observed=observed.value, rows=each.rows, low=observed.low, high=observed.high)
        calibration.append(made)
    return Verdict(tuple(contenders), tuple(calibration))


@dataclass(frozen=True, slots=True)
class _Bin:
    predicted: float
    rows: int
    observed: Statistic


def _bins(y: Answers, p: Floats) -> list[_Bin]:
    """Those that hold rows; `observed` is the share of their rows that turned out so, under weights."""
    probability, right = sureness(y, p)
    place = bins_of(probability)
    found = []
    for index in np.unique(place):
        here = np.flatnonzero(place == index)
        found.append(_Bin(float(probability[here].mean()), len(here), partial(_share, here, right[here])))
    return found


def _share(here: Answers, right: Floats, w: Floats) -> float:
    weight = w[here].sum()
    return float(w[here] @ right / weight) if weight else float("nan")
