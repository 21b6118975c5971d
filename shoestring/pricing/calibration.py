"""How much to set aside so that 19 runs in 20 need no more: a conformal quantile of what earlier predictions were off by.

Each earlier run was off by z standard deviations from what all runs before it foretold. If runs are exchangeable, the next one's z is
not above the ceil(0.95 (n + 1))-th smallest of n in 95% of cases, whatever the distribution (Vovk 2005; Lei 2018, "Distribution-free
predictive inference"). Newer runs weigh more, so that drift shifts the coverage by little (Barber 2023, "Conformal prediction beyond
exchangeability"), and those of the same work more than others'. While there are few, the normal's own quantiles stand beside them, as
PRIOR_RUNS runs more.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

COVERAGE = 0.95
Z95 = 1.6448536269514722
"""The standard normal's 95th percentile."""

PRIOR_RUNS = 6.0
HALF_LIFE_RUNS = 150.0
OTHER_WORK_WEIGHT = 0.2

CONSTANTS = f"level {COVERAGE}; prior worth {PRIOR_RUNS} runs; half life {HALF_LIFE_RUNS} runs; other works {OTHER_WORK_WEIGHT}; one run wide"

_POINTS = 199
_NORMAL = np.array([NormalDist().inv_cdf((point + 0.5) / _POINTS) for point in range(_POINTS)])


def calibrated_p95(off: Floats, own: npt.NDArray[np.bool_]) -> float:
    """How many standard deviations above its prediction the next run's P95 is.

    `off`: what each run was off by, in the order of time; `own`: whether it did the work that is asked about. The mean of the quantiles
    over one run's width below that rank: its coverage is 95% in the mean, and not that of the next whole rank. It never falls as a
    run is off by more, since no quantile does.
    """
    if not len(off):
        return Z95
    age = np.arange(len(off))[::-1]
    weights = np.where(own, 1.0, OTHER_WORK_WEIGHT) * 0.5 ** (age / HALF_LIFE_RUNS)
    values = np.concatenate([off, _NORMAL])
    runs = weights.sum()
    mass = np.concatenate([weights, np.full(_POINTS, PRIOR_RUNS / _POINTS)])
    # The run to come is one more, of unknown place: that counts as far as the runs do, beside the prior.
    reached = COVERAGE * (PRIOR_RUNS + runs + runs / (PRIOR_RUNS + runs))
    order = np.argsort(values, kind="stable")
    above = np.cumsum(mass[order])
    share = np.clip(np.minimum(above, reached) - np.maximum(above - mass[order], reached - 1.0), 0.0, None)
    return float(share @ values[order] / share.sum())
