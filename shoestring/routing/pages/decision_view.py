"""What there is to say of a decision, whatever page it is said on: each offer with its verdict, and the money there was."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from shoestring.core.types import Market
from shoestring.routing.dag import shape_of
from shoestring.routing.decision import Decision, Question
from shoestring.routing.offers.candidates import NONE, Reason
from shoestring.routing.offers.offer_costs import rows_of
from shoestring.routing.pages.text import lying


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer for the stage that was routed. `writes`: how its data set would lie; empty: it leaves none. `verdict`: why it was not taken;
    empty for the one that was. `priced`: it could be used."""

    row: int
    pool: str
    market: Market
    writes: str
    usd_per_hour_micro: int
    priced: bool
    verdict: str

    @property
    def taken(self) -> bool:
        return not self.verdict


def offers_of(decision: Decision) -> list[Offered]:
    """The offers for the stage that are put into words: first the one taken, then those that could be used, cheapest first, then others."""
    names, columns = decision.candidates, rows_of(decision.candidates, 0)
    verdicts = {refusal.candidate: refusal.sentence for refusal in decision.refusals}
    taken = [] if decision.choice is None else [decision.choice.candidate]
    order = sorted(
        [*taken, *verdicts],
        key=lambda row: (row in verdicts, columns.objection[row] != NONE, columns.est_microusd[row], row),
    )
    return [
        Offered(
            row=row,
            pool=names.pools[columns.pool[row]],
            market=names.markets[columns.market[row]],
            writes=lying(*names.lying(columns.writes[row])),
            usd_per_hour_micro=int(columns.usd_per_hour_micro[row]),
            priced=bool(columns.objection[row] == NONE),
            verdict=verdicts.get(row, ""),
        )
        for row in order
    ]


def unspoken(decision: Decision) -> dict[Reason, int]:
    """How many more offers there are for the stage, by the code of what stands against them."""
    unsaid = np.ones(len(decision.code), dtype=np.bool_)
    unsaid[[refusal.candidate for refusal in decision.refusals]] = False
    counts = np.bincount(decision.code[unsaid & (decision.code >= 0)], minlength=len(decision.codes)).tolist()
    return {code: count for code, count in zip(decision.codes, counts, strict=True) if count}


def left_usd(question: Question) -> Decimal:
    """Of the run's budget, before anything is kept for later stages."""
    return question.budget_usd - question.spent_usd - question.held_usd


def taken_from_it(question: Question) -> list[tuple[Decimal, str]]:
    """What of the budget is gone, and how."""
    return [
        (amount, name)
        for amount, name in ((question.spent_usd, "spent"), (question.held_usd, "held"))
        if amount
    ]


def kept_s(decision: Decision) -> float:
    """Seconds at P95 that are set aside for what waits for this stage: the longest way through the later ones."""
    before = shape_of(decision.question.needs, decision.question.given).before
    behind_s = [0.0] * len(before)
    for stage, later in reversed(list(enumerate(decision.plan, 1))):
        for each in before[stage]:
            behind_s[each] = max(behind_s[each], later.keep_s + behind_s[stage])
    return behind_s[0]


def taken_row(decision: Decision) -> int | None:
    """The candidate that was taken; None when nothing was."""
    return None if decision.choice is None else decision.choice.candidate


def expected(decision: Decision, samples: int) -> tuple[int, int] | None:
    """Micro-dollars and milliseconds that were expected of the work that was done: of an elastic stage so many samples, on the line through
    its least and all of them; of any other all that it does. None when nothing was taken."""
    if decision.choice is None:
        return None
    row, columns = decision.choice.candidate, rows_of(decision.candidates, 0)
    if not decision.question.needs[0].elastic or columns.cached[row]:
        return int(columns.est_microusd[row]), int(columns.est_ms[row])
    between = int(columns.least_samples[row]), int(columns.samples[row])
    ends = (columns.least_est_microusd, columns.est_microusd), (columns.least_est_ms, columns.est_ms)
    microusd, ms = (on_line(samples, between, (int(low[row]), int(high[row]))) for low, high in ends)
    return microusd, ms


def on_line(samples: int, between: tuple[int, int], values: tuple[int, int]) -> int:
    """Rounded up, never below nothing."""
    (least, most), (low, high) = between, values
    if most == least:
        return -(-high * samples // most) if most else high
    return max(0, low - (low - high) * (samples - least) // (most - least))
