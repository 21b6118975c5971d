"""Where should it run? The one entry: a question in, a decision out. Pure: no clock, network, environment or files."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from shoestring.config.policy import CandidatePolicy
from shoestring.core.money import from_microusd
from shoestring.core.types import Format, Market, Placement
from shoestring.routing.algorithm import VERSION, policy
from shoestring.routing.candidates import MS_PER_HOUR, Candidates
from shoestring.routing.decision import Choice, Decision, PlannedStage, ShadowChoice
from shoestring.routing.question import Question
from shoestring.routing.offers.enumerate import apply_policy_again
from shoestring.routing.offers.enumerate import candidates as make_candidates
from shoestring.routing.offers.offer_costs import Block
from shoestring.routing.pages import text
from shoestring.routing.pages.refusals import RefusalWriter
from shoestring.routing.placement import place
from shoestring.routing.planner.current_stage import Plans
from shoestring.routing.planner.partial_plans import CACHED, Limits, Step
from shoestring.routing.planner.search import planned
from shoestring.routing.policy.policy_trial import applied_policy_of, make_shadow, shadow_question

MADE_BY = f"shoestring routing {VERSION}"


def decide(question: Question) -> Decision:
    """Choose pool, market and format for this stage, looking ahead over those that remain.

    When nothing fits, `choice` is None, every candidate is refused, and `smallest_budget_usd` is the smallest run
    budget with which this same question would be answered (None: no budget would do).
    """
    return choose(question, make_candidates(question))


def choose(question: Question, candidates: Candidates) -> Decision:
    """The choice among priced candidates: what a replay makes again. Compares whole numbers only."""
    found = planned(question, candidates, Limits.of(question))
    plans, best = found.plans, found.best
    refuser = RefusalWriter(question, candidates, plans, best)
    choice = None if best is None else ChoiceBuilder(question, candidates, plans, best).choice()
    return Decision(
        question=question,
        candidates=candidates,
        choice=choice,
        plan=() if best is None else _planned(question, candidates, found.path),
        codes=refuser.codes,
        code=refuser.code,
        refusals=refuser.spoken(),
        smallest_budget_usd=_smallest_budget_usd(question, plans) if best is None else None,
        optimality_gap_ppm=found.optimality_gap_ppm,
        placement=None if best is None else _placement(question, candidates, plans.here.step(best)),
        policy=policy(),
        obeyed=applied_policy_of(question),
        shadow=None
        if question.candidate_policy is None
        else _shadow(question, question.candidate_policy, candidates, choice),
        made_by=MADE_BY,
    )


def _shadow(
    question: Question, candidate: CandidatePolicy, candidates: Candidates, chosen: Choice | None
) -> ShadowChoice:
    """What the policy that is not obeyed chooses from the same offers."""
    asked = shadow_question(question, candidate)
    choice = choose(asked, apply_policy_again(asked, candidates)).choice
    return make_shadow(asked.preferences, "live" if question.arm == "candidate" else "candidate", choice, chosen)


def _smallest_budget_usd(question: Question, plans: Plans) -> Decimal | None:
    """The smallest run budget with which this question would be answered; None: no budget would do."""
    needs_micro, needs_ms = plans.corners()
    in_time = needs_micro[needs_ms <= plans.limits.left_ms]
    return question.spent_usd + question.held_usd + from_microusd(in_time.min()) if len(in_time) else None


def smallest_plan_costs(question: Question, candidates: Candidates) -> list[tuple[int, int]]:
    """Micro-dollars that each stage is expected to take, and that it takes at P95 (an elastic one: at least), in the plan of the smallest
    budget with which this question would be answered; empty: no budget would do."""
    smallest_usd = _smallest_budget_usd(question, planned(question, candidates, Limits.of(question)).plans)
    if smallest_usd is None:
        return []
    least = question.model_copy(update={"budget_usd": smallest_usd})
    found = planned(least, candidates, Limits.of(least))
    steps = [] if found.best is None else [found.plans.here.step(found.best), *found.path]
    prices = [at_price(candidates, stage, step) for stage, step in enumerate(steps)]
    return [(est_micro, keep_micro) for est_micro, _, keep_micro, _ in prices]


def slot_of(candidates: Candidates, stage: int, step: Step) -> int:
    cached = candidates.offers[stage].cached
    return cached.slot if step.slot == CACHED and cached else step.slot


def place_of(candidates: Candidates, stage: int, step: Step) -> tuple[str, Market, Format | None, str]:
    """Pool, market, format written and its storage class, by name."""
    slot = slot_of(candidates, stage, step)
    return (
        candidates.pools[candidates.pool[slot]],
        candidates.markets[candidates.market[slot]],
        *candidates.lying(step.writes),
    )


def _placement(question: Question, candidates: Candidates, step: Step) -> Placement:
    name, market, *_ = place_of(candidates, 0, step)
    pool = next(pool for pool in question.pools if pool.name == name)
    return place(pool, market, question.needs[0], question.images)


def _planned(question: Question, candidates: Candidates, path: list[Step]) -> tuple[PlannedStage, ...]:
    return tuple(_later(question, candidates, stage, step) for stage, step in enumerate(path, 1))


def at_price(candidates: Candidates, stage: int, step: Step) -> tuple[int, int, int, int]:
    """Micro-dollars and milliseconds that a stage's step is expected to take, and what its least takes of both at P95."""
    if step.slot == CACHED:
        return 0, 0, 0, 0
    offers, block = candidates.offers[stage], Block(candidates, stage, np.array([step.slot]))
    cell = (offers.reads.index(step.reads), offers.writes.index(step.writes), 0)
    fixed_us, fees = block.fixed_us(), block.fees_microusd()
    est, worst = block.prices(fixed_us, fees), block.prices(fixed_us, fees, least=True, worst=True)
    return int(est.microusd[cell]), int(est.ms[cell]), int(worst.microusd[cell]), int(worst.ms[cell])


