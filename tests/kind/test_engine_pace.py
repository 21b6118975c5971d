"""The default recipe with its own budget and deadline, at the pace of a controller with default settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from argo_runs import PodHistory, StartedRun, decision
from kind_cluster import Kind
from pod_times import container_end, scheduled_at

from shoestring.core.interfaces import Store
from shoestring.data.run_records import read_record
from shoestring.runtime.records.engine_times import EngineSample

pytestmark = pytest.mark.kind
DEFAULT_PACE_S = 10
STAGES = ("ingest", "preprocess", "train", "evaluate")


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
    argo: Kind, store: Store, pods: PodHistory
) -> None:
    with controller_pace(argo, f"{DEFAULT_PACE_S}s"):
        ended = StartedRun(argo, "flights", "--seed", "41").wait()
    assert ended.code == 0, ended.err
    summary = ended.summary
    assert (summary.status, summary.late_s) == ("done", 0)
    for stage in STAGES:
        question = decision(store, ended.run_id, stage).question
        assert question.engine is not None and question.engine.engine == "argo"
        assert question.engine_s > 0
    samples = [read_record(store, key, EngineSample) for key in store.list("learned/engines/argo/")]
    newest = max(samples, key=lambda sample: sample.measured_at)
    by_pods = [
        (scheduled_at(after) - end).total_seconds()
        for before, after in pairwise(pods.of_stage(ended.run_id, stage)[-1] for stage in STAGES)
        if (end := container_end(before))
    ]
    assert newest.steps_s == pytest.approx(by_pods, abs=3.0)
