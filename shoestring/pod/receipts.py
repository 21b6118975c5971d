"""What one attempt really took, beside what its decision expected."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shoestring.errors import StageFailed
from shoestring.model import Outcome, Receipt
from shoestring.routing.decision import Decision


def receipt_for(decision: Decision, started_at: datetime, finished_at: datetime, outcome: Outcome | None = None, **took: Any) -> Receipt:
    """The receipt of an attempt at what `decision` chose. `took`: the fields of Receipt that only the attempt knows.

    Raises:
        StageFailed: the decision chose nothing.
    """
    question, choice = decision.question, decision.choice
    if choice is None:
        raise StageFailed(f"attempt {question.attempt} at {question.stage} was given no place, so there is nothing to receipt")
    return Receipt(
        run_id=question.run_id,
        stage=question.stage,
        attempt=question.attempt,
        pool=choice.pool,
        market=choice.market,
        format=choice.format,
        cache_hit=choice.cached,
        budget_usd=choice.budget_usd,
        est_usd=choice.est_usd,
        p95_usd=choice.p95_usd,
        est_s=choice.est_s,
        prior_s=choice.prior_s_of(outcome.samples) if outcome is not None else 0.0,
        started_at=started_at,
        finished_at=finished_at,
        seconds=round((finished_at - started_at).total_seconds(), 3),
        outcome=outcome,
        **took,
    )
