"""Applies learned speeds: the factors by which predicted seconds are multiplied, and the bonus for exploring
a pool.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoestring.core.types import Need, Pool
from shoestring.pricing.learned.calibration import Z95, LearnedSpeed
from shoestring.pricing.learned.learning import MAX_LOG_VARIANCE, PRIOR_LOG_SD
from shoestring.pricing.throughput import hardware_of

Floats = npt.NDArray[np.float64]

_UNKNOWN = (0.0, PRIOR_LOG_SD, Z95 * PRIOR_LOG_SD)
"""log mean, log sd and log P95 of a stage without receipts."""


@dataclass(frozen=True, slots=True)
class RuntimeFactor:
    """Factors from predicted seconds to the mean and the P95 of true seconds."""

    mean: float
    p95: float


def runtime_factor(need: Need, pool: Pool, learned: Iterable[LearnedSpeed]) -> RuntimeFactor:
    """Return the factor of a stage on one pool. A stage without receipts has the factors of the prior."""
    mean, p95 = runtime_factors(need, [pool], learned)
    return RuntimeFactor(mean=float(mean[0]), p95=float(p95[0]))


def runtime_factors(
    need: Need, pools: Sequence[Pool], learned: Iterable[LearnedSpeed]
) -> tuple[Floats, Floats]:
    """Return the mean and the P95 factors of a stage on pools, shape (pools,). No P95 is below its mean."""
    found = _lookup(need, pools, learned)
    rows = [(each.log_mean, each.log_sd, _log_p95(each)) if each else _UNKNOWN for each in found]
    logs = np.array(rows).reshape(-1, 3)
    mean = np.exp(logs[:, 0] + np.minimum(logs[:, 1] ** 2, MAX_LOG_VARIANCE) / 2)
    return mean, np.maximum(mean, np.exp(logs[:, 2]))


def exploration_bonus(
    need: Need, pools: Sequence[Pool], learned: Iterable[LearnedSpeed], sd: float
) -> Floats:
    """Return the share of the expected cost that exploring each pool is worth when offers are ranked, shape
    (pools,).

    A pool whose speed is unknown is scored `sd` standard deviations better, so it is chosen as long as it may
    be better by that much (optimism in the face of uncertainty: Lai & Robbins 1985). The bonus does not
    change what is reserved. It is 0 if the stage never ran: then no pool's speed is known better than
    another's.
    """
    found = _lookup(need, pools, learned)
    return np.array([1.0 - math.exp(-sd * each.unknown_log_sd) if each else 0.0 for each in found])


def _lookup(need: Need, pools: Sequence[Pool], learned: Iterable[LearnedSpeed]) -> list[LearnedSpeed | None]:
    """Return for each pool the speed learned on it, else on its hardware, else None."""
    of_stage = [each for each in learned if each.stage == need.stage]
    if not of_stage:
        return [None] * len(pools)
    by_pool = {each.pool: each for each in of_stage if each.pool is not None}
    by_hardware = {each.hardware: each for each in of_stage if each.pool is None}
    return [
        by_pool.get(pool.name) or (by_hardware.get(hardware_of(need, pool).name) if by_hardware else None)
        for pool in pools
    ]


def _log_p95(learned: LearnedSpeed) -> float:
    return learned.log_mean + Z95 * learned.log_sd if learned.log_p95 is None else learned.log_p95
