"""The identity of one attempt at a stage, printed and parsed in one place, and the names of the stages of a
loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"(?P<stage>.+)-(?P<number>[0-9]+)")


@dataclass(frozen=True, order=True, slots=True)
class AttemptId:
    """One attempt at a stage of a run.

    It prints as `STAGE-N`, for example `train-2`. The ledger names the attempt's reservation so, and the
    store names its records so. `number` is 1 for the first attempt.
    """

    run_id: str
    stage: str
    number: int

    def __str__(self) -> str:
        return f"{self.stage}-{self.number}"

    @classmethod
    def parse(cls, run_id: str, text: str) -> AttemptId:
        """Return the attempt that `text` (`STAGE-N`) names. Raises ValueError."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not STAGE-N, the name of an attempt")
        return cls(run_id, found["stage"], int(found["number"]))


def item_stage(stage: str, item: str) -> str:
    """Return the name that a stage has for one item of the loops around it: `work.3`, or `work.2.1` within
    two loops. It reserves, decides and reports under that name. `item`: empty outside of loops.
    """
    return f"{stage}.{item}" if item else stage


def declared_stage(stage: str) -> str:
    """Return the name that its author gave a stage: `work` of `work.3`. Its budget, the labels of its pods
    and what was learned of it have that name.
    """
    return stage.partition(".")[0]


def item_of(stage: str) -> str:
    """Return the item that a stage works on: its number in each loop around it, the outermost first."""
    return stage.partition(".")[2]


def item_order(stage: str) -> tuple[int, ...]:
    """Return what sorts the items of one loop."""
    return tuple(int(number) for number in item_of(stage).split(".") if number)
