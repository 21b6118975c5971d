"""The stages of a question as a DAG: which stage waits for which, and which data sets each stage reads.

A stage waits for the stages named in `Need.after` (where it is not set, for the stage before it) and reads
what they leave. A stage that writes no data set passes on the one it read, so an evaluation after a training
reads the data set that the training read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from pydantic import Field

from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Need, StorageClassName

FIRST_SOURCE = -1
"""The source number of the data set that the first stage reads. -2 is that of the first upstream stage, -3 of
the second, and so on."""

MAX_DATASETS_READ = 4
"""Data sets that one stage may read. Each combination of their formats is priced separately."""

MAX_OPEN_DATASETS = 6
"""Data sets that may be open (written, not fully read) at once. Each combination of formats is a state."""


class UpstreamStage(Record):
    """A stage that others wait for and that is already routed: it is done or running.

    `format` and `row_bytes` describe the data set it leaves. With 0 bytes it leaves none, and passes on what
    the stages in `after` leave.
    """

    stage: str
    after: tuple[str, ...] = ()
    format: Format | None = None
    row_bytes: int = Field(0, ge=0)
    ready_s: float = Field(0.0, ge=0, description="seconds until it is done, at P95")
    storage_class: StorageClassName = STANDARD_CLASS


@dataclass(frozen=True, slots=True)
class Dag:
    """The dependencies of the stages, by stage.

    `before`: the stages it waits for. `sources`: the data sets it reads, each the number of the stage that
    writes it, or negative for one that exists already (FIRST_SOURCE). `ready_ms`: milliseconds until running
    stages let it start.
    """

    before: tuple[tuple[int, ...], ...]
    sources: tuple[tuple[int, ...], ...]
    ready_ms: tuple[int, ...]

    @property
    def is_chain(self) -> bool:
        """True if each stage waits for the one before it, and reads at most one data set."""
        follows = all(stage - 1 in before for stage, before in enumerate(self.before) if stage)
        return follows and all(len(each) <= 1 for each in self.sources) and not any(self.ready_ms)

    @property
    def depth(self) -> int:
        """The stages on the longest path: those that no other arrangement runs in parallel."""
        depths = list[int]()
        for before in self.before:
            depths.append(1 + max((depths[each] for each in before), default=0))
        return max(depths)

    def not_after(self, stage: int) -> list[int]:
        """Return the stages that can run before a stage or in parallel with it."""
        later = {stage}
        for other in range(stage + 1, len(self.before)):
            if later & set(self.before[other]):
                later.add(other)
        return [other for other in range(len(self.before)) if other not in later]

    def planning_order(self) -> list[int]:
        """Return the stages after the first, each behind all that wait for it.

        Among the possible orders it prefers the one that keeps the fewest data sets open at a time.
        """
        dependents = [0] * len(self.before)
        for before in self.before:
            for each in before:
                dependents[each] += 1
        left, order, is_open = set(range(1, len(self.before))), list[int](), set[int]()
        while left:
            ready = sorted((each for each in left if not dependents[each]), reverse=True)
            stage = min(ready, key=lambda each: len(self._open_after(is_open, each)))
            is_open = self._open_after(is_open, stage)
            for each in self.before[stage]:
                dependents[each] -= 1
            left.discard(stage)
            order.append(stage)
        return order

    def max_open_datasets(self) -> int:
        """Return the largest number of data sets that are open at a time in the planning order."""
        is_open, maximum = set[int](), 0
        for stage in self.planning_order():
            is_open = self._open_after(is_open, stage)
            maximum = max(maximum, len(is_open))
        return maximum

    def _open_after(self, is_open: set[int], stage: int) -> set[int]:
        """Return the data sets that are open after a stage was planned."""
        return (is_open - {stage}) | {source for source in self.sources[stage] if source > 0}


def build_dag(needs: Sequence[Need], upstream: Sequence[UpstreamStage] = ()) -> Dag:
    """Return the DAG of the stages.

    If the first one waits for a stage that is not among them, it was routed earlier, and the others may wait
    for such stages, too. What these leave is taken for as large as what the first one reads.

    Raises:
        ValueError: two stages have one name; a stage waits for itself, a later stage or an unknown one; or
            too many data sets are read or open at once.
    """
    number = {need.stage: index for index, need in enumerate(needs)}
    routed = {each.stage: index for index, each in enumerate(upstream)}
    unique = len(number.keys() | routed.keys()) == len(needs) + len(upstream)
    if not unique and any(need.after is not None for need in needs):
        raise ValueError("two stages have the same name: it is unclear which of them the others wait for")
    earlier = {name for name in needs[0].after or () if name not in number and name not in routed}
    _check_names(needs, number, routed, has_earlier=bool(earlier))
    before, ready_ms = list[tuple[int, ...]](), list[int]()
    for stage in range(len(needs)):
        names = names_before(needs, stage)
        before.append(tuple(sorted({number[name] for name in names if name in number})))
        waits_s = (upstream[routed[name]].ready_s for name in names if name in routed)
        ready_ms.append(max((round(each * 1000) for each in waits_s), default=0))
    dag = Dag(tuple(before), tuple(_sources(needs, upstream, number, routed)), tuple(ready_ms))
    if not dag.is_chain and (width := dag.max_open_datasets()) > MAX_OPEN_DATASETS:
        raise ValueError(
            f"{width} data sets are open at once, and the planner allows {MAX_OPEN_DATASETS}: "
            "join some of them earlier"
        )
    return dag


def _sources(
    needs: Sequence[Need],
    upstream: Sequence[UpstreamStage],
    number: Mapping[str, int],
    routed: Mapping[str, int],
) -> list[tuple[int, ...]]:
    """Return the data sets that each stage reads. Raises ValueError: a stage reads too many."""
    sources, named = list[tuple[int, ...]](), {name for need in needs for name in need.after or ()}

    def datasets_of(name: str) -> tuple[int, ...]:
        """Return the data sets that are available after the named stage."""
        if name in number:
            return (number[name],) if needs[number[name]].writes_bytes_per_row else sources[number[name]]
        if name not in routed:
            return (FIRST_SOURCE,) if name in named else ()
        stage = upstream[routed[name]]
        if stage.row_bytes:
            return (FIRST_SOURCE - 1 - routed[name],)
        return tuple(source for each in stage.after for source in datasets_of(each))

    for stage, need in enumerate(needs):
        names = names_before(needs, stage)
        known = [name for name in names if stage or name in number or name in routed]
        read = sorted({source for name in known for source in datasets_of(name)})
        sources.append(tuple(read) if read or stage else (FIRST_SOURCE,))
        if len(read) > MAX_DATASETS_READ:
            raise ValueError(
                f"{need.stage} reads {len(read)} data sets, and the planner allows {MAX_DATASETS_READ}: "
                "join some of them in an earlier stage"
            )
    return sources


def names_before(needs: Sequence[Need], stage: int) -> tuple[str, ...]:
    """Return the names of the stages that a stage waits for."""
    after = needs[stage].after
    if after is not None:
        return after
    return (needs[stage - 1].stage,) if stage else ()


def _check_names(
    needs: Sequence[Need], number: Mapping[str, int], routed: Collection[str], has_earlier: bool
) -> None:
    """Check the names that stages wait for. `has_earlier`: they may be those of stages routed earlier.

    Raises:
        ValueError: a stage waits for itself, for a later stage, or for one that does not exist.
    """
    for stage, need in enumerate(needs):
        for name in need.after or ():
            if name == need.stage:
                raise ValueError(f"{name} comes after itself")
            if number.get(name, -1) > stage:
                if cycle := _cycle(needs, number, stage):
                    raise ValueError(f"the stages wait for each other in a cycle: {' after '.join(cycle)}")
                raise ValueError(f"{need.stage} comes after {name}, which is listed later: list {name} first")
            if stage and not has_earlier and name not in number and name not in routed:
                known = ", ".join(number)
                raise ValueError(f"{need.stage} comes after {name}, which does not exist: there is {known}")


def _cycle(needs: Sequence[Need], number: Mapping[str, int], start: int) -> list[str]:
    """Return the names on a path from a stage back to itself along `after`; empty: there is none."""
    paths, seen = [[needs[start].stage]], set[str]()
    while paths:
        path = paths.pop()
        for name in names_before(needs, number[path[-1]]):
            if name == path[0]:
                return [*path, name]
            if name in number and name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []


def read_combinations(formats: Sequence[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Return the ways to read data sets that can be stored in these formats, by the number that offers know
    them by.

    The number is the format itself for one data set; for several it counts the combinations, the formats of
    the last data set first; it is -1 where nothing is read.
    """
    if not formats:
        return {-1: ()}
    if len(formats) == 1:
        return {each: (each,) for each in formats[0]}
    return dict(enumerate(product(*formats)))


