"""What a policy on trial would have cost, from what was done under it and under the one in force.

Every logged choice has the probability p with which it was made: 1 where both policies choose the same, else that of the policy that the
run was given. With y what a choice cost and m(c) what it was expected to, times how wrong expectations were on the whole:

    inverse propensity  V = mean of [c = chosen] / p x y                          (Horvitz and Thompson 1952)
    doubly robust       V = mean of m(c) + [c = chosen] / p x (y - m(chosen))     (Dudik, Langford and Li 2011, arXiv 1103.4601, eq. 2)

The second is right on average when either p or m is, and as p is known, always; m only makes it narrower. Where the candidate's choice
differs and no run could be given it (a shadow), m alone speaks, and the count of such choices is told.

A stage that takes as many samples as its money buys is compared at the samples that the policy in force expected. Runs are drawn
again with replacement for the interval (bootstrap, percentiles), since the choices within one are made alike.
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
    """One choice that was obeyed, what the other policy would have chosen, and what it cost. Dollars.

    `matches_candidate`: the candidate's choice is what was done, whoever was obeyed; `matches_live` likewise. `candidate_probability`: how likely the
    run was to obey the candidate.
    """

    run_id: str
    matches_live: bool
    matches_candidate: bool
    candidate_probability: float
    live_est_usd: float
    candidate_est_usd: float
    spent_usd: float

    def probability(self, candidate: bool) -> float:
        """How likely one of the two choices was to be made."""
        if self.matches_live and self.matches_candidate:
            return 1.0
        return self.candidate_probability if candidate else 1.0 - self.candidate_probability


class CostEstimate(Record):
    """Dollars a run. The interval holds 95%; None: too few runs for one."""

    usd_per_run: float
    low_usd: float | None = None
    high_usd: float | None = None


class PolicyComparison(Record):
    """`more` is the candidate less the policy in force, doubly robust. `unseen`: choices of the candidate that nobody could have made."""

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
    """Both policies' costs a run, with intervals; None where nothing was logged."""
    if not logged:
        return None
    spent = sum(each.spent_usd for each in logged)
    expected = sum(each.live_est_usd if each.matches_live else each.candidate_est_usd for each in logged)
    bias = spent / expected if expected > 0 else 1.0
    names = {run_id: number for number, run_id in enumerate(dict.fromkeys(each.run_id for each in logged))}
    run = np.array([names[each.run_id] for each in logged])

    def by_run(values: Sequence[float]) -> Floats:
        summed: Floats = np.bincount(run, weights=np.array(values), minlength=len(names)).astype(np.float64)
        return summed

    live = by_run([doubly_robust(each, False, bias) for each in logged])
    candidate = by_run([doubly_robust(each, True, bias) for each in logged])
    unseen = sum(each.probability(True) == 0.0 for each in logged)
    weighed = (
        None
        if unseen
        else by_run([each.matches_candidate / each.probability(True) * each.spent_usd for each in logged])
    )
    draws = (
        np.random.default_rng(seed).integers(0, len(names), (BOOTSTRAP_DRAWS, len(names)))
        if len(names) >= MIN_RUNS_FOR_INTERVAL
        else None
    )
    return PolicyComparison(
        runs=len(names),
        choices=len(logged),
        different_choices=sum(not (each.matches_live and each.matches_candidate) for each in logged),
        unobservable=unseen,
        candidate_runs=len(
            {each.run_id for each in logged if each.matches_candidate and not each.matches_live}
        ),
        live=_estimate(live, draws),
        candidate=_estimate(candidate, draws),
        candidate_by_propensity=None if weighed is None else _estimate(weighed, draws),
        difference=_estimate(candidate - live, draws),
    )


def doubly_robust(each: LoggedChoice, candidate: bool, bias: float) -> float:
    """What a policy's choice costs, as at the module's head."""
    model = bias * (each.candidate_est_usd if candidate else each.live_est_usd)
    took = each.matches_candidate if candidate else each.matches_live
    return model + (each.spent_usd - model) / each.probability(candidate) if took else model


def _estimate(by_run: Floats, draws: npt.NDArray[np.int64] | None) -> CostEstimate:
    mean = round(float(by_run.mean()), 6)
    if draws is None:
        return CostEstimate(usd_per_run=mean)
    low, high = np.percentile(by_run[draws].mean(axis=1), [2.5, 97.5])
    return CostEstimate(usd_per_run=mean, low_usd=round(float(low), 6), high_usd=round(float(high), 6))
