"""Learns from receipts how far the predictions of `throughput.py` are off, also for pools and GPU types never
used.

For each useful attempt at a stage, in the order in which they ended, y = log(true seconds / predicted
seconds) is modelled as

    y = stage + work + hardware + work on hardware + work on pool
        + (slope + slope of the work) . x + drift of the work + noise

All terms are normal around 0: a Gaussian process whose covariance is a sum of "same work", "same hardware",
and so on (Rasmussen & Williams 2006, algorithm 2.1; also known as shrinkage, partial pooling, or the BLUP of
a mixed model). So an unknown pool starts from its hardware, unknown hardware from the work on other hardware
of its kind, and an unknown work from the others of the stage.

x is the hardware's log speed, log bandwidth and log count, relative to the mean of the observed hardware of
its kind. A work that gains less from faster arithmetic than predicted is expected to gain less on the next
GPU, too. Without the centring, an error common to all observed GPUs would be taken for a slope and
extrapolated: an H100 was predicted 40% wrong from A100s. For the same reason a work's own level has a large
variance: how far off a need is does not depend on the GPU.

Drift is an Ornstein-Uhlenbeck process over runs: old runs count less.

The noise of a work is estimated from the differences between its successive runs on the same pool. The scale
of all other terms is the most likely one of SCALES. With L L' the covariance in order of time, L^-1 y is each
run's error against the prediction from all runs before it, in standard deviations; `calibration.py` computes
the P95 from these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoestring.core.attempt_id import declared_stage
from shoestring.core.receipt import Hardware, Receipt
from shoestring.core.types import Need, Pool
from shoestring.pricing.learned.calibration import LearnedSpeed, calibrated_p95
from shoestring.pricing.throughput import hardware_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PRIOR_LOG_SD = 0.5
"""Standard deviation of y before the first receipt of a stage."""

VARIANCES = {
    "stage": 0.05,
    "work": 0.3,
    "hardware": 0.02,
    "work_hardware": 0.02,
    "work_pool": 0.01,
    "drift": 0.04,
}
SLOPE_VARIANCES = {"stage": 0.2, "work": 0.1}
DRIFT_RUNS = 30.0
"""Time constant of the drift, in runs."""

NOISE_LOG_SD = 0.2
NOISE_RUNS = 4.0
"""Prior standard deviation between runs on the same pool, and its weight in runs."""

EXPLORATION_SD_FIXED_WORK = 1.0
"""When ranking offers of fixed work, a pool is scored this many standard deviations of its unknown speed
better. Each exploration takes a whole run.
"""

SCALES = (1.0, 4.0, 16.0, 64.0)
"""Candidate factors for all variances but the noise: 64 is for predictions that are off by a factor of 10 or
more.
"""

MAX_LOG_VARIANCE = 1.0
"""Variance of y that counts in the mean, at most. Above it the mean of a log-normal depends on a tail that
was never observed.
"""

REFERENCE_HARDWARE = {"cores": (1.0, 1.0), "gpu": (1e5, 1e3)}
"""The hardware (Gop/s, GB/s) with x = 0 while no hardware of its kind was observed."""

CONSTANTS = (
    f"variances {VARIANCES}; slopes {SLOPE_VARIANCES}; drift over {DRIFT_RUNS} runs; "
    f"noise {NOISE_LOG_SD} worth {NOISE_RUNS} runs; scales {SCALES}; x of one {REFERENCE_HARDWARE}; "
    f"exploration {EXPLORATION_SD_FIXED_WORK}; variance in the mean at most {MAX_LOG_VARIANCE}"
)


@dataclass(frozen=True, slots=True)
class RunFeatures:
    """The features of runs, observed or to predict. Arrays of shape (runs,), x of shape (runs, 3).

    The integers number equal kinds, works, hardware and pools. `run_index` counts the runs of a work.
    """

    kind: Ints
    work: Ints
    hardware: Ints
    pool: Ints
    x: Floats
    run_index: Floats

    def rows(self, which: slice) -> RunFeatures:
        columns = (self.kind[which], self.work[which], self.hardware[which], self.pool[which])
        return RunFeatures(*columns, self.x[which], self.run_index[which])


def learn(
    receipts: Iterable[Receipt], needs: Sequence[Need], pools: Sequence[Pool]
) -> tuple[LearnedSpeed, ...]:
    """Return the learned speed of each stage: one for each hardware, and one for each pool that was used.

    The order of the receipts does not matter. A stage without useful receipts has none. The items of a loop
    are one stage.
    """
    useful = [each for each in receipts if each.is_learnable]
    useful.sort(key=lambda each: (each.finished_at, each.run_id, each.attempt))
    found: list[LearnedSpeed] = []
    for need in needs:
        name = declared_stage(need.stage)
        if of_stage := [each for each in useful if declared_stage(each.stage) == name]:
            found += _learn_stage(need, pools, of_stage)
    return tuple(found)


def _learn_stage(need: Need, pools: Sequence[Pool], receipts: Sequence[Receipt]) -> list[LearnedSpeed]:
    known = {pool.name: hardware_of(need, pool) for pool in pools}
    ran_on = [each.hardware or known.get(each.pool) or _unknown_hardware(each.pool) for each in receipts]
    used = {each.pool for each in receipts}
    targets: dict[tuple[str | None, str], Hardware] = {}
    for name, hardware in known.items():
        targets[(name if name in used else None, hardware.name)] = hardware
    wanted = sorted(targets, key=lambda target: (target[0] or "", target[1]))
    observed, predicted = _features(
        [each.work or need.work for each in receipts] + [need.work] * len(wanted),
        ran_on + [targets[key] for key in wanted],
        [each.pool for each in receipts] + [pool or "" for pool, _ in wanted],
        len(receipts),
    )
    logs = np.log(np.array([each.seconds / each.prior_s for each in receipts]))
    mean, sd, unknown, errors = predict(logs, observed, predicted)
    same_work = observed.work == predicted.work[0] if wanted else np.zeros(0, dtype=bool)
    level = calibrated_p95(errors, same_work)

    def runs(row: int, by_pool: bool) -> int:
        name = "pool" if by_pool else "hardware"
        return int(np.sum(same_work & (getattr(observed, name) == getattr(predicted, name)[row])))

    return [
        LearnedSpeed(
            stage=need.stage,
            pool=pool,
            hardware=hardware,
            runs=runs(row, bool(pool)),
            log_mean=float(mean[row]),
            log_sd=float(sd[row]),
            log_p95=float(mean[row] + level * sd[row]),
            unknown_log_sd=float(unknown[row]),
        )
        for row, (pool, hardware) in enumerate(wanted)
    ]


def _unknown_hardware(pool: str) -> Hardware:
    """Return a placeholder for the hardware of a pool that no longer exists and never declared it."""
    return Hardware(kind="cores", type=f"of {pool}", count=1, gflop_s=1.0)


def _features(
    works: Sequence[str], ran_on: Sequence[Hardware], pools: Sequence[str], runs: int
) -> tuple[RunFeatures, RunFeatures]:
    """Return the features of the first `runs` rows, and of the rows to predict, each as the next run of its
    work.
    """
    kinds, types = [each.kind for each in ran_on], [each.type for each in ran_on]
    kind, work, hardware, pool = (_numbered(names) for names in (kinds, works, types, pools))
    run_index = np.array(
        [np.sum(work[: min(row, runs)] == work[row]) for row in range(len(work))], dtype=np.float64
    )
    x = _centred(np.array([_x(each) for each in ran_on]).reshape(-1, 3), kind, hardware, runs)
    features = RunFeatures(kind, work, hardware, pool, x, run_index)
    return features.rows(slice(runs)), features.rows(slice(runs, None))


def _centred(x: Floats, kind: Ints, hardware: Ints, runs: int) -> Floats:
    """Return x relative to the mean of the observed hardware of its kind.

    So an error common to all of that hardware is not taken for a slope, and not extrapolated to faster
    hardware.
    """
    found = x.copy()
    for each in np.unique(kind):
        observed = [
            int(np.flatnonzero(hardware[:runs] == name)[0])
            for name in np.unique(hardware[:runs][kind[:runs] == each])
        ]
        if observed:
            found[kind == each] -= x[observed].mean(axis=0)
    return found


def _numbered(names: Sequence[str]) -> Ints:
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


def _x(hardware: Hardware) -> tuple[float, float, float]:
    gflop_s, gb_s = REFERENCE_HARDWARE[hardware.kind]
    return (
        math.log(hardware.gflop_s / gflop_s),
        math.log(hardware.gb_s / gb_s) if hardware.gb_s else 0.0,
        math.log(hardware.count),
    )


def predict(
    logs: Floats, observed: RunFeatures, predicted: RunFeatures
) -> tuple[Floats, Floats, Floats, Floats]:
    """Predict y (Rasmussen & Williams 2006, algorithm 2.1), under the most likely scale.

    Returns:
        The mean of y, its standard deviation with noise and without (each of shape (predicted,)), and each
        observed run's error against the prediction from the runs before it, in standard deviations (runs,).
    """
    noise = _noise(logs, observed)
    plain = _covariance(observed, observed)
    best, scale = -math.inf, 1.0
    factor: npt.NDArray[Any] = plain
    errors: npt.NDArray[Any] = logs
    for each in SCALES:
        lower: npt.NDArray[Any] = np.linalg.cholesky(each * plain + np.diag(noise))
        innovations: npt.NDArray[Any] = np.linalg.solve(lower, logs)
        likelihood = -0.5 * float(innovations @ innovations) - float(np.log(np.diag(lower)).sum())
        if likelihood > best:
            best, factor, errors, scale = likelihood, lower, innovations, each
    across = np.linalg.solve(factor, scale * _covariance(observed, predicted))
    mean = across.T @ errors
    variance = scale * np.diag(_covariance(predicted, predicted)) - np.sum(across**2, axis=0)
    unknown = np.maximum(variance, 0.0)
    return mean, np.sqrt(unknown + _noise_of(noise, observed, predicted)), np.sqrt(unknown), errors


def _covariance(a: RunFeatures, b: RunFeatures) -> Floats:
    """Return the covariance of y without noise, shape (runs of a, runs of b)."""

    def same(name: str) -> Floats:
        equal: Floats = (getattr(a, name)[:, None] == getattr(b, name)[None, :]).astype(np.float64)
        return equal

    work, hardware, slopes = same("work"), same("hardware"), a.x @ b.x.T
    drift = np.exp(-np.abs(a.run_index[:, None] - b.run_index[None, :]) / DRIFT_RUNS)
    covariance: Floats = same("kind") * (
        VARIANCES["stage"]
        + VARIANCES["work"] * work
        + VARIANCES["hardware"] * hardware
        + VARIANCES["work_hardware"] * work * hardware
        + VARIANCES["work_pool"] * work * same("pool")
        + (SLOPE_VARIANCES["stage"] + SLOPE_VARIANCES["work"] * work) * slopes
        + VARIANCES["drift"] * work * drift
    )
    return covariance


def _noise(logs: Floats, observed: RunFeatures) -> Floats:
    """Return the noise variance of each run's work, shape (runs,).

    It is half the mean square of the differences between successive runs on the same pool (von Neumann 1941),
    which a slow drift hardly changes, combined with the prior.
    """
    found = np.empty(len(logs))
    for work in np.unique(observed.work):
        of_work = np.flatnonzero(observed.work == work)
        order = of_work[np.lexsort((of_work, observed.hardware[of_work], observed.pool[of_work]))]
        same_place = (np.diff(observed.pool[order]) == 0) & (np.diff(observed.hardware[order]) == 0)
        squares = np.diff(logs[order])[same_place] ** 2 / 2
        found[of_work] = (NOISE_RUNS * NOISE_LOG_SD**2 + squares.sum()) / (NOISE_RUNS + len(squares))
    return found


def _noise_of(noise: Floats, observed: RunFeatures, predicted: RunFeatures) -> Floats:
    """Return the noise variance of each prediction's work. For a work that never ran, the mean of the other
    works.
    """
    works, first = np.unique(observed.work, return_index=True)
    of_work = dict(zip(works.tolist(), noise[first].tolist(), strict=True))
    other = float(np.mean(noise[first]))
    return np.array([of_work.get(work, other) for work in predicted.work.tolist()])
