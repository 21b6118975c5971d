"""A run that waits for people: until a user resumes it, and until its budget is approved."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
import yaml
from commands import shoestring
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import check_books, wait_for_decision
from engine_scenarios.recipes import RAIN
from engine_scenarios.waiting import wait_for
from kind_cluster import Kind
from world_changes import restored_files, write_world_file

from shoestring.backends.argo import ArgoProgress, open_argo
from shoestring.backends.local import WallClock
from shoestring.data.recipe import Recipe
from shoestring.pipelines.argo import workflow
from shoestring.pipelines.argo_templates import parameter_values
from shoestring.reporting.summary import RunSummary
from shoestring.spending.ledger.ledger import Ledger, account_names

pytestmark = pytest.mark.kind


class CreatedWorkflow:
    """A Workflow that `kubectl create` created."""

    def __init__(self, kind: Kind, run_id: str, **values: str) -> None:
        document = workflow("shoestring-train", "flights")
        recipe = Recipe.model_validate(yaml.safe_load(RAIN)).model_dump_json(exclude_defaults=True)
        document["spec"]["arguments"]["parameters"] = parameter_values(
            {"recipe": recipe, "run_id": run_id} | values
        )
        made = kind.kubectl("create", "--filename", "-", "--output", "name", stdin=yaml.safe_dump(document))
        self.name, self._kind, self._argo = (
            made.strip().rpartition("/")[2],
            kind,
            open_argo(kind.context, "shoestring"),
        )

    def patch(self, changed: dict[str, Any]) -> None:
        self._kind.kubectl("patch", "workflow", self.name, "--type", "merge", "--patch", json.dumps(changed))

    def resume(self) -> None:
        """Resume the Workflow like `argo resume`."""
        nodes = self._kind.get("workflow", self.name)["status"]["nodes"]
        self.patch(
            {
                "status": {
                    "nodes": {
                        name: {"phase": "Succeeded"}
                        for name, node in nodes.items()
                        if node["type"] == "Suspend"
                    }
                }
            }
        )

    def wait_for_message(self, message: str) -> ArgoProgress:
        """Wait until a step has this message, or until the Workflow ends."""

        def find() -> ArgoProgress | None:
            progress = self._argo.read(self.name)
            return (
                progress
                if progress.is_finished or any(message in step.message for step in progress.steps)
                else None
            )

        return wait_for(find, f"a step of {self.name} with the message {message!r}", timeout_s=240.0)

    def delete(self) -> None:
        self._kind.kubectl("delete", "workflow", self.name)


def test_a_run_spends_nothing_before_it_is_resumed_and_approved(argo: Kind, engine: ArgoEngine) -> None:
    run_id = f"allowed-{uuid4().hex[:8]}"
    with restored_files(argo, "budgets") as (budgets,):
        write_world_file(argo, "budgets", yaml.safe_dump(budgets | {"approve_above_usd": "0.01"}))
        first = CreatedWorkflow(argo, run_id, approve="yes")
        waits = first.wait_for_message("the run waits until its Workflow is resumed")
        assert [step.name for step in waits.steps] == ["approve"]
        first.resume()
        over = first.wait_for_message("there is no such message")
        summary = RunSummary.model_validate_json(over.summary)
        assert (summary.status, summary.starts) == ("refused", 0)
        assert f"shoestring approve {run_id} --by NAME" in summary.reason
        assert run_id not in account_names(engine.store)
        first.delete()
        # From outside: the world's ConfigMaps, the Secret, and a port forwarded to the store.
        said = shoestring("approve", run_id, "--by", "budget-owner", "--on", argo.context)
        assert said.code == 0, said.err
        assert f"budget-owner approved $0.050000 for {run_id}" in said.out
        again = CreatedWorkflow(argo, run_id)
        assert wait_for_decision(engine, run_id, "ingest").choice
        again.patch({"spec": {"shutdown": "Stop"}})
        again.wait_for_message("there is no such message")
        again.delete()
    check_books(engine, run_id)
    assert Ledger(engine.store, WallClock(), "test").state(run_id).cap_usd is not None
