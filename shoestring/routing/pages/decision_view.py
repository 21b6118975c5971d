"""What there is to say of a decision, whatever page it is said on: each offer with its verdict, and the money there was."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from shoestring.core.types import Market
from shoestring.routing.candidates import NONE, RefusalCode
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import Decision, Question
from shoestring.routing.offers.offer_costs import stage_offer_table
from shoestring.routing.pages.text import lying


@dataclass(frozen=True, slots=True)
class OfferView:
    """An offer for the stage that was routed. `writes`: how its data set would lie; empty: it leaves none. `verdict`: why it was not taken;
    empty for the one that was. `priced`: it could be used."""

    row: int
    pool: str
    market: Market
    writes: str
    usd_per_hour_micro: int
    usable: bool
    verdict: str

    @property
    def selected(self) -> bool:
        return not self.verdict


def offer_views(decision: Decision) -> list[OfferView]:
    """The offers for the stage that are put into words: first the one taken, then those that could be used, cheapest first, then others."""
    names, columns = decision.candidates, stage_offer_table(decision.candidates, 0)
    verdicts = {refusal.candidate: refusal.sentence for refusal in decision.refusals}
    taken = [] if decision.choice is None else [decision.choice.candidate]
    order = sorted(
        [*taken, *verdicts],
        key=lambda row: (row in verdicts, columns.exclusion[row] != NONE, columns.est_microusd[row], row),
    )
    return [
        OfferView(
            row=row,
            pool=names.pools[columns.pool[row]],
            market=names.markets[columns.market[row]],
            writes=lying(*names.lying(columns.writes[row])),
            usd_per_hour_micro=int(columns.usd_per_hour_micro[row]),
            usable=bool(columns.exclusion[row] == NONE),
            verdict=verdicts.get(row, ""),
        )
        for row in order
    ]


def unlisted_counts(decision: Decision) -> dict[RefusalCode, int]:
    """How many more offers there are for the stage, by the code of what stands against them."""
    unsaid = np.ones(len(decision.refusal_index), dtype=np.bool_)
    unsaid[[refusal.candidate for refusal in decision.refusals]] = False
    counts = np.bincount(decision.refusal_index[unsaid & (decision.refusal_index >= 0)], minlength=len(decision.refusal_codes)).tolist()
    return {code: count for code, count in zip(decision.refusal_codes, counts, strict=True) if count}


def left_usd(question: Question) -> Decimal:
    """Of the run's budget, before anything is kept for later stages."""
    return question.budget_usd - question.spent_usd - question.held_usd


def budget_deductions(question: Question) -> list[tuple[Decimal, str]]:
    """What of the budget is gone, and how."""
    return [
        (amount, name)
        for amount, name in ((question.spent_usd, "spent"), (question.held_usd, "held"))
        if amount
    ]


def reserved_later_s(decision: Decision) -> float:
    """Seconds at P95 that are set aside for what waits for this stage: the longest way through the later ones."""
    before = build_dag(decision.question.needs, decision.question.upstream).before
    behind_s = [0.0] * len(before)
    for stage, later in reversed(list(enumerate(decision.plan, 1))):
        for each in before[stage]:
            behind_s[each] = max(behind_s[each], later.reserved_s + behind_s[stage])
    return behind_s[0]


def selected_row(decision: Decision) -> int | None:
    """The candidate that was taken; None when nothing was."""
    return None if decision.choice is None else decision.choice.candidate


def expected_cost(decision: Decision, samples: int) -> tuple[int, int] | None:
    """Micro-dollars and milliseconds that were expected of the work that was done: of an elastic stage so many samples, on the line through
    its least and all of them; of any other all that it does. None when nothing was taken."""
    if decision.choice is None:
        return None
    row, columns = decision.choice.candidate, stage_offer_table(decision.candidates, 0)
    if not decision.question.needs[0].elastic or columns.cached[row]:
        return int(columns.est_microusd[row]), int(columns.est_ms[row])
    between = int(columns.min_samples[row]), int(columns.samples[row])
    ends = (columns.min_est_microusd, columns.est_microusd), (columns.min_est_ms, columns.est_ms)
    microusd, ms = (interpolate(samples, between, (int(low[row]), int(high[row]))) for low, high in ends)
    return microusd, ms


def interpolate(samples: int, between: tuple[int, int], values: tuple[int, int]) -> int:
    """Rounded up, never below nothing."""
    (least, most), (low, high) = between, values
    if most == least:
        return -(-high * samples // most) if most else high
    return max(0, low - (low - high) * (samples - least) // (most - least))
