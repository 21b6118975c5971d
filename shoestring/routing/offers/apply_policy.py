"""Recorded offers under another policy: what the other arm of a policy trial chooses from."""

from __future__ import annotations

import numpy as np

from shoestring.routing.candidates import NONE, POLICY_CODES, REFUSAL_CODES, Candidates, index_codes
from shoestring.routing.offers.factors import policy_exclusions
from shoestring.routing.question import Question


def apply_policy(question: Question, candidates: Candidates) -> Candidates:
    """Return the candidates with the exclusions of this question's policy in place of another policy's.

    Prices and cached results stay the same.
    """
    by_name = {pool.name: pool for pool in question.pools}
    pools = [by_name[name] for name in candidates.pools]
    by_policy = frozenset(POLICY_CODES.values())
    offers = []
    for need, before in zip(question.needs, candidates.offers, strict=True):
        workload = question.workload_class(need)
        excluded = policy_exclusions(workload, pools, candidates.markets, candidates.pool, candidates.market)
        numbers = (NONE if each in by_policy else REFUSAL_CODES.index(each) for each in before.exclusions)
        other = np.array([*numbers, NONE])[before.exclusion]
        exclusions, exclusion = index_codes(np.where(other != NONE, other, excluded))
        offers.append(before.model_copy(update={"exclusions": exclusions, "exclusion": exclusion}))
    return candidates.model_copy(update={"offers": tuple(offers)})
