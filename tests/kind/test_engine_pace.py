"""The default recipe with its own budget and deadline, at the pace of a controller with default settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import decision
from engine_scenarios.jobs import TRAINING
from kind_cluster import Kind
from pod_times import container_end, scheduled_at

from shoestring.data.run_records import read_record
from shoestring.runtime.records.engine_times import EngineSample

pytestmark = pytest.mark.kind
DEFAULT_PACE_S = 10


@contextmanager
def controller_pace(kind: Kind, pace: str) -> Iterator[None]:
    """Let Argo's controller read a workflow again after this time; put its former pace back."""
    deployment = kind.get("deployment", "workflow-controller", namespace="argo")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (before,) = [each["value"] for each in container["env"] if each["name"] == "DEFAULT_REQUEUE_TIME"]
    set_pace(kind, pace)
    try:
        yield
    finally:
        set_pace(kind, before)


def set_pace(kind: Kind, pace: str) -> None:
    kind.kubectl(
        "set", "env", "deployment/workflow-controller", f"DEFAULT_REQUEUE_TIME={pace}", namespace="argo"
    )
    kind.kubectl("rollout", "status", "deployment/workflow-controller", "--timeout=120s", namespace="argo")


def test_the_default_recipe_keeps_its_deadline_at_the_default_pace_and_the_pace_is_learned(
    argo: Kind, engine: ArgoEngine
) -> None:
    with controller_pace(argo, f"{DEFAULT_PACE_S}s"):
        run = engine.run("flights", "--seed", "41")
        summary = run.wait().done()
    assert (summary.status, summary.late_s) == ("done", 0)
    for stage in TRAINING:
        question = decision(engine, run.run_id, stage).question
        assert question.engine is not None and question.engine.engine == "argo"
        assert question.engine_s > 0
    keys = engine.store.list("learned/engines/argo/")
    newest = max(
        (read_record(engine.store, key, EngineSample) for key in keys), key=lambda each: each.measured_at
    )
    by_pods = [
        (scheduled_at(after) - end).total_seconds()
        for before, after in pairwise(engine.pods(run, stage)[-1] for stage in TRAINING)
        if (end := container_end(before))
    ]
    assert newest.steps_s == pytest.approx(by_pods, abs=3.0)
