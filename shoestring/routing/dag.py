"""Who waits for whom, and who reads what: the stages of a question as a graph.

A stage waits for those that it comes after (`Need.after`; said of none, the one before it), and reads what they leave. One that writes no
data set hands on what it read itself, so that an evaluation after a training reads the data that the training read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from pydantic import Field

from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Need, StorageClassName

FIRST = -1
"""As a source: the data set that the first stage is given. -2 is that of the first of `given`, -3 of the second, and so on."""

MOST_READ = 4
"""Data sets that one stage reads: each way to read them has a price of its own."""

MOST_OPEN = 6
"""Data sets that are written and not all read yet, where a plan is at its widest: each way for them to lie is kept apart."""


class UpstreamStage(Record):
    """A stage that others come after and that is not to be routed any more: it is done, or under way.

    `format` and `row_bytes` are of the data set that it leaves. One that leaves none (0 bytes) hands on what those of `after` leave.
    """

    stage: str
    after: tuple[str, ...] = ()
    format: Format | None = None
    row_bytes: int = Field(0, ge=0)
    ready_s: float = Field(0.0, ge=0, description="until it is done, at P95")
    storage_class: StorageClassName = STANDARD_CLASS


@dataclass(frozen=True, slots=True)
class Dag:
    """By stage: the stages that it waits for; its sources, each the number of the stage that writes that data set, or below 0 of one that
    is there (FIRST); milliseconds until what is under way lets it begin."""

    before: tuple[tuple[int, ...], ...]
    sources: tuple[tuple[int, ...], ...]
    ready_ms: tuple[int, ...]

    @property
    def is_chain(self) -> bool:
        """Does each stage wait for the one before it, and is there one data set at a time?"""
        follows = all(stage - 1 in before for stage, before in enumerate(self.before) if stage)
        return follows and all(len(each) <= 1 for each in self.sources) and not any(self.ready_ms)

    def others(self, stage: int) -> list[int]:
        """The stages that may be done before a stage: all but those that come after it."""
        behind = {stage}
        for other in range(stage + 1, len(self.before)):
            if behind & set(self.before[other]):
                behind.add(other)
        return [other for other in range(len(self.before)) if other not in behind]

    def order(self) -> list[int]:
        """The stages, each behind all that wait for it, so that few data sets are open at a time; the first stage last."""
        waited_for = [0] * len(self.before)
        for before in self.before:
            for each in before:
                waited_for[each] += 1
        left, found, is_open = set(range(1, len(self.before))), list[int](), set[int]()
        while left:
            able = sorted((each for each in left if not waited_for[each]), reverse=True)
            stage = min(
                able,
                key=lambda each: len(
                    (is_open - {each}) | {source for source in self.sources[each] if source > 0}
                ),
            )
            is_open = (is_open - {stage}) | {source for source in self.sources[stage] if source > 0}
            for each in self.before[stage]:
                waited_for[each] -= 1
            left.discard(stage)
            found.append(stage)
        return found

    def widest(self) -> int:
        """The most data sets that are open at a time in that order."""
        is_open, most = set[int](), 0
        for stage in self.order():
            is_open = (is_open - {stage}) | {source for source in self.sources[stage] if source > 0}
            most = max(most, len(is_open))
        return most


def build_dag(needs: Sequence[Need], given: Sequence[UpstreamStage] = ()) -> Dag:
    """Raises ValueError: a stage comes after itself, after one behind it, or after one that there is not; or reads too many data sets."""
    number, there = (
        {need.stage: place for place, need in enumerate(needs)},
        {each.stage: place for place, each in enumerate(given)},
    )
    if any(need.after is not None for need in needs) and len(number.keys() | there.keys()) < len(needs) + len(
        given
    ):
        raise ValueError("two stages have one name: what comes after it could be after either")
    upstream = {name for name in needs[0].after or () if name not in number and name not in there}
    _check_names(needs, number, there, upstream)
    before, sources, ready = list[tuple[int, ...]](), list[tuple[int, ...]](), list[int]()

    def left_by(name: str) -> tuple[int, ...]:
        if name in number:
            return (number[name],) if needs[number[name]].writes_bytes_per_row else sources[number[name]]
        if name in there:
            one = given[there[name]]
            return (
                (-2 - there[name],)
                if one.row_bytes
                else tuple(source for each in one.after for source in left_by(each))
            )
        return (FIRST,) if name in upstream else ()

    for stage, need in enumerate(needs):
        names = need.after if need.after is not None else (needs[stage - 1].stage,) if stage else ()
        found = sorted(
            {
                source
                for name in names
                for source in (left_by(name) if name in number or name in there or stage else ())
            }
        )
        before.append(tuple(sorted({number[name] for name in names if name in number})))
        sources.append(tuple(found) if found or stage else (FIRST,))
        ready.append(
            max((round(given[there[name]].ready_s * 1000) for name in names if name in there), default=0)
        )
        if len(found) > MOST_READ:
            raise ValueError(
                f"{need.stage} reads {len(found)} data sets, and at most {MOST_READ} are planned with: join some of them before"
            )
    made = Dag(tuple(before), tuple(sources), tuple(ready))
    if not made.is_chain and (width := made.widest()) > MOST_OPEN:
        raise ValueError(
            f"{width} data sets are waited for at once, and at most {MOST_OPEN} are planned with: join some of them sooner"
        )
    return made


def _check_names(
    needs: Sequence[Need], number: Mapping[str, int], there: Collection[str], upstream: Collection[str]
) -> None:
    """Raises ValueError."""
    for stage, need in enumerate(needs):
        for name in need.after or ():
            if name == need.stage:
                raise ValueError(f"{name} comes after itself")
            if number.get(name, -1) > stage:
                if found := _round(needs, number, stage):
                    raise ValueError(f"stages wait for each other in a circle: {' after '.join(found)}")
                raise ValueError(
                    f"{need.stage} comes after {name}, which is listed behind it: list {name} first"
                )
            if stage and name not in number and name not in there and name not in upstream:
                raise ValueError(
                    f"{need.stage} comes after {name}, and there is no such stage: there is {', '.join(number)}"
                )


def _round(needs: Sequence[Need], number: Mapping[str, int], start: int) -> list[str]:
    """The way from a stage back to itself, by what each comes after; empty: there is none."""
    trails, seen = [[needs[start].stage]], set[str]()
    while trails:
        trail = trails.pop()
        place = number[trail[-1]]
        names = needs[place].after
        for name in names if names is not None else (needs[place - 1].stage,) if place else ():
            if name == trail[0]:
                return [*trail, name]
            if name in number and name not in seen:
                seen.add(name)
                trails.append([*trail, name])
    return []


def readings(formats: Sequence[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """The ways to read data sets that may lie in these formats, by the number that offers know them by: the format itself where there is
    one data set, else counted through, the last one's formats first; -1 where there is none."""
    if not formats:
        return {-1: ()}
    if len(formats) == 1:
        return {each: (each,) for each in formats[0]}
    return dict(enumerate(product(*formats)))


