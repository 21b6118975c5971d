"""The scenario of a component with artifacts: what Kubeflow is given for it, and the refusal for Argo."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from engine_scenarios.own_package import AUTHORED, strangers_pipeline

from shoestring.core.errors import UsageError
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.kubeflow import write

WRITER, READER = "write-table", "read-table"


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(AUTHORED))
    module, _, name = strangers_pipeline("artifacts").reference.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.fixture
def documents(pipeline: Any, tmp_path: Path) -> list[Any]:
    """The pipeline, and what KFP's extension for Kubernetes sets for its pods."""
    return list(yaml.safe_load_all(write(pipeline, tmp_path / "artifacts.yaml").read_text()))


def tasks_of(document: Any) -> dict[str, Any]:
    (dag,) = [each["dag"] for each in document["components"].values() if "dag" in each]
    return dict(dag["tasks"])


def test_an_artifact_reaches_the_component_that_reads_it(documents: list[Any]) -> None:
    spec, tasks = documents[0], tasks_of(documents[0])
    made = spec["components"][f"comp-{WRITER}"]["outputDefinitions"]["artifacts"]
    assert made["table"]["artifactType"]["schemaTitle"] == "system.Dataset"
    assert tasks[READER]["inputs"]["artifacts"] == {
        "table": {"taskOutputArtifact": {"producerTask": WRITER, "outputArtifactKey": "table"}}
    }
    container = spec["deploymentSpec"]["executors"][f"exec-{READER}"]["container"]
    assert "{{$.inputs.artifacts['table'].path}}" in container["args"]


def test_each_component_is_placed_by_a_router_that_waits_for_what_it_reads(documents: list[Any]) -> None:
    tasks = tasks_of(documents[0])
    executors = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    routers = {task["taskInfo"]["name"]: name for name, task in tasks.items() if name.startswith("route")}
    reads = {(WRITER, "theirs"): {"ingest"}, (READER, "reader"): {"ingest", WRITER}}
    for (name, stage), producers in reads.items():
        router = routers[f"route {stage}"]
        assert set(tasks[router]["dependentTasks"]) == producers
        assert set(tasks[name]["dependentTasks"]) == {*producers, router}
        cpu = tasks[name]["inputs"]["parameters"][f"pipelinechannel--{router}-cpu"]
        assert cpu["taskOutputParameter"] == {"producerTask": router, "outputParameterKey": "cpu"}
        assert executors[f"exec-{name}"]["podMetadata"]["labels"] == {"shoestring.dev/stage": stage}
        assert "nodeSelectorJson" in str(executors[f"exec-{name}"]["nodeSelector"])


def test_argo_refuses_it_by_name(pipeline: Any) -> None:
    # KFP's compiled pipeline has its tasks in no order.
    with pytest.raises(UsageError, match=rf"({WRITER}|{READER}) has artifacts \(table\), which Kubeflow"):
        workflow_template(pipeline)
