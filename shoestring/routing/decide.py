"""Where should it run? The one entry: a question in, a decision out. Pure: no clock, network, environment or files."""

from __future__ import annotations

import numpy as np

from shoestring.model import Format, Market, from_microusd
from shoestring.routing import sentences
from shoestring.routing.decision import Candidates, Choice, Decision, Planned, Question, Reason, Refusal
from shoestring.routing.offers import candidates as make_candidates
from shoestring.routing.place import place
from shoestring.routing.plan import UNBOUNDED, Limits, Plans, Table, completions, plans
from shoestring.routing.policy import VERSION, policy
from shoestring.pricing.throughput import uses_gpu

MADE_BY = f"shoestring routing {VERSION}"


def decide(question: Question) -> Decision:
    """Choose pool, market and format for this stage, looking ahead over the remaining ones; or refuse, with the smallest budget that works."""
    return choose(question, make_candidates(question))


def choose(question: Question, candidates: Candidates) -> Decision:
    """The choice among priced candidates: what `replay` calls again. Compares whole numbers only."""
    limits = Limits.of(question)
    table = Table(question, candidates, limits)
    after = completions(table, len(question.needs))
    pairs = plans(table, limits, after)
    ranked = pairs.ranked()
    best = int(ranked[0]) if len(ranked) else None
    return Decision(
        question=question,
        candidates=candidates,
        choice=None if best is None else _choice(question, candidates, limits, pairs, best),
        plan=() if best is None else _planned(question, candidates, pairs.path[best].tolist()),
        refusals=_refusals(question, candidates, limits, table, pairs, best),
        smallest_budget_usd=_smallest_budget(question, limits, pairs),
        placement=None if best is None else _placement(question, candidates, int(pairs.candidate[best])),
        policy=policy(),
        made_by=MADE_BY,
    )