def _later(question: Question, candidates: Candidates, stage: int, step: Step) -> PlannedStage:
    pool, market, writes, storage_class = place_of(candidates, stage, step)
    est_micro, est_ms, keep_micro, keep_ms = at_price(candidates, stage, step)
    return PlannedStage(
        stage=question.needs[stage].stage,
        pool=pool,
        market=market,
        format=writes,
        est_usd=from_microusd(est_micro),
        est_s=est_ms / 1000,
        keep_usd=from_microusd(keep_micro),
        keep_s=keep_ms / 1000,
        storage_class=storage_class,
    )


@dataclass(frozen=True, slots=True)
class ChoiceBuilder:
    """The best candidate as a Choice."""

    question: Question
    candidates: Candidates
    plans: Plans
    best: int

    def choice(self) -> Choice:
        question, here, row, limits = self.question, self.plans.here, self.best, self.plans.limits
        need, cached = question.needs[0], here.is_cached(row)
        step, best = here.step(row), self.plans.best
        pool, market, writes, storage_class = place_of(self.candidates, 0, step)
        price = int(self.candidates.usd_per_hour_micro[slot_of(self.candidates, 0, step)])
        keep_micro, keep_ms = (
            int(best.needs_micro[row] - here.least_p95[row]),
            int(best.needs_ms[row] - here.min_p95_ms[row]),
        )
        left_micro, samples = limits.left_micro - keep_micro, int(best.samples[row])
        p95_micro, p95_ms = int(here.p95[row]), int(here.p95_ms[row])
        into_micro, out_micro, stored_micro = fees_micro = self._fees_micro()
        if need.elastic and not cached:
            p95_micro, p95_ms = self._allowance(
                price, sum(fees_micro), min(left_micro, limits.cap_micro(0)), limits.left_ms - keep_ms
            )
        # An elastic stage is never extended, and hands back what it does not use: all that is left is its own.
        own_micro = left_micro if need.elastic and not cached else p95_micro
        declared = limits.caps.get(0)
        prior_ms, fixed_ms = self._prior(samples)
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
            prior_s=prior_ms / 1000,
            fixed_s=fixed_ms / 1000,
            samples=samples,
            budget_usd=from_microusd(own_micro if declared is None else min(declared, left_micro)),
            keep_usd=from_microusd(keep_micro),
            cached=cached,
            objective="max-samples" if need.elastic else "min-cost",
            sentence=self._why(samples, p95_micro, p95_ms),
            transfer_in_usd=from_microusd(into_micro),
            transfer_out_usd=from_microusd(out_micro),
            stored_usd=from_microusd(stored_micro),
            storage_class=storage_class,
        )

    def _fees_micro(self) -> tuple[int, int, int]:
        """What the price has beside time: for bytes that are brought in, brought out, and held."""
        if self.plans.here.is_cached(self.best):
            return 0, 0, 0
        step = self.plans.here.step(self.best)
        block, offers = Block(self.candidates, 0, np.array([step.slot])), self.candidates.offers[0]
        into, out = block.transfer_by_region()
        reads, writes, region = (
            offers.reads.index(step.reads),
            offers.writes.index(step.writes),
            block.region[0],
        )
        return (
            int(into[reads, region]),
            int(out[writes, region]),
            int(offers.storage_microusd_by_format[step.writes]),
        )

    def _allowance(self, price: int, fees_micro: int, money_micro: int, time_ms: int) -> tuple[int, int]:
        """The money and the time that an elastic stage may use: all its passes, or as much as either limit allows of both."""
        here, row = self.plans.here, self.best
        bought_by_time = -(-price * time_ms // MS_PER_HOUR) + fees_micro
        micro = max(min(money_micro, int(here.p95[row]), bought_by_time), int(here.least_p95[row]))
        bought_by_money = (micro - fees_micro) * MS_PER_HOUR // price
        return micro, max(min(time_ms, int(here.p95_ms[row]), bought_by_money), int(here.min_p95_ms[row]))

    def _est_ms(self, samples: int) -> int:
        """Expected time of so many samples, rounded up: linear between the least of them and all."""
        here, row = self.plans.here, self.best
        least_ms, most_ms, least = (
            int(here.min_est_ms[row]),
            int(here.est_ms[row]),
            int(here.min_samples[row]),
        )
        width = here.offers.samples - least
        return least_ms - (least_ms - most_ms) * (samples - least) // width if width else most_ms

    def _prior(self, samples: int) -> tuple[int, int]:
        """Milliseconds of the prior for so many samples, and the part of it that does not grow with them."""
        here, row = self.plans.here, self.best
        if here.is_cached(row):
            return 0, 0
        step, offers = here.step(row), here.offers
        block = Block(self.candidates, 0, np.array([step.slot]))
        fixed_us = float(block.fixed_us()[0, offers.writes.index(step.writes), 0]) + float(block.setup_us[0])
        fixed_ms, all_ms = (
            -int(-us // 1000)
            for us in (fixed_us, fixed_us + float(offers.work_us_by_machine[block.machine[0]]))
        )
        return (
            fixed_ms + (all_ms - fixed_ms) * samples // offers.samples if offers.samples else all_ms
        ), fixed_ms

    def _why(self, samples: int, p95_micro: int, p95_ms: int) -> str:
        if self.plans.here.is_cached(self.best):
            return text.chosen_cached()
        if self.question.needs[0].elastic:
            most, won_by = self.plans.here.offers.samples, self._finding_out() + self._runner_up()
            return text.chosen_most_samples(samples, most, p95_micro, p95_ms, won_by)
        total_micro = int(self.plans.best.total[self.best])
        later, waits = text.later_stages(self.question), text.waiting(self.question)
        return text.chosen_cheapest(total_micro, later, self._runner_up(), waits + self._finding_out())

    def _finding_out(self) -> str:
        """Words where the choice is not the least expected cost, but one that teaches."""
        if not self.plans.here.tries:
            return ""
        best, here, limits = self.plans.best, self.plans.here, self.plans.limits
        rows = np.arange(len(here))
        money = np.minimum(limits.left_micro - (best.needs_micro - here.least_p95), limits.cap_micro(0))
        worth = here.worth_within(rows, money, limits.left_ms - (best.needs_ms - here.min_p95_ms))
        without = (best.total + worth)[(best.way >= 0) & (best.samples == best.samples[self.best])]
        return (
            text.finding_out(int(worth[self.best]))
            if without.min() < best.total[self.best] + worth[self.best]
            else ""
        )

    def _runner_up(self) -> str:
        """What the choice won by, over the best plan that begins otherwise."""
        best = self.plans.best
        second = best.first(but=self.best)
        if second is None:
            return ""
        name = text.offer(*place_of(self.candidates, 0, self.plans.here.step(second)))
        if fewer := int(best.samples[self.best] - best.samples[second]):
            return text.next_is_fewer(name, fewer)
        return text.next_is_dearer(name, int(best.total[second] - best.total[self.best]))