def without(needs: Sequence[Need], gone: Collection[str]) -> tuple[Need, ...]:
    """The stages that are left when some are done, each still after those that it came after."""
    return _told(needs, [place for place, need in enumerate(needs) if need.stage not in gone])


def stages_from(needs: Sequence[Need], stage: str) -> tuple[Need, ...]:
    """A stage, and then all that do not come before it: what its router looks at. Of a chain, the rest of it."""
    here = next(place for place, need in enumerate(needs) if need.stage == stage)
    before = build_dag(needs).before
    led, reached = [here], {here}
    while led:
        led = [each for each in {found for place in led for found in before[place]} if each not in reached]
        reached |= set(led)
    return _told(needs, [here, *(place for place in range(len(needs)) if place not in reached)])


def _told(needs: Sequence[Need], places: list[int]) -> tuple[Need, ...]:
    """Some of the stages in an order of their own; where the one before it is another now, a stage says which it comes after."""
    named = {name for place in places for name in needs[place].after or ()}

    def told(place: int, previous: int | None) -> Need:
        need = needs[place]
        if need.after is not None or not place or previous == place - 1:
            return need
        name = needs[place - 1].stage
        return need if previous is None and name not in named else need.model_copy(update={"after": (name,)})

    return tuple(told(place, previous) for place, previous in zip(places, [None, *places], strict=False))
