"""Small scenarios, and rng that fail where a test wants it."""

from __future__ import annotations

from random import Random
from typing import Any

from shoestring.simulation.scenario import Scenario, load_scenario

NOTHING_WRONG: dict[str, Any] = {
    "faults": {},
    "market": {"preemption_factor": 0.0},
    "durations": {"bias_log_sd": 0.0, "log_sd": 0.0, "tail_share": 0.0},
}


def scenario(*kinds: str, **changes: Any) -> Scenario:
    """The one that ships, with some of its chains and with changes."""
    shipped = load_scenario(None).model_dump(mode="json")
    kept = [kind for kind in shipped["pipeline_kinds"] if kind["name"] in (kinds or ("tables", "images"))]
    return Scenario.model_validate(
        shipped | {"pipeline_kinds": kept, "pools": ["n2-standard-4", "g2-standard-4"]} | changes
    )


def budgeted(times: float, base: Scenario) -> Scenario:
    """Every budget is so many times what the router expects."""
    chains = tuple(
        kind.model_copy(update={"budget_factor": times, "budget_log_sd": 0.0}) for kind in base.pipeline_kinds
    )
    return base.model_copy(update={"pipeline_kinds": chains})


class DieAt(Random):
    """Of the writes, counted from 0, the one of this number is the last of its process: before it is made, or after."""

    def __init__(self, write: int, before: bool) -> None:
        super().__init__(0)
        self._write, self._before, self.writes, self._asked = write, before, 0, 0

    def random(self) -> float:
        """Asked twice a write: does it crash, is it lost; and once more where it does, for before (below a half) or after."""
        asked, self._asked = self._asked, self._asked + 1
        if asked == 0:
            return 0.0 if self.writes == self._write else 1.0
        if asked == 1:
            self.writes += 1
            if self.writes - 1 != self._write:
                self._asked = 0
            return 1.0
        self._asked = 0
        return 0.0 if self._before else 1.0
