"""The scenarios, and the documented commands, on a Kubeflow Pipelines server of the user's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from documented import run_block, tagged
from engine_scenarios.kubeflow_engine import KubeflowEngine
from engine_scenarios.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.kubeflow


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_kubeflow(engine: KubeflowEngine, package: Path, scenario: Scenario) -> None:
    scenario(engine, package)


def test_the_blocks_of_the_page_run(engine: KubeflowEngine, tmp_path: Path) -> None:
    """Under a name of the suite's, so that cleaning up finds the pipeline, and with the registry's images."""
    for block in tagged("kubeflow", "kubeflow.md"):
        mine = f"--name {engine.suite}-page --file {engine.compiled(None)}"
        options = " ".join((*engine.server_options, mine))
        text = block.text.replace("--host http://localhost:8080", options)
        assert text != block.text
        run_block(replace(block, text=text), tmp_path)
