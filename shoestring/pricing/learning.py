"""What receipts teach about the prior of pricing/throughput, also of pools and GPU types that were never used.

Of each attempt at a stage that teaches, in the order in which they ended, y = log(true / prior seconds) is taken to be

    y = stage + work + hardware + work on hardware + work on pool + (slope + slope of the work) . x + drift of the work + noise

all of them normal around 0: a Gaussian process whose covariance is a sum of "the same work", "the same hardware", ... (Rasmussen &
Williams 2006, algorithm 2.1; the same thing is called shrinkage, partial pooling, or a mixed model's BLUP). So a pool that was never
seen starts from its hardware, hardware from the work on others of its kind, and a work from the others of the stage. x is the
hardware's log speed, bandwidth and count, from the middle of the hardware of its kind that was seen: a work that gains less from faster
arithmetic than the prior says is expected to gain less on the next GPU, too. Without that middle, what all GPUs that were seen are off
by would be taken for a slope, and be carried on to the next: an H100 was foretold 40% wrong from A100s. For the same reason a work's
own level is left free (its variance is large): how far a need is off says nothing of GPUs.
Drift is an Ornstein-Uhlenbeck process over runs: what is long ago counts less.

The noise of a work is what its successive runs in one place differ by; how far priors are off is the scale of all the rest, of SCALES
the one under which what was seen is likeliest. With L L' = the covariance in the order of time, L^-1 y is what each run was off by
from all runs before it, in standard deviations: pricing/calibration makes the P95 of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoestring.core.receipt import Receipt
from shoestring.core.types import Hardware, LearnedSpeed, Need, Pool
from shoestring.pricing.calibration import Z95, calibrated_p95
from shoestring.pricing.throughput import hardware_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PRIOR_LOG_SD = 0.5
"""Before the first receipt of a stage: of the log of true over prior seconds."""

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
"""Runs over which drift forgets."""

NOISE_LOG_SD = 0.2
NOISE_RUNS = 4.0
"""What runs in one place differ by, and the runs that this assumption is worth."""

EXPLORATION_SD_FIXED_WORK = 1.0
"""What nobody knows of a pool's speed is taken for as good as it may well be, by so many standard deviations, where offers of fixed work
are compared: a try takes a whole run."""

SCALES = (1.0, 4.0, 16.0, 64.0)
"""Times the variances of all but the noise: 64 is for priors that are off tenfold and more."""

MAX_LOG_VARIANCE = 1.0
"""Of the log, in the mean: beyond it a log-normal's mean is all tail, and of a tail that was never seen nobody knows anything."""

REFERENCE_HARDWARE = {"cores": (1.0, 1.0), "gpu": (1e5, 1e3)}
"""The hardware, in Gop/s and GB/s, whose x is 0 while none of its kind was seen."""


CONSTANTS = (
    f"variances {VARIANCES}; slopes {SLOPE_VARIANCES}; drift over {DRIFT_RUNS} runs; "
    f"noise {NOISE_LOG_SD} worth {NOISE_RUNS} runs; scales {SCALES}; x of one {REFERENCE_HARDWARE}; look {EXPLORATION_SD_FIXED_WORK}; "
    f"variance in the mean at most {MAX_LOG_VARIANCE}"
)


@dataclass(frozen=True, slots=True)
class RuntimeFactor:
    """What to multiply prior seconds with."""

    mean: float
    p95: float


@dataclass(frozen=True, slots=True)
class RunFeatures:
    """Runs, or where one might be: numbers that say what is the same; x is (runs, 3); `turn` counts the runs of a work."""

    kind: Ints
    work: Ints
    hardware: Ints
    pool: Ints
    x: Floats
    turn: Floats


