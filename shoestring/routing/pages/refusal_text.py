"""Why a question was refused, and the smallest change that helps: the text that commands print."""

from __future__ import annotations

from shoestring.core.text import join_names
from shoestring.routing.decision import Decision
from shoestring.routing.pages.decision_view import OfferView, offer_views

MAX_LINES = 8
"""Reasons that a refusal prints."""

MAX_NAMES = 6
"""Offers that are named for one reason."""


def smallest_change(decision: Decision) -> str:
    """Return the smallest budget or deadline that would be enough, as text."""
    question, both = decision.question, decision.smallest_both
    budget_usd, deadline_s = decision.smallest_budget_usd, decision.smallest_deadline_s
    budget = f"the smallest budget that is enough is ${budget_usd}"
    if budget_usd is not None:
        return f"{budget}, or with this budget a deadline of {deadline_s:g} s" if deadline_s else budget
    if deadline_s is not None:
        return f"no budget is enough in this time: the smallest deadline that is enough is {deadline_s:g} s"
    if both is not None:
        return f"it needs a budget of ${both.budget_usd} and a deadline of {both.deadline_s:g} s"
    limits = "no budget" if question.deadline_left_s is None else "no budget and no deadline"
    return f"{limits} is enough"


def nearest_offer(decision: Decision) -> str:
    """Return the offer that exceeds the limits least, with its reason; empty where none is possible."""
    views = (view for view in offer_views(decision) if view.row == decision.nearest)
    return next((f"{_name(view)}: {view.verdict}" for view in views), "")


def refusal_lines(decision: Decision) -> tuple[str, ...]:
    """Return the reasons of a refusal: the nearest offer first, and each reason once, with its offers."""
    views = offer_views(decision)
    reasons: dict[str, list[str]] = {}
    for view in sorted(views, key=lambda view: view.row != decision.nearest):
        reasons.setdefault(view.verdict, []).append(_name(view))
    lines = [f"{_names(list(dict.fromkeys(names)))}: {reason}" for reason, names in reasons.items()]
    if decision.nearest is not None:
        lines[0] = f"nearest: {lines[0]}"
    more = len(lines) - MAX_LINES
    rest = (f"and {more} more reasons, in the JSON of the decision",) if more > 0 else ()
    return (*lines[:MAX_LINES], *rest)


def _names(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return join_names([*names[:MAX_NAMES], f"{more} more"] if more > 0 else names)


def _name(view: OfferView) -> str:
    return f"{view.pool} {view.market}{f' writing {view.writes}' if view.writes else ''}"


def refusal_head(decision: Decision) -> str:
    """Return which limit binds, and the smallest change that helps."""
    question, stage = decision.question, decision.question.stage
    if decision.smallest_budget_usd is not None:
        binds = f"a budget of ${question.budget_usd} is too small"
    elif decision.smallest_deadline_s is not None and question.deadline_left_s is not None:
        deadline_s = question.deadline_left_s + question.deadline_used_s
        binds = f"a deadline of {deadline_s:,.1f} s is too short"
    else:
        binds = f"no offer fits {stage}"
    return f"{binds}: {smallest_change(decision)}{fewer_items(decision)}"


def fewer_items(decision: Decision) -> str:
    """Return how many items of its loop would fit; empty: it is in none, or is the last one."""
    if decision.fitting_items is None:
        return ""
    others, found = decision.question.needs[1], decision.fitting_items
    of_all = f"of the {others.items + 1} items of {others.stage} that are left"
    return f", or fewer items: {of_all}, {found} fit" if found else f"; {of_all}, none fits"


def refusal_text(decision: Decision) -> str:
    """Return why nothing fits, the smallest change that helps, and the reasons."""
    return "\n  ".join([refusal_head(decision), *(refusal_lines(decision) or ("there is no pool",))])
