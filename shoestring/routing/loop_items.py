"""The items of a loop: each is routed, paid and settled by itself, under a name of its own.

A router is given the lists of the loops around its stage, and reads from its own node which item it routes.
It plans the items that are not routed yet together with its own, so that what they need is kept for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import prod
from typing import Any

from pydantic import Field

from shoestring.core.attempt_id import declared_stage, item_of, item_stage
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.errors import UsageError
from shoestring.core.money import usd
from shoestring.core.pod_ref import item_of_node
from shoestring.core.record import Record, digest
from shoestring.core.types import Need


class Loop(Record):
    """A loop around a stage, as its pipeline is compiled. `items` null: a list that the run makes."""

    items: tuple[Any, ...] | None = None
    at_once: int = Field(0, ge=0, description="items that it works on at the same time; 0: all")


@dataclass(frozen=True, slots=True)
class LoopItem:
    """The item that a router routes.

    `name`: its number in each loop, the outermost first, such as `2.1`. `count`: the items of all loops.
    `at_once`: those that run at the same time; 0: all. `sha256`: of its values, as far as they are known.
    """

    name: str
    count: int
    at_once: int
    sha256: str


def loop_item(need: Need, loops: Sequence[Loop], made: Sequence[Any] | None, node: str) -> LoopItem:
    """Return the item of a router, by the name of its node.

    Where a list is not known, the items are those that the Need expects.

    Args:
        loops: those around the stage, the outermost first.
        made: the list of the innermost loop, if the run has made it.

    Raises:
        UsageError: the engine has not named the item, or its list is shorter.
    """
    lists = [*(loop.items for loop in loops[:-1]), loops[-1].items if made is None else made]
    name = item_of_node(node)
    numbers = [int(each) for each in name.split(".") if each]
    if len(numbers) != len(loops):
        raise UsageError(
            f"{need.stage} is in {len(loops)} loops, and its route step runs as {node or 'an unknown node'}: "
            "compile the pipeline with this version of Shoestring for the engine that runs it"
        )
    for number, items in zip(numbers, lists, strict=True):
        if items is not None and number >= len(items):
            raise UsageError(f"{need.stage} works on item {number} of a loop of {len(items)} items")
    values = [items and items[number] for number, items in zip(numbers, lists, strict=True)]
    sha256 = digest(canonical_bytes({"item": values}))
    lengths = [len(items) for items in lists if items is not None]
    if len(lengths) < len(lists):
        return LoopItem(name, max(need.items, 1), need.at_once, sha256)
    limits = (loop.at_once or length for loop, length in zip(loops, lengths, strict=True))
    return LoopItem(name, prod(lengths), prod(map(min, limits, lengths)), sha256)


def needs_of_item(needs: Sequence[Need], item: LoopItem) -> tuple[Need, ...]:
    """Return the stages that the router of an item plans: the item, all others of its loop, and what comes
    after them.
    """
    first = needs[0]
    own = first.model_copy(update={"stage": item_stage(first.stage, item.name), "items": 1, "at_once": 0})
    others = first.model_copy(update={"after": first.after or (), "at_once": item.at_once})
    both = (own.stage, first.stage)

    def waiting(need: Need, *, is_next: bool) -> Need:
        names = need.after if need.after is not None else (first.stage,) if is_next else ()
        if first.stage not in names:
            return need
        found = (name for each in names for name in (both if each == first.stage else (each,)))
        return need.model_copy(update={"after": tuple(found)})

    later = [waiting(need, is_next=not index) for index, need in enumerate(needs[1:])]
    return without_empty((own, others.model_copy(update={"items": item.count - 1}), *later))


def with_open_items(needs: Sequence[Need], routed: Collection[str]) -> tuple[Need, ...]:
    """Return the stages of a router with the items of each loop that are not routed yet; 0 of a loop whose
    items all are. `routed`: the items that are, by the names of their stages.
    """
    counts = Counter(declared_stage(name) for name in routed if name != needs[0].stage)
    return without_empty(
        tuple(
            need.model_copy(update={"items": max(0, need.items - counts[need.stage])})
            if counts[need.stage]
            else need
            for need in needs
        )
    )


def without_empty(needs: tuple[Need, ...]) -> tuple[Need, ...]:
    """Return the stages of the router of an item; where it is the last of its loop, without the others."""
    if not has_others(needs) or needs[1].items:
        return needs
    first, others, *later = needs

    def waiting(need: Need) -> Need:
        if others.stage not in (need.after or ()):
            return need
        return need.model_copy(update={"after": tuple(n for n in need.after or () if n != others.stage)})

    return first, *map(waiting, later)


def has_others(needs: Sequence[Need]) -> bool:
    """Return whether these are the stages of the router of an item, with the others of its loop."""
    return len(needs) > 1 and needs[0].stage != needs[1].stage == declared_stage(needs[0].stage)


def budgets_of(left_usd: dict[str, Decimal], needs: Sequence[Need]) -> dict[str, Decimal]:
    """Return what is left of the budgets of stages, by the stages that a router plans.

    An item may use all that is left for its loop, less what the others are planned with: a share for each.
    """
    name, found = declared_stage(needs[0].stage), dict(left_usd)
    if name in left_usd and item_of(needs[0].stage):
        others = needs[1].items if has_others(needs) else 0
        found |= {needs[0].stage: left_usd[name], name: usd(left_usd[name] * others / (others + 1))}
    return found