def learn(receipts: Iterable[Receipt], needs: Sequence[Need], pools: Sequence[Pool]) -> tuple[LearnedSpeed, ...]:
    """What attempts say about these stages on these pools: one for each hardware, and for each pool that was used.

    The order of the receipts does not matter. A stage that nothing is known of is not there.
    """
    useful = [each for each in receipts if each.teaches]
    useful.sort(key=lambda each: (each.finished_at, each.run_id, each.attempt))
    found: list[LearnedSpeed] = []
    for need in needs:
        if of_stage := [each for each in useful if each.stage == need.stage]:
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
    seen, asked = _points(
        [each.work or need.work for each in receipts] + [need.work] * len(wanted),
        ran_on + [targets[key] for key in wanted],
        [each.pool for each in receipts] + [pool or "" for pool, _ in wanted],
        len(receipts),
    )
    logs = np.log(np.array([each.seconds / each.prior_s for each in receipts]))
    mean, sd, unknown, off = predict(logs, seen, asked)
    own = seen.work == asked.work[0] if len(wanted) else np.zeros(0, dtype=bool)
    level = calibrated_p95(off, own)
    return [
        LearnedSpeed(
            stage=need.stage,
            pool=pool,
            hardware=hardware,
            runs=int(
                np.sum(own & (seen.pool == asked.pool[row] if pool else seen.hardware == asked.hardware[row]))
            ),
            log_mean=float(mean[row]),
            log_sd=float(sd[row]),
            log_p95=float(mean[row] + level * sd[row]),
            unknown_log_sd=float(unknown[row]),
        )
        for row, (pool, hardware) in enumerate(wanted)
    ]


def _unknown_hardware(pool: str) -> Hardware:
    """Of a pool that is gone and never said what it was."""
    return Hardware(kind="cores", type=f"of {pool}", count=1, gflop_s=1.0)


def _points(
    works: Sequence[str], ran_on: Sequence[Hardware], pools: Sequence[str], runs: int
) -> tuple[RunFeatures, RunFeatures]:
    """The runs, and after them what is asked about: its turn is the next of its work."""
    kind, work, hardware, pool = (
        _numbered(names)
        for names in ([each.kind for each in ran_on], works, [each.type for each in ran_on], pools)
    )
    turn = np.array(
        [np.sum(work[: min(row, runs)] == work[row]) for row in range(len(work))], dtype=np.float64
    )
    x = _centred(np.array([_x(each) for each in ran_on]).reshape(-1, 3), kind, hardware, runs)
    seen, asked = slice(runs), slice(runs, None)
    return (
        RunFeatures(kind[seen], work[seen], hardware[seen], pool[seen], x[seen], turn[seen]),
        RunFeatures(kind[asked], work[asked], hardware[asked], pool[asked], x[asked], turn[asked]),
    )


def _centred(x: Floats, kind: Ints, hardware: Ints, runs: int) -> Floats:
    """x from the middle of the hardware of its kind that was seen: what all of it is off by is then no slope, and is not carried on to
    hardware that is faster."""
    found = x.copy()
    for each in np.unique(kind):
        seen = [
            int(np.flatnonzero(hardware[:runs] == name)[0])
            for name in np.unique(hardware[:runs][kind[:runs] == each])
        ]
        if seen:
            found[kind == each] -= x[seen].mean(axis=0)
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


