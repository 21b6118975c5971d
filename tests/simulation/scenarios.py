"""Small scenarios, and a random generator that injects a fault at a chosen write."""

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
    """Return the scenario that ships, with some of its pipeline kinds and with changes."""
    shipped = load_scenario(None).model_dump(mode="json")
    kept = [kind for kind in shipped["pipeline_kinds"] if kind["name"] in (kinds or ("tables", "images"))]
    return Scenario.model_validate(
        shipped | {"pipeline_kinds": kept, "pools": ["n2-standard-4", "g2-standard-4"]} | changes
    )


def budgeted(times: float, base: Scenario) -> Scenario:
    """Set every budget to a multiple of the router's estimate."""
    chains = tuple(
        kind.model_copy(update={"budget_factor": times, "budget_log_sd": 0.0}) for kind in base.pipeline_kinds
    )
    return base.model_copy(update={"pipeline_kinds": chains})


class DieAt(Random):
    """The process dies at the write with this number, counted from 0: before the write, or after it."""

    def __init__(self, write: int, before: bool) -> None:
        super().__init__(0)
        self._write, self._before, self.writes, self._asked = write, before, 0, 0

    def random(self) -> float:
        """Return 0 to inject a fault.

        A write draws twice: for a crash and for an error. With a fault it draws once more: before the write
        (below 0.5) or after it.
        """
        draw, self._asked = self._asked, self._asked + 1
        if draw == 0:
            return 0.0 if self.writes == self._write else 1.0
        if draw == 1:
            self.writes += 1
            if self.writes - 1 != self._write:
                self._asked = 0
            return 1.0
        self._asked = 0
        return 0.0 if self._before else 1.0
