"""The stages of a run with the items of each loop together, for pages and lines that a person reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from shoestring.core.attempt_id import declared_stage, item_of
from shoestring.reporting.run_story import StageState, StageStory
from shoestring.routing.loop_items import has_others

STATES: tuple[StageState, ...] = ("running", "placed", "stopped", "failed", "lost", "refused", "skipped")
"""The states of an item that are written after those that are done, in this order."""


@dataclass(frozen=True, slots=True)
class LoopStory:
    """The items of a stage that were routed, in their order. `count`: of all items, as their routers know."""

    name: str
    items: tuple[StageStory, ...]
    count: int

    @property
    def states_text(self) -> str:
        """How many items are in each state: `5 of 8 done, 2 running, 1 waiting`."""
        states = Counter(each.state for each in self.items)
        done = states["done"] + states["reused"]
        parts = [f"{done:,} of {self.count:,} done"]
        parts += [f"{states[state]:,} {state}" for state in STATES if states[state]]
        waiting = states["waiting"] + self.count - len(self.items)
        return ", ".join([*parts, f"{waiting:,} waiting"] if waiting else parts)


def in_loops(stages: Iterable[StageStory]) -> list[StageStory | LoopStory]:
    """Return the stages of a run, and in place of the items of a loop the loop."""
    found: dict[str, list[StageStory]] = {}
    for stage in stages:
        found.setdefault(declared_stage(stage.name), []).append(stage)
    return [
        LoopStory(name, tuple(members), _count(members)) if item_of(members[0].name) else members[0]
        for name, members in found.items()
    ]


def loops_of(stages: Iterable[StageStory]) -> dict[str, LoopStory]:
    """Return the loops of a run by the name of their stage."""
    return {each.name: each for each in in_loops(stages) if isinstance(each, LoopStory)}


def _count(items: list[StageStory]) -> int:
    """Return the number of items. The router that decided first has planned all others."""
    decisions = [attempt.decision for item in items for attempt in item.attempts]
    needs = min(decisions, key=lambda decision: decision.question.asked_at).question.needs
    return max(len(items), 1 + needs[1].items if has_others(needs) else 1)
