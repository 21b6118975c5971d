"""Why one decision is not another, and why a pool was not taken: by deciding again with something changed. Pure."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field, ValidationError

from shoestring.errors import UsageError
from shoestring.model import Noun
from shoestring.money import Usd, from_microusd, microusd
from shoestring.routing.account import offers_of
from shoestring.routing.decide import choose, decide
from shoestring.routing.decision import Choice, Decision, Question
from shoestring.routing.hindsight import NO_LIMIT_USD, only
from shoestring.routing.sentences import offer

GROUPS = {
    **dict.fromkeys(("quotes", "quarantined"), "prices"),
    **dict.fromkeys(("pools", "stockouts"), "pools"),
    **dict.fromkeys(("needs", "rows", "row_bytes", "reads_format", "data_region", "cached_outcome", "cached_format"), "work"),
    **dict.fromkeys(("budget_usd", "spent_usd", "held_usd", "stage_budgets"), "money"),
    **dict.fromkeys(("preferences", "candidate", "rolled_back"), "policy"),
    "deadline_left_s": "time",
    "speeds": "volume",
    "learned": "receipts",
}
"""Fields of a question that change together. One that is not named is a group of its own."""

ABOUT = frozenset({"run_id", "stage", "attempt", "asked_at", "seed", "images", "notes", "digests"})
"""What a question is, and not what its answer rests on."""


class Change(Noun):
    """A group of inputs that differ. `alone`: what is chosen when that group alone is the other's."""

    group: str
    fields: tuple[str, ...] = Field(description="what differs, from the first to the second")
    alone: str = Field(description="empty: with that alone the question does not hang together")
    flips: bool


class Comparison(Noun):
    """Two decisions for one stage. The first is decided again with the second's inputs, a group at a time."""

    schema_version: Literal[1] = 1
    stage: str
    first: str
    second: str
    same_choice: bool
    remade: bool = Field(description="this version decides the first as it was recorded; else the code has changed, too")
    changes: tuple[Change, ...]
    enough: tuple[str, ...] = Field(description="groups that together make the first choose as the second; none can be left out")


class WhyNot(Noun):
    """An offer that was not taken, and what it would have taken to take it."""

    offer: str
    why: str
    usd_per_hour: Usd | None
    taken_at_usd_per_hour: Usd | None = Field(None, description="the highest price at which it would have been; None: at none")
    smallest_budget_usd: Usd | None = Field(None, description="of one that did not fit: the run budget with which it would have")


def compare(first: Decision, second: Decision) -> Comparison:
    """Which inputs differ, and which of them made the difference.

    Raises:
        UsageError: they are for different stages.
    """
    if first.question.stage != second.question.stage:
        raise UsageError(f"one is for {first.question.stage}, the other for {second.question.stage}: compare two of one stage")
    groups = _differing(first.question, second.question)
    goal, before = name_of(second.choice), name_of(first.choice)
    changes = []
    for group, fields in groups.items():
        alone = _decided(first.question, second.question, fields)
        said = tuple(_said(name, getattr(first.question, name), getattr(second.question, name)) for name in fields)
        changes.append(Change(group=group, fields=said, alone=alone, flips=alone not in ("", before)))
    return Comparison(
        stage=first.question.stage,
        first=before,
        second=goal,
        same_choice=before == goal,
        remade=name_of(decide(first.question).choice) == before,
        changes=tuple(changes),
        enough=_enough(first.question, second.question, groups, goal) if before != goal else (),
    )


def why_not(decision: Decision, pool: str) -> tuple[WhyNot, ...]:
    """Each offer of a pool, or of a node pool, that was not taken.

    Raises:
        UsageError: there was no such pool.
    """
    question = decision.question
    names = {each.name for each in question.pools if pool in (each.name, each.node_pool)}
    if not names:
        known = ", ".join(sorted({each.name for each in question.pools}))
        raise UsageError(f"there was no pool called {pool!r}; there was: {known}")
    return tuple(
        WhyNot(
            offer=offer(each.pool, each.market, each.writes),
            why=each.verdict,
            usd_per_hour=from_microusd(each.usd_per_hour_micro) if each.usd_per_hour_micro else None,
            taken_at_usd_per_hour=_taken_at(decision, each.row) if each.priced else None,
            smallest_budget_usd=_smallest_budget(decision, each.row) if each.priced else None,
        )
        for each in offers_of(decision)
        if each.pool in names and not each.taken
    )


def name_of(choice: Choice | None) -> str:
    if choice is None:
        return "refused"
    return offer(choice.pool, choice.market, choice.format) + (", from the cache" if choice.cached else "")


def _differing(first: Question, second: Question) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in Question.model_fields:
        if name not in ABOUT and getattr(first, name) != getattr(second, name):
            groups.setdefault(GROUPS.get(name, name), []).append(name)
    return groups


def _decided(question: Question, other: Question, fields: Collection[str]) -> str:
    """What is chosen with these fields of the other; empty when they do not go with the rest."""
    content = {name: getattr(question, name) for name in Question.model_fields} | {name: getattr(other, name) for name in fields}
    try:
        return name_of(decide(Question(**content)).choice)
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
        gone, new = [each for each in before if each not in after], [each for each in after if each not in before]
        one = next((f", like {_short(each)}" for each in new or gone), "")
        return f"{name}: {len(gone)} of {len(before)} gone or changed, {len(new)} of {len(after)} new{one}"
    return f"{name} {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    if isinstance(value, Noun):
        plain = {name: each for name, each in value.model_dump(mode="json").items() if isinstance(each, str | int | float) and each != ""}
        value = " ".join(f"{name}={each}" for name, each in list(plain.items())[:4])
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _taken_at(decision: Decision, row: int) -> Decimal | None:
    """By halving: the cheaper an offer is, the likelier it is taken."""
    columns, question = decision.candidates, decision.question
    pool, market = columns.pools[columns.pool[row]], columns.markets[columns.market[row]]
    quotes = [quote for quote in question.quotes if (quote.pool, quote.market) == (pool, market)]
    if not quotes:
        return None

    def taken(micro: int) -> bool:
        changed = tuple(
            quote.model_copy(update={"usd_per_hour": from_microusd(micro)}) if quote in quotes else quote for quote in question.quotes
        )
        choice = decide(question.model_copy(update={"quotes": changed})).choice
        return choice is not None and (choice.pool, choice.market) == (pool, market)

    low, high = 1, microusd(quotes[0].usd_per_hour)
    if not taken(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(middle) else (low, middle)
    return from_microusd(low)


def _smallest_budget(decision: Decision, row: int) -> Decimal | None:
    """With this offer alone for the stage; None when it fitted the money."""
    columns, question = decision.candidates, decision.question
    alone = only(columns, [row, *(other for other, stage in enumerate(columns.stage) if stage)])
    made = choose(question, alone)
    return made.smallest_budget_usd if made.choice is None and made.smallest_budget_usd != NO_LIMIT_USD else None
