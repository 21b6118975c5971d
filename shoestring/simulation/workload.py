"""Draw pipeline requests: arrival, rows, budget, and actual durations, which the router does not know."""

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

MAX_SKILL = 0.99


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """A request to run one pipeline.

    `duration_factors`, by stage: actual seconds divided by (prior seconds x bias). `budget_factor`: budget
    divided by the router's estimate. `plateau_share`: share of an elastic stage's samples after which its
    metric stops improving. `skill`: the skill of an elastic stage at that end. `collapse_share`:
    share of those samples after which its skill falls to 0; above 1: never.
    """

    number: int
    kind: PipelineKind
    rows: int
    arrival_s: float
    duration_factors: dict[str, float]
    plateau_share: float
    budget_factor: float
    skill: float
    collapse_share: float

    @property
    def run_id(self) -> str:
        """Return the run id: the kind and the number of the request."""
        return f"{self.kind.name}-{self.number:06d}"


def pipeline_requests(scenario: Scenario, pipelines: int, seed: int) -> Iterator[PipelineRequest]:
    """Draw this many requests in order of arrival.

    Each request has its own random generator, so a shorter simulation is a prefix of a longer one.
    """
    arrivals, at_s = Random(f"{seed}/arrivals"), 0.0
    recorded = recorded_factors(scenario.durations.recorded_file) if scenario.durations.recorded_file else {}
    for number in range(pipelines):
        at_s += arrivals.expovariate(scenario.pipelines_per_hour / 3600)
        rng = Random(f"{seed}/pipeline/{number}")
        kind = rng.choices(scenario.pipeline_kinds, [kind.weight for kind in scenario.pipeline_kinds])[0]
        yield PipelineRequest(
            number=number,
            kind=kind,
            rows=max(1, round(kind.median_rows * math.exp(rng.gauss(0, kind.rows_log_sd)))),
            arrival_s=at_s,
            duration_factors={
                need.stage: duration_factor(scenario.durations, recorded.get(need.stage, []), rng)
                for need in kind.needs
            },
            plateau_share=rng.uniform(0.4, 1.6),
            budget_factor=kind.budget_factor * math.exp(rng.gauss(0, kind.budget_log_sd)),
            skill=min(MAX_SKILL, kind.training.skill * math.exp(rng.gauss(0, kind.training.skill_log_sd))),
            collapse_share=rng.random() if rng.random() < kind.training.collapse_share else math.inf,
        )


def duration_factor(durations: DurationModel, recorded: list[float], rng: Random) -> float:
    """Draw the factor between actual duration and biased prior: from a recording, or log-normal with a
    Pareto tail.
    """
    if recorded:
        return rng.choice(recorded)
    factor = math.exp(rng.gauss(-(durations.log_sd**2) / 2, durations.log_sd))
    if rng.random() < durations.tail_share:
        return factor * rng.paretovariate(durations.tail_index)
    return factor


def stage_bias(durations: DurationModel, seed: int, stage: str, pool: str) -> float:
    """Return the lasting factor between actual and prior seconds of a stage on a pool.

    Half of its variance belongs to the stage, half to the pair of stage and pool.
    """
    sd = durations.bias_log_sd / math.sqrt(2)
    return math.exp(
        Random(f"{seed}/bias/{stage}").gauss(0, sd) + Random(f"{seed}/bias/{stage}/{pool}").gauss(0, sd)
    )


def recorded_factors(path: Path) -> dict[str, list[float]]:
    """Read recorded / prior seconds by stage, from a CSV with columns stage, prior_s and seconds.

    Raises WorldError.
    """
    found: dict[str, list[float]] = defaultdict(list)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                prior_s, seconds = float(row["prior_s"]), float(row["seconds"])
                if not (0 < prior_s < math.inf and 0 < seconds < math.inf):
                    raise ValueError(f"line {number}: seconds must be above 0")
                found[row["stage"]].append(seconds / prior_s)
    except OSError as error:
        raise WorldError(f"cannot read {path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise WorldError(
            f"{path} is not a record of durations, with columns stage, prior_s and seconds: {error}"
        ) from None
    return found
