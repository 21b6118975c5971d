"""All scenarios. Each takes an engine and an author's package, and raises AssertionError if the engine does
not behave as documented.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine_scenarios import jobs, lost_pods, other_authors, predictions, retries
from engine_scenarios.engine import Engine

Scenario = Callable[[Engine, Path], None]
SCENARIOS: tuple[Scenario, ...] = (
    jobs.main_job,
    jobs.cached_run,
    jobs.refusal,
    jobs.unusable_recipe,
    jobs.own_stage,
    jobs.branches,
    jobs.recurring,
    other_authors.good_component,
    other_authors.component_with_artifacts,
    other_authors.broken_component,
    other_authors.endless_component,
    other_authors.commands,
    other_authors.conditions,
    other_authors.loops,
    other_authors.own_exit_step,
    lost_pods.terminated_and_resumed,
    lost_pods.pod_deleted,
    lost_pods.pod_force_deleted,
    other_authors.equipped,
    retries.stage_retried,
    retries.component_retried,
    # Last: the main job has ended, and its model predicts.
    predictions.predictions,
)
