"""A run that waits for people: for somebody who resumes it, and for whoever pays, who has to approve what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from kind_cluster import ROOT, Kind
from on_argo import RAIN, decision, kept, place_of, put_file, soon

from shoestring.pipelines.argo import parameters, workflow
from shoestring.backends.argo import Progress, open_argo
from shoestring.backends.local import WallClock
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.data.recipe import Recipe
from shoestring.reporting.summary import RunSummary
from shoestring.routing.decision import Decision
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger, account_names

pytestmark = pytest.mark.kind


class Started:
    """A Workflow as `kubectl create` makes one."""

    def __init__(self, kind: Kind, run_id: str, **values: str) -> None:
        document = workflow("shoestring-train", "flights")
        recipe = Recipe.model_validate(yaml.safe_load(RAIN)).model_dump_json(exclude_defaults=True)
        document["spec"]["arguments"]["parameters"] = parameters(
            {"recipe": recipe, "run_id": run_id} | values
        )
        made = kind.kubectl("create", "--filename", "-", "--output", "name", given=yaml.safe_dump(document))
        self.name, self._kind, self._argo = (
            made.strip().rpartition("/")[2],
            kind,
            open_argo(kind.context, "shoestring"),
        )

    def patch(self, changed: dict[str, Any]) -> None:
        self._kind.kubectl("patch", "workflow", self.name, "--type", "merge", "--patch", json.dumps(changed))

    def resume(self) -> None:
        """As `argo resume` does."""
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

    def soon(self, what: str) -> Progress:
        """The Workflow when one of its steps says so, or when it is over."""

        def look() -> Progress | None:
            progress = self._argo.look(self.name)
            return (
                progress if progress.is_over or any(what in step.message for step in progress.steps) else None
            )

        return soon(look, f"a step of {self.name} that says {what!r}", timeout_s=240.0)

    def delete(self) -> None:
        self._kind.kubectl("delete", "workflow", self.name)


def test_a_run_spends_nothing_before_it_is_resumed_and_approved_and_its_account_names_who_said_yes(
    argo: Kind, store: Store, tmp_path: Path
) -> None:
    run_id = f"allowed-{uuid4().hex[:8]}"
    files = ("pools", "prices", "policy", "budgets")
    with kept(argo, *files) as contents, place_of(argo) as place:
        budgets = contents[-1]
        put_file(argo, "budgets", yaml.safe_dump(budgets | {"approve_above_usd": "0.01"}))
        first = Started(argo, run_id, approve="yes")
        waits = first.soon("the run waits until somebody resumes its Workflow")
        assert [step.name for step in waits.steps] == ["approve"]
        first.resume()
        over = first.soon("there is no such message")
        summary = RunSummary.model_validate_json(over.summary)
        assert (summary.status, summary.starts) == ("refused", 0)
        assert f"shoestring approve {run_id} --by NAME" in summary.sentence
        assert run_id not in account_names(store)
        first.delete()
        world = {"name": "kind", "store": json.loads(place.model_dump_json())}
        for name, content in {"world": world, **dict(zip(files, contents, strict=True))}.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / f"{name}.yaml").write_text(yaml.safe_dump(content))
        line = ["shoestring", "approve", run_id, "--by", "whoever-pays", "--world", str(tmp_path)]
        said = subprocess.run([sys.executable, "-m", *line], cwd=ROOT, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert f"{run_id} may spend $0.050000, says whoever-pays" in said.stdout
        again = Started(argo, run_id)

        def decided() -> Decision | None:
            try:
                return decision(store, run_id, "ingest")
            except NotInStore:
                return None

        assert soon(decided, "a decision on ingest", timeout_s=240.0).choice
        again.patch({"spec": {"shutdown": "Stop"}})
        again.soon("there is no such message")
        again.delete()
    state = Ledger(store, WallClock(), "test").state(run_id)
    assert state.closed and state.reservations == {} and state.cap_usd is not None
    verify(store, load_anchors(store))
