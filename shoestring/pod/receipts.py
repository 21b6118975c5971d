"""What one attempt really took, beside what its decision expected."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from shoestring.errors import StageFailed
from shoestring.model import Outcome, Receipt
from shoestring.routing.decision import Decision


def receipt_for(
    decision: Decision,
    *,
    decision_key: str,
    pod_uid: str,
    status: Literal["done", "failed", "stopped", "lost"],
    why: str,
    spent_usd: Decimal,
    started_at: datetime,
    finished_at: datetime,
    ledger_head: str,
    outcome: Outcome | None = None,
    **used: Any,
) -> Receipt:
    """The receipt of an attempt at what `decision` chose. `used`: cpu_s, peak_rss_bytes. Raises StageFailed for one that chose nothing."""
    question, choice = decision.question, decision.choice
    if choice is None:
        raise StageFailed(f"{decision_key} chose nothing, so there is nothing to receipt")
    return Receipt(
        run_id=question.run_id,
        stage=question.stage,
        attempt=question.attempt,
        pod_uid=pod_uid,
        decision_key=decision_key,
        status=status,
        why=why,
        pool=choice.pool,
        market=choice.market,
        format=choice.format,
        cache_hit=choice.cached,
        budget_usd=choice.budget_usd,
        est_usd=choice.est_usd,
        p95_usd=choice.p95_usd,
        est_s=choice.est_s,
        prior_s=choice.prior_s_of(outcome.samples) if outcome is not None else 0.0,
        spent_usd=spent_usd,
        started_at=started_at,
        finished_at=finished_at,
        seconds=round((finished_at - started_at).total_seconds(), 3),
        outcome=outcome,
        ledger_head=ledger_head,
        **used,
    )
