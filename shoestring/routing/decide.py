"""Where should it run? The one entry: a question in, a decision out. Pure: no clock, network, environment or files."""

from __future__ import annotations

from decimal import Decimal

from shoestring.model import Format, Placement
from shoestring.money import from_microusd
from shoestring.routing import sentences
from shoestring.routing.decision import Candidates, Choice, Decision, Planned, Question, Shadow
from shoestring.routing.offers import candidates as make_candidates
from shoestring.routing.offers import objected_anew
from shoestring.routing.place import place
from shoestring.routing.plan import Limits, Plans, Table, completions, plans
from shoestring.routing.policy import VERSION, policy
from shoestring.routing.refuse import Refuser
from shoestring.routing.trial import asked_of_the_other, obeyed_by, shadow
from shoestring.rules import Candidate

MADE_BY = f"shoestring routing {VERSION}"
MS_PER_HOUR = 3_600_000


def decide(question: Question) -> Decision:
    """Choose pool, market and format for this stage, looking ahead over those that remain.

    When nothing fits, `choice` is None, every candidate is refused with its sentence, and `smallest_budget_usd` is the smallest run
    budget with which this same question would be answered (None: no budget would do).
    """
    return choose(question, make_candidates(question))


def choose(question: Question, candidates: Candidates) -> Decision:
    """The choice among priced candidates: what a replay makes again. Compares whole numbers only."""
    limits = Limits.of(question)
    table = Table(question, candidates, limits)
    pairs = plans(table, limits, completions(table, len(question.needs)))
    ranked = pairs.ranked()
    best = int(ranked[0]) if len(ranked) else None
    choice = None if best is None else _choice(question, candidates, limits, pairs, best)
    return Decision(
        question=question,
        candidates=candidates,
        choice=choice,
        plan=() if best is None else _planned(question, candidates, pairs.path[best].tolist()),
        refusals=Refuser(question, candidates, limits, table, pairs, ranked).all(),
        smallest_budget_usd=_smallest_budget_usd(question, limits, pairs) if best is None else None,
        placement=None if best is None else _placement(question, candidates, int(pairs.candidate[best])),
        policy=policy(),
        obeyed=obeyed_by(question),
        shadow=None if question.candidate is None else _shadow(question, question.candidate, candidates, choice),
        made_by=MADE_BY,
    )


def _shadow(question: Question, candidate: Candidate, candidates: Candidates, chosen: Choice | None) -> Shadow:
    """What the policy that is not obeyed chooses from the same offers."""
    asked = asked_of_the_other(question, candidate)
    choice = choose(asked, objected_anew(asked, candidates)).choice
    return shadow(asked.preferences, "live" if question.arm == "candidate" else "candidate", choice, chosen)


def _smallest_budget_usd(question: Question, limits: Limits, pairs: Plans) -> Decimal | None:
    in_time = pairs.needs_micro[pairs.needs_ms <= limits.left_ms]
    return question.spent_usd + question.held_usd + from_microusd(in_time.min()) if len(in_time) else None


def _writes(candidates: Candidates, row: int) -> Format | None:
    return candidates.formats[candidates.writes[row]] if candidates.writes[row] >= 0 else None


def _placement(question: Question, candidates: Candidates, row: int) -> Placement:
    name = candidates.pools[candidates.pool[row]]
    pool = next(pool for pool in question.pools if pool.name == name)
    return place(pool, candidates.markets[candidates.market[row]], question.needs[0], question.images)


def _planned(question: Question, candidates: Candidates, path: list[int]) -> tuple[Planned, ...]:
    return tuple(
        Planned(
            stage=need.stage,
            pool=candidates.pools[candidates.pool[row]],
            market=candidates.markets[candidates.market[row]],
            format=_writes(candidates, row),
            est_usd=from_microusd(candidates.est_microusd[row]),
            est_s=candidates.est_ms[row] / 1000,
            keep_usd=from_microusd(candidates.least_p95_microusd[row]),
            keep_s=candidates.least_p95_ms[row] / 1000,
        )
        for need, row in zip(question.needs[1:], path, strict=True)
    )


