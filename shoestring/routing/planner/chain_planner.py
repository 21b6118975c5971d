"""The plan search, and its exact look-ahead over a chain of stages.

In a chain, neighbouring stages are coupled only by the format: a stage reads what the last writer before it
wrote. So, from the last stage backwards and for each format that a stage may find, the completions of the
chain are combined and the dominated ones are dropped: a completion that another one beats or equals in
expected cost, P95 dollars and P95 seconds can be replaced by it in any plan. Few are left, and no optimum is
lost.

The expected cost is dollars and, where the policy gives an hour of delay a price, the expected time at that
price.

Completions are pruned further by what they decide: one that needs more than the earlier stages can leave is
infeasible, and below what they leave in any case, needing less is no better.

Fixed stage: minimise the expected cost of all that remains, among plans whose summed P95 fits money and
deadline. A later elastic stage counts with all its passes in the cost, and with its fewest samples in what
has to fit. Elastic stage: within what the P95 of the later stages leaves, find the most samples; then
minimise the cost for each sample, among plans with enough of them (best_plans.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from itertools import accumulate

import numpy as np

from shoestring.routing.candidates import Candidates
from shoestring.routing.dag import build_dag
from shoestring.routing.planner.candidate_plans import CandidatePlans
from shoestring.routing.planner.current_stage import CurrentStage
from shoestring.routing.planner.dag.search import PLANS_PER_STATE, DagSearch
from shoestring.routing.planner.partial_plans import (
    UNBOUNDED,
    NeedRange,
    PartialPlans,
    PlanStep,
    Pruning,
    RunLimits,
    no_more_stages,
    no_plans,
    undominated,
)
from shoestring.routing.planner.stage_options import PRUNE_ABOVE_OFFERS, StageOptions, TargetKinds
from shoestring.routing.question import Question


def find_plans(
    question: Question,
    candidates: Candidates,
    limits: RunLimits,
    rounds: tuple[int, ...] = PLANS_PER_STATE,
    prune_above_offers: int = PRUNE_ABOVE_OFFERS,
) -> CandidatePlans:
    """Return every candidate's best plan: exact for a chain, and within a known gap for a large DAG.

    Args:
        question: what is decided.
        candidates: the offers of the question.
        limits: the money and the time that plans have to keep.
        rounds: for a DAG, the number of partial plans to keep for one state, one round after the other.
        prune_above_offers: number of offers of a later stage above which its targets are pruned first.
    """
    current = CurrentStage(question, candidates, limits)
    if build_dag(question.needs, question.upstream).is_chain:
        return CandidatePlans(current, ChainLookahead(question, candidates, limits, prune_above_offers))
    return DagSearch(question, candidates, current, rounds, prune_above_offers).plans(limits)


class ChainLookahead:
    """The stages after the current one in a chain, with the plans that complete the chain (see `Lookahead`).

    `blocked` holds the stages that no offer can run. `parallel_ms` is 0: in a chain nothing runs in parallel.
    """

    parallel_ms = 0

    def __init__(
        self,
        question: Question,
        candidates: Candidates,
        limits: RunLimits,
        prune_above_offers: int = PRUNE_ABOVE_OFFERS,
    ) -> None:
        self.stages, self.limits = len(question.needs), limits
        kinds = TargetKinds(candidates)
        self.options = {
            stage: StageOptions(question, candidates, limits, stage, kinds, prune_above_offers)
            for stage in range(1, self.stages)
        }
        self.blocked = {
            stage: each.first_offer_cost() for stage, each in self.options.items() if not each.any()
        }
        # By stage and format found: minimum dollars and minimum time at P95 of the completions, whether they
        # fit or not.
        self._needs: dict[int, dict[int, tuple[int, int]]] = {}
        # By stage and format found: the undominated completions that may fit, once `search` was called.
        self._plans: dict[int, dict[int, PartialPlans]] = {}
        for stage in range(self.stages - 1, 0, -1):
            needs = {reads: self._min_needs_from(stage, reads) for reads in self.options[stage].offers.reads}
            self._needs[stage] = {reads: each for reads, each in needs.items() if each is not None}

    def _min_needs_from(self, stage: int, reads: int) -> tuple[int, int] | None:
        """Return the minimum dollars and the minimum time from a stage to the end; None: there is no plan."""
        sums = [
            (micro + after[0], ms + after[1])
            for format_left, (micro, ms) in self.options[stage].min_needs(reads).items()
            if (after := self._min_needs_after(stage, format_left)) is not None
        ]
        return (min(micro for micro, _ in sums), min(ms for _, ms in sums)) if sums else None

    def _min_needs_after(self, stage: int, format_left: int) -> tuple[int, int] | None:
        return (0, 0) if stage + 1 == self.stages else self._needs[stage + 1].get(format_left)

    def min_needs(self, format_left: int) -> tuple[int, int] | None:
        """Return the minimum dollars and minimum time of the plans after a format; None: there is none."""
        return self._min_needs_after(0, format_left)

    def search(self, current: NeedRange, *, saving: bool) -> None:
        """Find the completions that may fit after what the current stage needs (see `Lookahead.search`)."""
        self._plans = {stage: {} for stage in self.options}
        if (ranges := self._need_ranges(current)) is None:
            return
        every = [current, *ranges.values()]
        for stage in range(self.stages - 1, 0, -1):
            others, earlier = [*every[:stage], *every[stage + 1 :]], every[:stage]
            enough = (0, 0) if saving else self._sufficient(others)
            options = self.options[stage]
            for reads in options.offers.reads:
                stage_plans = options.plans(reads, ranges[stage], *enough)
                if len(plans := self._complete(stage, stage_plans, earlier, saving=saving)):
                    self._plans[stage][reads] = plans

    def _need_ranges(self, current: NeedRange) -> dict[int, NeedRange] | None:
        """Return, by stage, the needs of the offers that fit with the minimum of all other stages.

        None: no offer of some stage fits.
        """
        ranges = {stage: each.need_range() for stage, each in self.options.items()}
        known = [each for each in (current, *ranges.values()) if each is not None]
        spare_micro = self.limits.left_micro - sum(each.min_micro for each in known)
        spare_ms = self.limits.left_ms - sum(each.min_ms for each in known)
        found = {}
        for stage, each in ranges.items():
            fits = each
            if each and (
                each.max_micro - each.min_micro > spare_micro or each.max_ms - each.min_ms > spare_ms
            ):
                fits = self.options[stage].need_range(each.min_micro + spare_micro, each.min_ms + spare_ms)
            if fits is None:
                return None
            found[stage] = fits
        return found

    def _sufficient(self, others: list[NeedRange]) -> tuple[int, int]:
        """Return the money and time that other stages leave in any case. Needing less is no better."""
        micro = self.limits.left_micro - sum(each.max_micro for each in others)
        ms = self.limits.left_ms - sum(each.max_ms for each in others)
        return max(micro, 0), max(ms, 0)

    def _complete(
        self, stage: int, stage_plans: list[PartialPlans], earlier: list[NeedRange], *, saving: bool
    ) -> PartialPlans:
        """Return each offer of a stage combined with each completion after it, of those that may fit."""
        max_micro = self.limits.left_micro - sum(each.min_micro for each in earlier)
        max_ms = self.limits.left_ms - sum(each.min_ms for each in earlier)
        micro, ms = (0, 0) if saving else self._sufficient(earlier)
        prune = partial(undominated, sufficient_micro=micro, sufficient_ms=self.limits.sufficient_ms or ms)
        pairs = [
            (each, after)
            for each in stage_plans
            if (after := self._continuations(stage, int(each.format_left[0]))) is not None
        ]
        return combine(pairs, max_micro, max_ms, prune)

    def _continuations(self, stage: int, format_left: int) -> PartialPlans | None:
        return no_more_stages() if stage + 1 == self.stages else self._plans[stage + 1].get(format_left)

    def continuations(self, format_left: int) -> PartialPlans | None:
        """Return the plans after a format, by expected cost; None: there is none."""
        return self._continuations(0, format_left)

    def path(self, format_left: int, index: int) -> list[PlanStep]:
        """Return the offers of all later stages in one of the continuations."""
        steps = []
        for stage in range(1, self.stages):
            plans = self._plans[stage][format_left]
            steps.append(PlanStep(int(plans.target[index]), format_left, int(plans.writes[index])))
            format_left, index = int(plans.format_left[index]), int(plans.next_index[index])
        return steps

    def trade_offs(self, format_left: int) -> PartialPlans | None:
        """Return the plans after a format that are Pareto-optimal in P95 dollars and P95 time."""
        return no_more_stages() if self.stages == 1 else self._trade_offs.get(format_left)

    @cached_property
    def _trade_offs(self) -> dict[int, PartialPlans]:
        def prune(_: object, p95: np.ndarray, ms: np.ndarray) -> np.ndarray:
            return undominated(p95, np.zeros_like(p95), ms)

        return chain_plans(self.options, StageOptions.trade_offs, prune)[1]


def chain_plans(
    options: Mapping[int, StageOptions],
    plans_of: Callable[[StageOptions, int], list[PartialPlans]],
    prune: Pruning,
) -> dict[int, dict[int, PartialPlans]]:
    """Return, by stage and format found, the completions of the chain that pruning keeps, without any limit.

    Args:
        options: the stages, by number; the last one is the end of the chain.
        plans_of: returns one stage's own plans that read a format.
        prune: returns the indices of the completions to keep.
    """
    found: dict[int, dict[int, PartialPlans]] = {}
    for stage in sorted(options, reverse=True):
        found[stage] = {}
        for reads in options[stage].offers.reads:
            pairs = []
            for stage_plans in plans_of(options[stage], reads):
                format_left = int(stage_plans.format_left[0])
                after = found[stage + 1].get(format_left) if stage + 1 in options else no_more_stages()
                if after is not None:
                    pairs.append((stage_plans, after))
            if len(remaining := combine(pairs, UNBOUNDED, UNBOUNDED, prune)):
                found[stage][reads] = remaining
    return found


def combine(
    pairs: list[tuple[PartialPlans, PartialPlans]], max_micro: int, max_ms: int, prune: Pruning
) -> PartialPlans:
    """Return each first plan of a pair combined with each of its continuations, pruned and within the maxima.

    Thousands of combinations are compared and few are kept; only these are built. A plan above the maxima
    dominates no plan within them, so it may be dropped after pruning.
    """
    if not pairs:
        return no_plans()
    sums = [
        [(getattr(first, name)[:, None] + getattr(after, name)).ravel() for first, after in pairs]
        for name in ("cost", "p95", "ms")
    ]
    cost, p95, ms = map(np.concatenate, sums)
    remaining = prune(cost, p95, ms)
    remaining = remaining[(p95[remaining] <= max_micro) & (ms[remaining] <= max_ms)]
    # A combination's index within its pair counts first plans, then continuations.
    begins = [0, *accumulate(map(len, sums[0]))]
    first_begins = [0, *accumulate(len(first) for first, _ in pairs)]
    pair = np.searchsorted(begins, remaining, side="right") - 1
    width = np.take([len(after) for _, after in pairs], pair)
    first, after_index = np.divmod(remaining - np.take(begins, pair), width)
    first += np.take(first_begins, pair)
    target, writes, format_left = (
        np.concatenate([getattr(each, name) for each, _ in pairs])[first]
        for name in ("target", "writes", "format_left")
    )
    return PartialPlans(
        cost[remaining], p95[remaining], ms[remaining], target, writes, format_left, after_index
    )
