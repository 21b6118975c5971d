"""Calibrate the P95, the amount that 19 of 20 runs do not exceed: a conformal quantile of the errors of
earlier predictions.

Each earlier run was off by z standard deviations from the prediction made from all runs before it. If runs
are exchangeable, the z of the next run is at most the ceil(0.95 (n + 1))-th smallest of n in 95% of cases,
whatever the distribution (Vovk 2005; Lei 2018, "Distribution-free predictive inference"). Newer runs weigh
more, so that drift shifts the coverage little (Barber 2023, "Conformal prediction beyond exchangeability"),
and runs of the same work weigh more than others. The quantiles of the normal distribution are added with the
weight of PRIOR_RUNS runs, for when there are few runs.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from pydantic import Field

from shoestring.core.record import Record

Floats = npt.NDArray[np.float64]

COVERAGE = 0.95
Z95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""

PRIOR_RUNS = 6.0
HALF_LIFE_RUNS = 150.0
OTHER_WORK_WEIGHT = 0.2

CONSTANTS = (
    f"level {COVERAGE}; prior worth {PRIOR_RUNS} runs; half life {HALF_LIFE_RUNS} runs; "
    f"other works {OTHER_WORK_WEIGHT}; one run wide"
)

_POINTS = 199
_NORMAL = np.array([NormalDist().inv_cdf((point + 0.5) / _POINTS) for point in range(_POINTS)])


class LearnedSpeed(Record):
    """The ratio of true to predicted seconds of a stage on a pool, learned from receipts, as a log-normal
    distribution.

    Its P95 is that of the prediction errors made so far.
    """

    stage: str
    pool: str | None = Field(
        None, description="null: every pool with this hardware that has no entry of its own"
    )
    hardware: str = Field("", description="name of the hardware")
    runs: int = Field(
        ge=0, description="runs of this work on this pool or hardware; 0: learned from similar ones only"
    )
    log_mean: float
    log_sd: float = Field(ge=0)
    log_p95: float | None = Field(None, description="logarithm of the P95; null: that of the log-normal")
    unknown_log_sd: float = Field(
        0.0, ge=0, description="the part of log_sd that further runs there would remove"
    )


def calibrated_p95(errors: Floats, same_work: npt.NDArray[np.bool_]) -> float:
    """Return how many standard deviations above its prediction the P95 of the next run is.

    `errors` (runs,): each run's error in standard deviations, in order of time. `same_work` (runs,): whether
    the run did the work of the prediction.

    The result is the mean of the quantiles over the width of one run below the conformal rank, so that the
    mean coverage is 95%, and not the coverage of the next whole rank. It never falls when an error grows,
    because no quantile does.
    """
    if not len(errors):
        return Z95
    age = np.arange(len(errors))[::-1]
    weights = np.where(same_work, 1.0, OTHER_WORK_WEIGHT) * 0.5 ** (age / HALF_LIFE_RUNS)
    values = np.concatenate([errors, _NORMAL])
    runs = weights.sum()
    mass = np.concatenate([weights, np.full(_POINTS, PRIOR_RUNS / _POINTS)])
    # The next run adds one run of unknown rank, in proportion to the weight of the runs against the prior's.
    reached = COVERAGE * (PRIOR_RUNS + runs + runs / (PRIOR_RUNS + runs))
    order = np.argsort(values, kind="stable")
    above = np.cumsum(mass[order])
    share = np.clip(np.minimum(above, reached) - np.maximum(above - mass[order], reached - 1.0), 0.0, None)
    return float(share @ values[order] / share.sum())
