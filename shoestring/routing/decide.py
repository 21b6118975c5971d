"""The decision: a question in, a decision out. Pure: it reads no clock, network, environment or files."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from shoestring.config.preferences import CandidatePolicy
from shoestring.core.money import from_microusd
from shoestring.core.text import microusd_text, ms_text
from shoestring.routing.algorithm import ALGORITHM
from shoestring.routing.branches import ways
from shoestring.routing.candidates import MS_PER_HOUR, Candidates, offer_text
from shoestring.routing.decision import Choice, Decision, PlannedStage, ShadowChoice, sample_unit
from shoestring.routing.offers.apply_policy import apply_policy
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_costs import OfferCost
from shoestring.routing.pages.refusals import RefusalWriter, delay_text, more_for_each, with_later_stages
from shoestring.routing.placement import place_stage
from shoestring.routing.planner.candidate_plans import CandidatePlans
from shoestring.routing.planner.chain_planner import find_plans
from shoestring.routing.planner.partial_plans import PlanStep, RunLimits, named_step, target_of
from shoestring.routing.planner.stage_options import PRUNE_ABOVE_OFFERS
from shoestring.routing.policy.policy_trial import make_shadow, shadow_question
from shoestring.routing.question import ZERO_USD, Question
from shoestring.routing.question_parts import FamilyOption
from shoestring.routing.smallest_limits import (
    SmallestLimits,
    fitting_items,
    smallest_limits,
    step_cost,
)

MADE_BY = f"shoestring routing {ALGORITHM.algorithm_version}"


def decide(question: Question) -> Decision:
    """Choose pool, market and format for this stage, with a plan for the stages that remain.

    When nothing fits, `choice` is None, every candidate is refused, and the decision holds the smallest run
    budget and the smallest deadline that would be enough for this same question (None: none is enough).
    """
    question = with_family(with_branches(question))
    return choose(question, enumerate_offers(question))


def with_branches(question: Question) -> Question:
    """Return the question about the dearest way through its branches, so that the money for all others is
    there, too; about one that does not fit, if there is one.
    """
    found = ways(question.needs)
    if found == [question.needs]:
        return question
    if len(found) == 1:
        return question.of_way(found[0], "no run takes it together with this stage")
    reason = "a run takes one branch of a group, and this is the plan of the dearest"
    asked = [question.of_way(way, reason) for way in found]
    answers = [choose(each := with_family(way), enumerate_offers(each)) for way in asked]
    return max(zip(asked, answers, strict=True), key=lambda pair: _way_usd(pair[1]))[0]


def _way_usd(decision: Decision) -> tuple[bool, Decimal]:
    """Return whether a way does not fit, and what it needs at least."""
    choice = decision.choice
    if choice is None:
        return True, decision.smallest_budget_usd or Decimal("Infinity")
    own_usd = ZERO_USD if decision.question.needs[0].elastic else choice.p95_usd
    return False, own_usd + choice.reserved_later_usd


def with_family(question: Question) -> Question:
    """Return the question about the family that its training uses; without families, as it is.

    It is the first one whose result is cached, or of which the money and the time buy enough samples. If
    there is none, it is the last one that fits.
    """
    reasons, fits = list[str](), list[FamilyOption]()
    for option in question.families:
        asked = question.of_family(option, "")
        choice = choose(asked, enumerate_offers(asked)).choice
        if choice is None:
            reasons.append(f"{option.name} does not fit")
            continue
        fits.append(option)
        if choice.cached or choice.samples >= option.enough_samples:
            found = "the result is cached" if choice.cached else f"{choice.samples:,} samples fit"
            return question.of_family(option, "; ".join([*reasons, found]))
        reasons.append(f"{choice.samples:,} of {option.name}'s {option.enough_samples:,} samples fit")
    if not question.families:
        return question
    return question.of_family((fits or question.families)[-1], "; ".join(reasons))


def choose(
    question: Question, candidates: Candidates, prune_above_offers: int = PRUNE_ABOVE_OFFERS
) -> Decision:
    """Choose among recorded candidates, as a replay does. Compares integers only.

    `prune_above_offers`: see `find_plans`. It changes how long the choice takes, never the choice.
    """
    plans = find_plans(question, candidates, RunLimits.of(question), prune_above_offers=prune_above_offers)
    refusals, found = RefusalWriter(question, candidates, plans), plans.chosen is not None
    choice = (
        ChoiceBuilder(question, candidates, plans, plans.chosen).choice()
        if plans.chosen is not None
        else None
    )
    candidate = question.candidate_policy
    smallest = SmallestLimits() if found else smallest_limits(question, candidates, plans)
    return Decision(
        question=question,
        candidates=candidates,
        choice=choice,
        plan=_later_stages(question, candidates, plans.path),
        refusal_codes=refusals.codes,
        refusal_index=refusals.index,
        refusals=refusals.refusals(),
        smallest_budget_usd=smallest.budget_usd,
        smallest_deadline_s=smallest.deadline_s,
        smallest_both=smallest.both,
        fitting_items=None if found else fitting_items(question, candidates),
        nearest=None if found else refusals.nearest,
        optimality_gap_ppm=plans.optimality_gap_ppm,
        placement=None
        if choice is None
        else place_stage(question.pool(choice.pool), choice.market, question.needs[0], question.images),
        algorithm=ALGORITHM,
        applied_policy=question.applied_policy,
        shadow=None if candidate is None else _shadow(question, candidate, candidates, choice),
        made_by=MADE_BY,
    )


def _shadow(
    question: Question, candidate: CandidatePolicy, candidates: Candidates, chosen: Choice | None
) -> ShadowChoice:
    """Return the choice of the other policy of a trial, from the same offers."""
    other = shadow_question(question, candidate)
    choice = choose(other, apply_policy(other, candidates)).choice
    return make_shadow(
        other.preferences, "live" if question.arm == "candidate" else "candidate", choice, chosen
    )


def _later_stages(
    question: Question, candidates: Candidates, path: list[PlanStep]
) -> tuple[PlannedStage, ...]:
    planned = []
    for stage, step in enumerate(path, 1):
        pool, market, writes, storage_class = named_step(candidates, stage, step)
        cost = step_cost(candidates, stage, step)
        planned.append(
            PlannedStage(
                stage=question.needs[stage].stage,
                pool=pool,
                market=market,
                format=writes,
                est_usd=from_microusd(cost.est_microusd),
                est_s=cost.est_ms / 1000,
                reserved_usd=from_microusd(cost.p95_min_microusd),
                reserved_s=cost.p95_min_ms / 1000,
                storage_class=storage_class,
            )
        )
    return tuple(planned)


@dataclass(frozen=True, slots=True)
class ChoiceBuilder:
    """Builds the choice from the best candidate, `row`."""

    question: Question
    candidates: Candidates
    plans: CandidatePlans
    row: int

    def choice(self) -> Choice:
        """Return the choice."""
        current, row, limits, best = self.plans.current, self.row, self.plans.limits, self.plans.best
        step, cost = current.step(row), step_cost(self.candidates, 0, current.step(row))
        pool, market, writes, storage_class = named_step(self.candidates, 0, step)
        later_micro = int(best.needs_micro[row] - current.min_p95[row])
        left_micro, samples = limits.left_micro - later_micro, int(best.samples[row])
        shares_rest = self.question.needs[0].elastic and not current.is_cached(row)
        p95_micro, p95_ms = (
            self._allowance(cost) if shares_rest else (int(current.p95[row]), int(current.p95_ms[row]))
        )
        # An elastic stage is never extended, and returns what it does not use: it may use all that is left.
        own_micro, declared = left_micro if shares_rest else p95_micro, limits.caps.get(0)
        price = int(self.candidates.usd_per_hour_micro[target_of(self.candidates, 0, step)])
        return Choice(
            pool=pool,
            market=market,
            format=writes,
            candidate=row,
            usd_per_hour=from_microusd(price),
            est_usd=from_microusd(min(int(best.est[row]), p95_micro)),
            p95_usd=from_microusd(p95_micro),
            est_s=min(self._est_ms(samples), p95_ms) / 1000,
            p95_s=p95_ms / 1000,
            prior_s=self._prior_ms(cost, samples) / 1000,
            fixed_s=cost.prior_fixed_ms / 1000,
            samples=samples,
            budget_usd=from_microusd(own_micro if declared is None else min(declared, left_micro)),
            reserved_later_usd=from_microusd(later_micro),
            cached=current.is_cached(row),
            objective="max-samples" if self.question.needs[0].elastic else "min-cost",
            sentence=self._sentence(samples, p95_micro, p95_ms),
            transfer_in_usd=from_microusd(cost.transfer_in_microusd),
            transfer_out_usd=from_microusd(cost.transfer_out_microusd),
            storage_usd=from_microusd(cost.storage_microusd),
            storage_class=storage_class,
        )

    def _allowance(self, cost: OfferCost) -> tuple[int, int]:
        """Return the money and the time that an elastic stage may use, at most for all its passes."""
        current, row, limits, best = self.plans.current, self.row, self.plans.limits, self.plans.best
        min_micro, min_ms = int(current.min_p95[row]), int(current.min_p95_ms[row])
        money_micro = min(limits.left_micro - int(best.needs_micro[row]) + min_micro, limits.cap_micro(0))
        time_ms = limits.left_ms - int(best.needs_ms[row]) + min_ms
        price = int(self.candidates.usd_per_hour_micro[current.step(row).target])
        fees_micro = cost.transfer_in_microusd + cost.transfer_out_microusd + cost.storage_microusd
        price_of_time = -(-price * time_ms // MS_PER_HOUR) + fees_micro
        micro = max(min(money_micro, int(current.p95[row]), price_of_time), min_micro)
        time_for_money = (micro - fees_micro) * MS_PER_HOUR // price
        return micro, max(min(time_ms, int(current.p95_ms[row]), time_for_money), min_ms)

    def _est_ms(self, samples: int) -> int:
        """Return the expected time of the samples, rounded up. It is linear between the fewest and all."""
        current, row = self.plans.current, self.row
        min_ms, max_ms, fewest = (
            int(column[row]) for column in (current.min_est_ms, current.est_ms, current.min_samples)
        )
        width = current.offers.samples - fewest
        return min_ms - (min_ms - max_ms) * (samples - fewest) // width if width else max_ms

    def _prior_ms(self, cost: OfferCost, samples: int) -> int:
        """Return the milliseconds that the prior predicts for `samples` samples."""
        maximum = self.plans.current.offers.samples
        if not maximum:
            return cost.prior_ms
        return cost.prior_fixed_ms + (cost.prior_ms - cost.prior_fixed_ms) * samples // maximum

    def _sentence(self, samples: int, p95_micro: int, p95_ms: int) -> str:
        """Return the reason for the choice."""
        if self.plans.current.is_cached(self.row):
            return "the result is cached: nothing is computed and nothing is paid"
        bonus, runner_up = self._bonus_text(), self._runner_up()
        if not self.question.needs[0].elastic:
            what = f"the lowest expected cost{with_later_stages(self.question)}{delay_text(self.question)}"
            return f"{what}{bonus}: {microusd_text(int(self.plans.best.total[self.row]))}{runner_up}"
        within, maximum = (
            f"{microusd_text(p95_micro)} and {ms_text(p95_ms)}",
            self.plans.current.offers.samples,
        )
        unit = sample_unit(self.question.needs[0])
        if samples == maximum:
            return f"all {maximum:,} {unit} fit in {within}, at the lowest cost{bonus}{runner_up}"
        buy, most = f"{within} buy: {samples:,} of {maximum:,}", self.plans.most_samples
        if samples == most:
            return f"the most {unit} that {buy}{bonus}{runner_up}"
        share = f"{100 * self.question.active_policy.min_sample_share:.6g}%"
        of = f"of the plans with at least {share} of the most {unit} ({most:,})"
        return f"the lowest cost for each sample, {of}, that {buy}{bonus}{runner_up}"

    def _bonus_text(self) -> str:
        """Return the exploration bonus as text, where the choice is not the cheapest without it."""
        current, best, limits = self.plans.current, self.plans.best, self.plans.limits
        if not current.explores:
            return ""
        money = np.minimum(limits.left_micro - (best.needs_micro - current.min_p95), limits.cap_micro(0))
        time_ms = limits.left_ms - (best.needs_ms - current.min_p95_ms)
        bonus = current.bonus_within(np.arange(len(current)), money, time_ms)
        comparable = best.counts | ((best.way >= 0) & (best.samples == best.samples[self.row]))
        price = (best.total + bonus) / np.maximum(best.samples, 1)
        if price[comparable].min() >= price[self.row]:
            return ""
        return f", less an exploration bonus of {microusd_text(int(bonus[self.row]))} for measuring its speed"

    def _runner_up(self) -> str:
        """Return the margin over the best plan that begins with another candidate, as text."""
        best = self.plans.best
        second = best.first(but=self.row)
        if second is None:
            return ""
        name = offer_text(*named_step(self.candidates, 0, self.plans.current.step(second)))
        fewer = int(best.samples[self.row] - best.samples[second])
        if fewer and best.counts[second] and best.price(second) > best.price(self.row):
            return f"; next is {name}, each {more_for_each(best, second, self.row)}"
        if fewer:
            return f"; next is {name}, {fewer:,} fewer"
        more = int(best.total[second] - best.total[self.row])
        return f"; next is {name}, {microusd_text(more)} more expensive" if more else f"; {name} is tied"
