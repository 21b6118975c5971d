"""The branches of a pipeline, of which a run takes at most one of each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from shoestring.core.types import Need
from shoestring.routing.dag import names_before

MAX_WAYS = 32
"""Ways through a pipeline, each of which is planned. A pipeline with more is refused."""


def branches_of(need: Need) -> dict[str, str]:
    """Return the branch that a stage is in, by group, the outermost first."""
    parts = need.branch.split("/") if need.branch else []
    return {"/".join(parts[: at + 1]): parts[at + 1] for at in range(0, len(parts), 2)}


def ways(needs: Sequence[Need]) -> list[tuple[Need, ...]]:
    """Return the stages of each way that a run can take from the first stage on.

    It takes one branch of each group. A group of one branch is always taken, as it may be.

    Raises:
        ValueError: there are more than MAX_WAYS.
    """
    taken, groups = branches_of(needs[0]), dict[str, dict[str, None]]()
    for need in needs:
        for group, branch in branches_of(need).items():
            groups.setdefault(group, {})[branch] = None
    open_groups = {group: tuple(found) for group, found in groups.items() if group not in taken}
    if (count := prod(map(len, open_groups.values()))) > MAX_WAYS:
        raise ValueError(
            f"the branches after {needs[0].stage} combine in {count} ways, and the planner allows "
            f"{MAX_WAYS}: leave out `branch` where a branch costs little"
        )
    found = [
        of_way(needs, taken | dict(zip(open_groups, chosen, strict=True)))
        for chosen in product(*open_groups.values())
    ]
    return [*{tuple(need.stage for need in way): way for way in found}.values()]


def of_way(needs: Sequence[Need], way: Mapping[str, str]) -> tuple[Need, ...]:
    """Return the stages that can run where these branches are taken, by group. A stage that waits for one of
    another branch waits for what that one waits for.
    """
    left_out = {need.stage for need in needs if excludes(way, need)}
    before = {need.stage: names_before(needs, index) for index, need in enumerate(needs)}

    def waits_for(name: str) -> list[str]:
        if name not in left_out:
            return [name]
        return [other for each in before[name] for other in waits_for(each)]

    def waiting(need: Need) -> Need:
        if left_out.isdisjoint(before[need.stage]):
            return need
        names = dict.fromkeys(other for each in before[need.stage] for other in waits_for(each))
        return need.model_copy(update={"after": tuple(names)})

    return tuple(waiting(need) for need in needs if need.stage not in left_out)


def excludes(way: Mapping[str, str], need: Need) -> bool:
    """Return whether a stage is in another branch than the one that is taken."""
    return any(way.get(group, branch) != branch for group, branch in branches_of(need).items())
