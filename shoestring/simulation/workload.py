"""Who wants to run what, when, for how much; and how long things would really take, which the router is not told."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from shoestring.core.errors import WorldError
from shoestring.simulation.scenario import DurationModel, PipelineKind, Scenario


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """One pipeline that somebody begins. `luck`: by stage, true seconds over what its bias makes of the prior.

    `budget_factor`: the budget over what the router expects. `plateau_share`: share of an elastic stage's samples after which it stops gaining.
    """

    number: int
    kind: PipelineKind
    rows: int
    arrival_s: float
    duration_factors: dict[str, float]
    plateau_share: float
    budget_factor: float

    @property
    def run_id(self) -> str:
        return f"{self.kind.name}-{self.number:06d}"


def pipeline_requests(scenario: Scenario, pipelines: int, seed: int) -> Iterator[PipelineRequest]:
    """So many pipelines, in the order in which they are begun. Each has dice of its own, so that fewer are the beginning of more."""
    arrivals, at_s = Random(f"{seed}/arrivals"), 0.0
    recorded = recorded_factors(scenario.durations.recorded_file) if scenario.durations.recorded_file else {}
    for number in range(pipelines):
        at_s += arrivals.expovariate(scenario.pipelines_per_hour / 3600)
        dice = Random(f"{seed}/pipeline/{number}")
        kind = dice.choices(scenario.pipeline_kinds, [kind.weight for kind in scenario.pipeline_kinds])[0]
        yield PipelineRequest(
            number=number,
            kind=kind,
            rows=max(1, round(kind.median_rows * math.exp(dice.gauss(0, kind.rows_log_sd)))),
            arrival_s=at_s,
            duration_factors={
                need.stage: duration_factor(scenario.durations, recorded.get(need.stage, []), dice)
                for need in kind.needs
            },
            plateau_share=dice.uniform(0.4, 1.6),
            budget_factor=kind.budget_factor * math.exp(dice.gauss(0, kind.budget_log_sd)),
        )


def duration_factor(durations: DurationModel, recorded: list[float], dice: Random) -> float:
    if recorded:
        return dice.choice(recorded)
    times = math.exp(dice.gauss(-(durations.log_sd**2) / 2, durations.log_sd))
    return times * dice.paretovariate(durations.tail_index) if dice.random() < durations.tail_share else times


def stage_bias(durations: DurationModel, seed: int, stage: str, pool: str) -> float:
    """What a stage on a pool really takes over the prior, whenever it runs: half of it the stage's own, half the pool's with it."""
    sd = durations.bias_log_sd / math.sqrt(2)
    return math.exp(
        Random(f"{seed}/bias/{stage}").gauss(0, sd) + Random(f"{seed}/bias/{stage}/{pool}").gauss(0, sd)
    )


def recorded_factors(path: Path) -> dict[str, list[float]]:
    """By stage: recorded seconds over the prior's, from a CSV of stage, prior_s, seconds. Raises WorldError."""
    found: dict[str, list[float]] = defaultdict(list)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                prior_s, seconds = float(row["prior_s"]), float(row["seconds"])
                if not (0 < prior_s < math.inf and 0 < seconds < math.inf):
                    raise ValueError(f"line {number}: seconds have to be above 0")
                found[row["stage"]].append(seconds / prior_s)
    except OSError as error:
        raise WorldError(f"cannot read {path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise WorldError(
            f"{path} is not a record of durations, with columns stage, prior_s and seconds: {error}"
        ) from None
    return found
