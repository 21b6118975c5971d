"""Why one decision is not another, and why a pool was not taken: by deciding again with something changed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any

from pydantic import Field, ValidationError

from shoestring.core.errors import UsageError
from shoestring.core.money import Usd, from_microusd, microusd
from shoestring.core.record import Record, StoredRecord
from shoestring.routing.analysis.hindsight import Target
from shoestring.routing.candidates import NONE
from shoestring.routing.decide import decide
from shoestring.routing.decision import Choice, Decision, Question
from shoestring.routing.offers.offer_costs import Rows, stage_offer_table
from shoestring.routing.pages.text import offer

INPUT_GROUPS = {
    **dict.fromkeys(("quotes", "rejected_prices"), "prices"),
    **dict.fromkeys(("pools", "stockouts"), "pools"),
    **dict.fromkeys(
        ("needs", "rows", "row_bytes", "reads_format", "reads_storage_class", "data_region"), "work"
    ),
    **dict.fromkeys(("cached_outcome", "cached_format", "cached_storage_class", "cached_later_stages"), "work"),
    **dict.fromkeys(("budget_usd", "spent_usd", "held_usd", "stage_budgets"), "money"),
    **dict.fromkeys(("preferences", "candidate_policy", "rollback_reason", "exploration_sd"), "policy"),
    "deadline_left_s": "time",
    "speeds": "volume",
    "learned": "receipts",
}
"""Fields of a question that change together. One that is not named is a group of its own."""

MAX_BUDGET_FACTOR = 1000

IDENTITY_FIELDS = frozenset({"run_id", "stage", "attempt", "asked_at", "seed", "images", "notes", "digests"})
"""What a question is, and not what its answer rests on."""


class InputChange(Record):
    """A group of inputs that differ. `alone`: what is chosen when that group alone is the other's."""

    group: str
    fields: tuple[str, ...] = Field(description="what differs, from the first to the second")
    alone: str = Field(description="empty: with that alone the question does not hang together")
    flips: bool


class DecisionComparison(StoredRecord):
    """Two decisions for one stage. The first is decided again with the second's inputs, a group at a time."""

    stage: str
    first: str
    second: str
    same_choice: bool
    remade: bool = Field(
        description="this version decides the first as it was recorded; else the code has changed, too"
    )
    changes: tuple[InputChange, ...]
    enough: tuple[str, ...] = Field(
        description="groups that together make the first choose as the second; none can be left out"
    )


class RejectedOffer(Record):
    """A pool on a market that was not taken, and what it would have taken to take it."""

    offer: str = Field(description="the pool's best on that market")
    why: str
    usd_per_hour: Usd | None
    selected_at_usd_per_hour: Usd | None = Field(
        None, description="the highest price at which it would have been; None: at none"
    )
    selected_at_budget_usd: Usd | None = Field(
        None, description="the smallest run budget above this one with which it would have been"
    )


def compare(first: Decision, second: Decision) -> DecisionComparison:
    """Which inputs differ, and which of them made the difference.

    Raises:
        UsageError: they are for different stages.
    """
    if first.question.stage != second.question.stage:
        raise UsageError(
            f"one is for {first.question.stage}, the other for {second.question.stage}: compare two of one stage"
        )
    groups = _differing(first.question, second.question)
    goal, before = choice_text(second.choice), choice_text(first.choice)
    changes = []
    for group, fields in groups.items():
        alone = _decided(first.question, second.question, fields)
        said = tuple(
            _said(name, getattr(first.question, name), getattr(second.question, name)) for name in fields
        )
        changes.append(InputChange(group=group, fields=said, alone=alone, flips=alone not in ("", before)))
    return DecisionComparison(
        stage=first.question.stage,
        first=before,
        second=goal,
        same_choice=before == goal,
        remade=choice_text(decide(first.question).choice) == before,
        changes=tuple(changes),
        enough=_enough(first.question, second.question, groups, goal) if before != goal else (),
    )


def why_not(decision: Decision, pool: str) -> tuple[RejectedOffer, ...]:
    """Each market of a pool, or of a node pool's shares, that was not taken.

    Raises:
        UsageError: there was no such pool.
    """
    names = {each.name for each in decision.question.pools if pool in (each.name, each.node_pool)}
    if not names:
        known = ", ".join(sorted({each.name for each in decision.question.pools}))
        raise UsageError(f"there was no pool called {pool!r}; there was: {known}")
    choice, best = decision.choice, dict[Target, int]()
    columns = stage_offer_table(decision.candidates, 0)
    for row in sorted(
        range(len(columns.pool)),
        key=lambda row: (columns.exclusion[row] != NONE, columns.est_microusd[row], row),
    ):
        best.setdefault(_place(decision, columns, row), row)
    return tuple(
        _why_not(decision, columns, row)
        for place, row in best.items()
        if place[0] in names and (choice is None or place != (choice.pool, choice.market))
    )


