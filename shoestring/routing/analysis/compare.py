"""Explain why two decisions differ, and why a pool was not selected, by deciding again with changed inputs.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any

from pydantic import Field, ValidationError

from shoestring.core.errors import UsageError
from shoestring.core.money import Usd, from_microusd, microusd
from shoestring.core.record import Record, StoredRecord
from shoestring.routing.analysis.hindsight_pricing import Target
from shoestring.routing.candidates import NONE, offer_text
from shoestring.routing.decide import decide
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.offers.offer_table import OfferTable, stage_offer_table
from shoestring.routing.question import Question

INPUT_GROUPS = {
    **dict.fromkeys(("quotes", "rejected_prices"), "prices"),
    **dict.fromkeys(("pools", "stockouts"), "pools"),
    **dict.fromkeys(
        ("needs", "rows", "row_bytes", "reads_format", "reads_storage_class", "data_region"), "work"
    ),
    **dict.fromkeys(
        ("cached_outcome", "cached_format", "cached_storage_class", "cached_later_stages"), "work"
    ),
    **dict.fromkeys(("budget_usd", "spent_usd", "held_usd", "stage_budgets"), "money"),
    **dict.fromkeys(("preferences", "candidate_policy", "rollback_reason", "exploration_sd"), "policy"),
    "deadline_left_s": "time",
    "speeds": "volume",
    "learned": "receipts",
}
"""Fields of a question that are exchanged together. A field that is not listed is a group of its own."""

MAX_BUDGET_FACTOR = 1000
"""Largest budget that is tried, as a multiple of the budget of the question."""

IDENTITY_FIELDS = frozenset({"run_id", "stage", "attempt", "asked_at", "seed", "images", "notes", "digests"})
"""Fields that identify a question and do not influence its decision."""


class InputChange(Record):
    """A group of inputs that differ, and the choice if only this group is exchanged."""

    group: str
    fields: tuple[str, ...] = Field(description="each difference, as first -> second")
    choice_alone: str = Field(description="the choice; empty if the question is invalid with this exchange")
    flips_choice: bool


class DecisionComparison(StoredRecord):
    """A comparison of two decisions for one stage.

    The first question is decided again with the inputs of the second, one group at a time.
    """

    stage: str
    first_choice: str
    second_choice: str
    same_choice: bool
    reproducible: bool = Field(
        description="this version makes the first decision again; otherwise the code has changed too"
    )
    changes: tuple[InputChange, ...]
    sufficient_groups: tuple[str, ...] = Field(
        description="a minimal set of groups whose exchange turns the first choice into the second"
    )


class RejectedOffer(Record):
    """An offer that was not selected, and the price or budget at which it would be."""

    offer: str = Field(description="the best offer of the pool on that market")
    reason: str
    usd_per_hour: Usd | None
    selected_at_usd_per_hour: Usd | None = Field(
        None, description="the highest price at which it is selected; null if at none"
    )
    selected_at_budget_usd: Usd | None = Field(
        None, description="the smallest larger run budget with which it is selected; null if with none"
    )


def compare(first: Decision, second: Decision) -> DecisionComparison:
    """Return which inputs differ, and which of them change the choice.

    Raises:
        UsageError: the decisions are for different stages.
    """
    if first.question.stage != second.question.stage:
        raise UsageError(
            f"the first decision is for {first.question.stage}, the second for {second.question.stage}; "
            "compare two decisions for the same stage"
        )
    groups = _differing(first.question, second.question)
    goal, before = choice_text(second.choice), choice_text(first.choice)
    changes = []
    for group, fields in groups.items():
        alone = _choice_with(first.question, second.question, fields)
        differences = tuple(
            _difference(name, getattr(first.question, name), getattr(second.question, name))
            for name in fields
        )
        changes.append(
            InputChange(
                group=group, fields=differences, choice_alone=alone, flips_choice=alone not in ("", before)
            )
        )
    return DecisionComparison(
        stage=first.question.stage,
        first_choice=before,
        second_choice=goal,
        same_choice=before == goal,
        reproducible=choice_text(decide(first.question).choice) == before,
        changes=tuple(changes),
        sufficient_groups=_sufficient_groups(first.question, second.question, groups, goal)
        if before != goal
        else (),
    )


def why_not(decision: Decision, pool: str) -> tuple[RejectedOffer, ...]:
    """Return the best offer of a pool, or of the shares of a node pool, on each market where it was not
    selected.

    Raises:
        UsageError: the question has no such pool.
    """
    names = {each.name for each in decision.question.pools if pool in (each.name, each.node_pool)}
    if not names:
        known = ", ".join(sorted({each.name for each in decision.question.pools}))
        raise UsageError(f"the question has no pool called {pool!r}; it has: {known}")
    choice, best = decision.choice, dict[Target, int]()
    columns = stage_offer_table(decision.candidates, 0)
    for row in sorted(
        range(len(columns.pool)),
        key=lambda row: (columns.exclusion[row] != NONE, columns.est_microusd[row], row),
    ):
        best.setdefault(_target(decision, columns, row), row)
    return tuple(
        _why_not(decision, columns, row)
        for target, row in best.items()
        if target[0] in names and (choice is None or target != (choice.pool, choice.market))
    )


def _target(decision: Decision, columns: OfferTable, row: int) -> Target:
    return decision.candidates.pools[columns.pool[row]], decision.candidates.markets[columns.market[row]]


def _why_not(decision: Decision, columns: OfferTable, row: int) -> RejectedOffer:
    pool, market = target = _target(decision, columns, row)
    sentences = {refusal.candidate: refusal.sentence for refusal in decision.refusals}
    usable, price = bool(columns.exclusion[row] == NONE), int(columns.usd_per_hour_micro[row])
    return RejectedOffer(
        offer=offer_text(pool, market, *decision.candidates.stored_format(columns.writes[row])),
        reason=sentences.get(row) or str(decision.refusal_codes[decision.refusal_index[row]]),
        usd_per_hour=from_microusd(price) if price else None,
        selected_at_usd_per_hour=_selected_at_price(decision.question, target) if usable else None,
        selected_at_budget_usd=_selected_at_budget(decision.question, target) if usable else None,
    )


def choice_text(choice: Choice | None) -> str:
    """Return pool, market and output format of a choice; "refused" if nothing was chosen."""
    if choice is None:
        return "refused"
    return offer_text(choice.pool, choice.market, choice.format, choice.storage_class) + (
        ", from the cache" if choice.cached else ""
    )


def _differing(first: Question, second: Question) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in Question.model_fields:
        if name not in IDENTITY_FIELDS and getattr(first, name) != getattr(second, name):
            groups.setdefault(INPUT_GROUPS.get(name, name), []).append(name)
    return groups


def _choice_with(question: Question, other: Question, fields: Collection[str]) -> str:
    """Return the choice with these fields of the other question; empty if the combination is invalid."""
    content = {name: getattr(question, name) for name in Question.model_fields} | {
        name: getattr(other, name) for name in fields
    }
    try:
        return choice_text(decide(Question(**content)).choice)
    except ValidationError:
        return ""


def _sufficient_groups(
    first: Question, second: Question, groups: dict[str, list[str]], goal: str
) -> tuple[str, ...]:
    """Return a minimal set of groups that reproduces the second choice, by dropping one group after another.

    Empty if all groups together do not reproduce it: then the code has changed.
    """
    needed = dict(groups)
    if _choice_with(first, second, _fields(needed)) != goal:
        return ()
    for group in groups:
        fewer = {name: fields for name, fields in needed.items() if name != group}
        if _choice_with(first, second, _fields(fewer)) == goal:
            needed = fewer
    return tuple(needed)


def _fields(groups: dict[str, list[str]]) -> list[str]:
    return [name for fields in groups.values() for name in fields]


def _difference(name: str, before: Any, after: Any) -> str:
    """Return `rows 10 -> 20`; for a list, the number of elements that differ and one example."""
    if isinstance(before, tuple) and isinstance(after, tuple):
        removed = [each for each in before if each not in after]
        added = [each for each in after if each not in before]
        example = next((f", for example {_short(each)}" for each in added or removed), "")
        return (
            f"{name}: {len(removed)} of {len(before)} removed or changed, "
            f"{len(added)} of {len(after)} added{example}"
        )
    return f"{name} {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    if isinstance(value, Record):
        plain = {
            name: each
            for name, each in value.model_dump(mode="json").items()
            if isinstance(each, str | int | float) and each != ""
        }
        value = " ".join(f"{name}={each}" for name, each in list(plain.items())[:4])
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _is_selected(question: Question, target: Target) -> bool:
    choice = decide(question).choice
    return choice is not None and (choice.pool, choice.market) == target


def _selected_at_price(question: Question, target: Target) -> Decimal | None:
    """Return the highest price at which the target is selected, by bisection; None if at no price.

    Bisection applies because a lower price never makes the offer less attractive.
    """
    target_quote = question.quote(*target)

    def selected(micro: int) -> bool:
        new = {"usd_per_hour": from_microusd(micro)}
        changed = tuple(
            quote.model_copy(update=new) if quote is target_quote else quote for quote in question.quotes
        )
        return _is_selected(question.model_copy(update={"quotes": changed}), target)

    if target_quote is None or not selected(1):
        return None
    return from_microusd(_last_true(1, microusd(target_quote.usd_per_hour), selected))


def _selected_at_budget(question: Question, target: Target) -> Decimal | None:
    """Return the smallest larger budget with which the target is selected, by bisection; None if with none.

    The search ends at MAX_BUDGET_FACTOR times the budget. With more money, a better offer may fit.
    """

    def refused(micro: int) -> bool:
        return not _is_selected(question.model_copy(update={"budget_usd": from_microusd(micro)}), target)

    low = microusd(question.budget_usd)
    high = low * MAX_BUDGET_FACTOR
    return None if refused(high) else from_microusd(_last_true(low, high, refused) + 1)


def _last_true(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the last number at which `holds` is true, given that it is at `low` and is not at `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