def predict(logs: Floats, seen: RunFeatures, asked: RunFeatures) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean and standard deviation of y where it is asked for, with its noise and without; what each run was off by from those before."""
    noise = _noise(logs, seen)
    plain = _covariance(seen, seen)
    best, scale = -math.inf, 1.0
    factor: npt.NDArray[Any] = plain
    off: npt.NDArray[Any] = logs
    for each in SCALES:
        lower: npt.NDArray[Any] = np.linalg.cholesky(each * plain + np.diag(noise))
        innovations: npt.NDArray[Any] = np.linalg.solve(lower, logs)
        likelihood = -0.5 * float(innovations @ innovations) - float(np.log(np.diag(lower)).sum())
        if likelihood > best:
            best, factor, off, scale = likelihood, lower, innovations, each
    across = np.linalg.solve(factor, scale * _covariance(seen, asked))
    mean = across.T @ off
    unknown = np.maximum(scale * np.diag(_covariance(asked, asked)) - np.sum(across**2, axis=0), 0.0)
    return mean, np.sqrt(unknown + _noise_of(noise, seen, asked)), np.sqrt(unknown), off


def _covariance(a: RunFeatures, b: RunFeatures) -> Floats:
    def same(name: str) -> Floats:
        alike: Floats = (getattr(a, name)[:, None] == getattr(b, name)[None, :]).astype(np.float64)
        return alike

    work, hardware, slopes = same("work"), same("hardware"), a.x @ b.x.T
    drift = np.exp(-np.abs(a.turn[:, None] - b.turn[None, :]) / DRIFT_RUNS)
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


def _noise(logs: Floats, seen: RunFeatures) -> Floats:
    """The noise's variance for each run, by its work: half the mean square of the steps between runs in one place (von Neumann 1941), which
    a slow drift leaves alone, and the prior's."""
    found = np.empty(len(logs))
    for work in np.unique(seen.work):
        of_work = np.flatnonzero(seen.work == work)
        order = of_work[np.lexsort((of_work, seen.hardware[of_work], seen.pool[of_work]))]
        alike = (np.diff(seen.pool[order]) == 0) & (np.diff(seen.hardware[order]) == 0)
        squares = np.diff(logs[order])[alike] ** 2 / 2
        found[of_work] = (NOISE_RUNS * NOISE_LOG_SD**2 + squares.sum()) / (NOISE_RUNS + len(squares))
    return found


def _noise_of(noise: Floats, seen: RunFeatures, asked: RunFeatures) -> Floats:
    """Of a work that was never run, the mean over the works that were."""
    works, first = np.unique(seen.work, return_index=True)
    of_work = dict(zip(works.tolist(), noise[first].tolist(), strict=True))
    other = float(np.mean(noise[first]))
    return np.array([of_work.get(work, other) for work in asked.work.tolist()])


def runtime_factor(need: Need, pool: Pool, learned: Iterable[LearnedSpeed]) -> RuntimeFactor:
    """Mean and 95th percentile of true over prior seconds; of a stage that nothing is known of, the prior's own."""
    mean, p95 = runtime_factors(need, [pool], learned)
    return RuntimeFactor(mean=float(mean[0]), p95=float(p95[0]))


def runtime_factors(need: Need, pools: Sequence[Pool], learned: Iterable[LearnedSpeed]) -> tuple[Floats, Floats]:
    """The same of many pools, as arrays. The P95 is never below the mean."""
    found = _lookup(need, pools, learned)
    logs = np.array(
        [(each.log_mean, each.log_sd, _log_p95(each)) if each else _UNKNOWN for each in found]
    ).reshape(-1, 3)
    mean = np.exp(logs[:, 0] + np.minimum(logs[:, 1] ** 2, MAX_LOG_VARIANCE) / 2)
    return mean, np.maximum(mean, np.exp(logs[:, 2]))


def exploration_bonus(need: Need, pools: Sequence[Pool], learned: Iterable[LearnedSpeed], sd: float) -> Floats:
    """Share of the expected cost that finding out about each pool is worth, where offers are compared: pools that nothing is known of are
    chosen while they may well be better by so many standard deviations, and no longer (optimism in the face of uncertainty: Lai & Robbins
    1985). What is set aside knows nothing of it. 0 where the stage never ran: then no pool is known better than another."""
    return np.array(
        [1.0 - math.exp(-sd * each.unknown_log_sd) if each else 0.0 for each in _lookup(need, pools, learned)]
    )


def _lookup(need: Need, pools: Sequence[Pool], learned: Iterable[LearnedSpeed]) -> list[LearnedSpeed | None]:
    of_stage = [each for each in learned if each.stage == need.stage]
    if not of_stage:
        return [None] * len(pools)
    by_pool = {each.pool: each for each in of_stage if each.pool is not None}
    by_hardware = {each.hardware: each for each in of_stage if each.pool is None}
    return [
        by_pool.get(pool.name) or (by_hardware.get(hardware_of(need, pool).name) if by_hardware else None)
        for pool in pools
    ]


_UNKNOWN = (0.0, PRIOR_LOG_SD, Z95 * PRIOR_LOG_SD)


def _log_p95(learned: LearnedSpeed) -> float:
    return learned.log_mean + Z95 * learned.log_sd if learned.log_p95 is None else learned.log_p95