def _place(decision: Decision, columns: Rows, row: int) -> Target:
    return decision.candidates.pools[columns.pool[row]], decision.candidates.markets[columns.market[row]]


def _why_not(decision: Decision, columns: Rows, row: int) -> RejectedOffer:
    pool, market = place = _place(decision, columns, row)
    spoken = {refusal.candidate: refusal.sentence for refusal in decision.refusals}
    able, price = bool(columns.exclusion[row] == NONE), int(columns.usd_per_hour_micro[row])
    return RejectedOffer(
        offer=offer(pool, market, *decision.candidates.lying(columns.writes[row])),
        why=spoken.get(row) or str(decision.refusal_codes[decision.refusal_index[row]]),
        usd_per_hour=from_microusd(price) if price else None,
        selected_at_usd_per_hour=_taken_at_price(decision.question, place) if able else None,
        selected_at_budget_usd=_taken_at_budget(decision.question, place) if able else None,
    )


def choice_text(choice: Choice | None) -> str:
    if choice is None:
        return "refused"
    return offer(choice.pool, choice.market, choice.format, choice.storage_class) + (
        ", from the cache" if choice.cached else ""
    )


def _differing(first: Question, second: Question) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in Question.model_fields:
        if name not in IDENTITY_FIELDS and getattr(first, name) != getattr(second, name):
            groups.setdefault(INPUT_GROUPS.get(name, name), []).append(name)
    return groups


def _decided(question: Question, other: Question, fields: Collection[str]) -> str:
    """What is chosen with these fields of the other; empty when they do not go with the rest."""
    content = {name: getattr(question, name) for name in Question.model_fields} | {
        name: getattr(other, name) for name in fields
    }
    try:
        return choice_text(decide(Question(**content)).choice)
    except ValidationError:
        return ""


def _enough(first: Question, second: Question, groups: dict[str, list[str]], goal: str) -> tuple[str, ...]:
    """Drop one group after another that is not needed. Empty where all of them together do not do it: then the code has changed."""
    kept = dict(groups)
    if _decided(first, second, _fields(kept)) != goal:
        return ()
    for group in groups:
        fewer = {name: fields for name, fields in kept.items() if name != group}
        if _decided(first, second, _fields(fewer)) == goal:
            kept = fewer
    return tuple(kept)


def _fields(groups: dict[str, list[str]]) -> list[str]:
    return [name for fields in groups.values() for name in fields]


def _said(name: str, before: Any, after: Any) -> str:
    """`rows 10 -> 20`; of a list, how many of its members differ and one of them."""
    if isinstance(before, tuple) and isinstance(after, tuple):
        gone, new = (
            [each for each in before if each not in after],
            [each for each in after if each not in before],
        )
        one = next((f", like {_short(each)}" for each in new or gone), "")
        return f"{name}: {len(gone)} of {len(before)} gone or changed, {len(new)} of {len(after)} new{one}"
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


def _taken(question: Question, place: Target) -> bool:
    choice = decide(question).choice
    return choice is not None and (choice.pool, choice.market) == place


def _taken_at_price(question: Question, place: Target) -> Decimal | None:
    """By halving: the cheaper an offer is, the likelier it is taken."""
    mine = [quote for quote in question.quotes if (quote.pool, quote.market) == place]

    def taken(micro: int) -> bool:
        new = {"usd_per_hour": from_microusd(micro)}
        changed = tuple(quote.model_copy(update=new) if quote in mine else quote for quote in question.quotes)
        return _taken(question.model_copy(update={"quotes": changed}), place)

    if not mine or not taken(1):
        return None
    return from_microusd(_turn(1, microusd(mine[0].usd_per_hour), taken))


def _taken_at_budget(question: Question, place: Target) -> Decimal | None:
    """By halving, up to MAX_BUDGET_FACTOR times the budget there was: with more money an offer may fit that is the better one."""

    def refused(micro: int) -> bool:
        return not _taken(question.model_copy(update={"budget_usd": from_microusd(micro)}), place)

    low = microusd(question.budget_usd)
    high = low * MAX_BUDGET_FACTOR
    return None if refused(high) else from_microusd(_turn(low, high, refused) + 1)


def _turn(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last number at which it holds: it does at `low`, and not at `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