def _choice(question: Question, candidates: Candidates, limits: Limits, pairs: Plans, best: int) -> Choice:
    row, need = int(pairs.candidate[best]), question.needs[0]
    keep_micro, samples = int(pairs.keep_micro[best]), int(pairs.samples[best])
    left_micro = limits.left_micro - keep_micro
    p95_micro, p95_ms = candidates.p95_microusd[row], candidates.p95_ms[row]
    if need.elastic and not candidates.cached[row]:
        p95_micro, p95_ms = _allowance(candidates, row, min(left_micro, limits.cap_micro(0)), limits.left_ms - int(pairs.keep_ms[best]))
    # An elastic stage is never extended, and hands back what it does not use: all that is left is its own.
    own_micro = left_micro if need.elastic and not candidates.cached[row] else p95_micro
    declared = limits.caps.get(0)
    return Choice(
        pool=candidates.pools[candidates.pool[row]],
        market=candidates.markets[candidates.market[row]],
        format=_writes(candidates, row),
        usd_per_hour=from_microusd(candidates.usd_per_hour_micro[row]),
        est_usd=from_microusd(min(int(pairs.est[best]), p95_micro)),
        p95_usd=from_microusd(p95_micro),
        est_s=min(_est_ms(samples, candidates, row), p95_ms) / 1000,
        p95_s=p95_ms / 1000,
        prior_s=_prior_ms(samples, candidates, row) / 1000,
        fixed_s=candidates.fixed_ms[row] / 1000,
        samples=samples,
        budget_usd=from_microusd(own_micro if declared is None else min(declared, left_micro)),
        keep_usd=from_microusd(keep_micro),
        cached=bool(candidates.cached[row]),
        objective="most-samples" if need.elastic else "least-cost",
        sentence=_why(question, candidates, pairs, best, p95_micro, p95_ms),
    )


def _allowance(candidates: Candidates, row: int, money_micro: int, time_ms: int) -> tuple[int, int]:
    """The money and the time that an elastic stage may use: all its passes, or as much as either limit allows of both."""
    price, extra_micro = candidates.usd_per_hour_micro[row], candidates.transfer_microusd[row] + candidates.storage_microusd[row]
    bought_by_time = -(-price * time_ms // MS_PER_HOUR) + extra_micro
    micro = max(min(money_micro, candidates.p95_microusd[row], bought_by_time), candidates.least_p95_microusd[row])
    bought_by_money = (micro - extra_micro) * MS_PER_HOUR // price
    return micro, max(min(time_ms, candidates.p95_ms[row], bought_by_money), candidates.least_p95_ms[row])


def _est_ms(samples: int, candidates: Candidates, row: int) -> int:
    """Expected time of so many samples, rounded up: linear between the least of them and all."""
    least_ms, most_ms, least = candidates.least_est_ms[row], candidates.est_ms[row], candidates.least_samples[row]
    width = candidates.samples[row] - least
    return least_ms - (least_ms - most_ms) * (samples - least) // width if width else most_ms


def _prior_ms(samples: int, candidates: Candidates, row: int) -> int:
    fixed_ms, most = candidates.fixed_ms[row], candidates.samples[row]
    return fixed_ms + (candidates.prior_ms[row] - fixed_ms) * samples // most if most else candidates.prior_ms[row]


def _why(question: Question, candidates: Candidates, pairs: Plans, best: int, p95_micro: int, p95_ms: int) -> str:
    row = int(pairs.candidate[best])
    if candidates.cached[row]:
        return sentences.chosen_cached()
    if question.needs[0].elastic:
        runner_up = _runner_up(candidates, pairs, best)
        return sentences.chosen_most_samples(int(pairs.samples[best]), candidates.samples[row], p95_micro, p95_ms, runner_up)
    total_micro = int(pairs.cost_total[best])
    runner_up, waits = _runner_up(candidates, pairs, best), sentences.waiting(question)
    return sentences.chosen_cheapest(total_micro, sentences.later_stages(question), runner_up, waits)


def _runner_up(candidates: Candidates, pairs: Plans, best: int) -> str:
    """What the choice won by, over the best plan that begins otherwise."""
    ranked = pairs.ranked()
    others = ranked[pairs.candidate[ranked] != pairs.candidate[best]]
    if not len(others):
        return ""
    second = int(others[0])
    row = int(pairs.candidate[second])
    pool, market = candidates.pools[candidates.pool[row]], candidates.markets[candidates.market[row]]
    name = sentences.offer(pool, market, _writes(candidates, row))
    if fewer := int(pairs.samples[best] - pairs.samples[second]):
        return sentences.next_is_fewer(name, fewer)
    return sentences.next_is_dearer(name, int(pairs.cost_total[second] - pairs.cost_total[best]))
