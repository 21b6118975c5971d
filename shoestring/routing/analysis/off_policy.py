"""Estimate what a candidate policy would have cost, from runs under it and under the live policy.

Each logged choice has the probability p with which it was made: 1 if both policies choose the same, else
the probability that the run was assigned its policy. Let y be the actual cost of a choice, and m(c) its
estimate times the overall ratio of actual to estimated cost:

    inverse propensity  V = mean of [c = chosen] / p x y
    doubly robust       V = mean of m(c) + [c = chosen] / p x (y - m(chosen))

Sources: Horvitz and Thompson 1952; Dudik, Langford and Li 2011 (arXiv 1103.4601, eq. 2).

The doubly robust estimate is unbiased if either p or m is correct. Here p is known, so it is always
unbiased, and m only narrows the interval. If the candidate's choice differs and no run could use it (share
0), the estimate rests on m alone; such choices are counted as `unobservable`.

An elastic stage is compared at the number of samples that the live policy estimated. The interval comes
from a percentile bootstrap over runs, because the choices within one run are correlated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoestring.core.record import Record

BOOTSTRAP_DRAWS, MIN_RUNS_FOR_INTERVAL = 2000, 5
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoggedChoice:
    """One choice that was carried out, the choice of the other policy, and the costs of both in dollars.

    `matches_candidate` is True if the candidate would make the choice that was carried out; `matches_live`
    likewise for the live policy. `candidate_probability` is the probability that the run was assigned the
    candidate.
    """

    run_id: str
    matches_live: bool
    matches_candidate: bool
    candidate_probability: float
    live_est_usd: float
    candidate_est_usd: float
    spent_usd: float

    def probability(self, candidate: bool) -> float:
        """Return the probability that this policy's choice was carried out."""
        if self.matches_live and self.matches_candidate:
            return 1.0
        return self.candidate_probability if candidate else 1.0 - self.candidate_probability


class CostEstimate(Record):
    """Dollars per run. `low_usd` and `high_usd` bound the 95% interval; both are None with too few runs."""

    usd_per_run: float
    low_usd: float | None = None
    high_usd: float | None = None


class PolicyComparison(Record):
    """`more` is the candidate less the policy in force, doubly robust.

    `unobservable`: choices of the candidate that were never possible.
    """

    runs: int
    choices: int
    different_choices: int
    unobservable: int
    candidate_runs: int
    live: CostEstimate
    candidate: CostEstimate
    candidate_by_propensity: CostEstimate | None
    difference: CostEstimate


def compare_policies(logged: Sequence[LoggedChoice], seed: int = 0) -> PolicyComparison | None:
    """Return the cost per run of both policies with intervals; None if no choice was logged."""
    if not logged:
        return None
    spent = sum(each.spent_usd for each in logged)
    expected = sum(each.live_est_usd if each.matches_live else each.candidate_est_usd for each in logged)
    bias = spent / expected if expected > 0 else 1.0
    run_ids = dict.fromkeys(each.run_id for each in logged)
    run_numbers = {run_id: number for number, run_id in enumerate(run_ids)}
    run = np.array([run_numbers[each.run_id] for each in logged])

    def by_run(values: Sequence[float]) -> Floats:
        summed: Floats = np.bincount(run, np.array(values), len(run_numbers)).astype(np.float64)
        return summed

    live = by_run([doubly_robust(each, False, bias) for each in logged])
    candidate = by_run([doubly_robust(each, True, bias) for each in logged])
    unobservable = sum(each.probability(True) == 0.0 for each in logged)
    weighted = (
        None
        if unobservable
        else by_run([each.matches_candidate / each.probability(True) * each.spent_usd for each in logged])
    )
    draws = _bootstrap_draws(len(run_numbers), seed)
    return PolicyComparison(
        runs=len(run_numbers),
        choices=len(logged),
        different_choices=sum(not (each.matches_live and each.matches_candidate) for each in logged),
        unobservable=unobservable,
        candidate_runs=len(
            {each.run_id for each in logged if each.matches_candidate and not each.matches_live}
        ),
        live=_estimate(live, draws),
        candidate=_estimate(candidate, draws),
        candidate_by_propensity=None if weighted is None else _estimate(weighted, draws),
        difference=_estimate(candidate - live, draws),
    )


def _bootstrap_draws(runs: int, seed: int) -> npt.NDArray[np.int64] | None:
    """Return resampled run numbers, shape [BOOTSTRAP_DRAWS, runs]; None with too few runs for an interval."""
    if runs < MIN_RUNS_FOR_INTERVAL:
        return None
    return np.random.default_rng(seed).integers(0, runs, (BOOTSTRAP_DRAWS, runs))


def doubly_robust(each: LoggedChoice, candidate: bool, bias: float) -> float:
    """Return the doubly robust estimate of one choice of a policy, in dollars (module docstring, second
    formula).
    """
    model = bias * (each.candidate_est_usd if candidate else each.live_est_usd)
    matches = each.matches_candidate if candidate else each.matches_live
    return model + (each.spent_usd - model) / each.probability(candidate) if matches else model


def _estimate(by_run: Floats, draws: npt.NDArray[np.int64] | None) -> CostEstimate:
    mean = round(float(by_run.mean()), 6)
    if draws is None:
        return CostEstimate(usd_per_run=mean)
    low, high = np.percentile(by_run[draws].mean(axis=1), [2.5, 97.5])
    return CostEstimate(usd_per_run=mean, low_usd=round(float(low), 6), high_usd=round(float(high), 6))