def without_stages(needs: Sequence[Need], done: Collection[str]) -> tuple[Need, ...]:
    """Return the stages that are left when some are done. Each still waits for the stages it waited for."""
    return _keep_order(needs, [index for index, need in enumerate(needs) if need.stage not in done])


def stages_from(needs: Sequence[Need], stage: str) -> tuple[Need, ...]:
    """Return a stage and then all stages that do not come before it: what its router considers."""
    current = next(index for index, need in enumerate(needs) if need.stage == stage)
    before = build_dag(needs).before
    frontier, reached = [current], {current}
    while frontier:
        frontier = [
            each
            for each in {earlier for index in frontier for earlier in before[index]}
            if each not in reached
        ]
        reached |= set(frontier)
    return _keep_order(needs, [current, *(index for index in range(len(needs)) if index not in reached)])


def _keep_order(needs: Sequence[Need], indices: list[int]) -> tuple[Need, ...]:
    """Return some of the stages, in the order of `indices`.

    A stage that waited implicitly for the one before it names that one in `after` where its predecessor
    changed, and the first one where another waits for a stage that is left out.
    """
    named = {name for index in indices for name in needs[index].after or ()}
    kept = {needs[index].stage for index in indices}

    def with_after(index: int, previous: int | None) -> Need:
        need = needs[index]
        if need.after is not None or not index or previous == index - 1:
            return need
        name = needs[index - 1].stage
        return need if previous is None and named <= kept else need.model_copy(update={"after": (name,)})

    return tuple(with_after(*each) for each in zip(indices, [None, *indices], strict=False))
