"""`--on CONTEXT` where there is nothing to run on, and what is said of a Workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Ran, shoestring

from shoestring.backends.argo import as_progress, workflow_of
from shoestring.cli.clusters import words

NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "contexts": [{"name": "away", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config").write_text(yaml.safe_dump(NOWHERE))
    return {"KUBECONFIG": str(tmp_path / "config")}


def on(kubeconfig: dict[str, str], *arguments: str) -> Ran:
    return shoestring(*arguments, env=kubeconfig)


def test_a_context_that_the_kubeconfig_lacks_is_bad_usage(kubeconfig: dict[str, str]) -> None:
    ran = on(kubeconfig, "run", "flights", "--on", "hither")
    assert (ran.code, ran.out) == (2, "")
    assert "no kubeconfig with a context 'hither'" in ran.err


@pytest.mark.parametrize("command", ["run", "watch"])
def test_a_cluster_that_does_not_answer_is_a_sentence_with_its_address(
    kubeconfig: dict[str, str], command: str
) -> None:
    ran = on(kubeconfig, command, "flights", "--on", "away")
    assert ran.code == 1
    assert "the cluster at http://127.0.0.1:1 does not answer" in ran.err


def test_no_kubeconfig_is_a_sentence_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    ran = on({"KUBECONFIG": str(tmp_path / "none")}, "run", "flights", "--on", "away")
    assert (ran.code, "$KUBECONFIG" in ran.err) == (2, True)


@pytest.mark.parametrize("option", [("--store", "/s"), ("--world", "/w"), ("--out", "/o")])
def test_what_is_for_this_machine_does_not_go_with_a_cluster(
    kubeconfig: dict[str, str], option: tuple[str, str]
) -> None:
    ran = on(kubeconfig, "run", "flights", "--on", "away", *option)
    assert (ran.code, option[0] in ran.err) == (2, True)


def test_a_template_without_a_cluster_is_bad_usage() -> None:
    ran = shoestring("run", "flights", "--template", "dedupe-rows")
    assert (
        ran.code,
        "--template dedupe-rows is a pipeline on a cluster: name its context with --on" in ran.err,
    ) == (2, True)


def test_a_wrong_budget_is_said_before_any_cluster_is_asked(kubeconfig: dict[str, str]) -> None:
    ran = on(kubeconfig, "run", "flights", "--on", "away", "--budget", "lots")
    assert (ran.code, "'lots'" in ran.err) == (2, True)


def node(name: str, template: str, started: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "Pod",
        "name": name,
        "displayName": name,
        "templateName": template,
        "startedAt": started,
        "phase": "Running",
        **more,
    }


def test_a_workflow_is_told_as_its_pods_in_the_order_they_began_with_what_they_said() -> None:
    route = {
        "inputs": {"parameters": [{"name": "stage", "value": "train"}]},
        "boundaryID": "again",
        "hostNodeName": "n1",
    }
    said = "main: Error (exit code 1): shoestring: nothing fits\ntime=12:00 level=info\nError: exit status 1"
    left = {"outputs": {"parameters": [{"name": "summary", "value": "{}"}]}}
    nodes = [
        {"type": "DAG", "name": "train(1)", "displayName": "train(1)", "startedAt": "1", "phase": "Running"},
        node("end(0)", "settle", "3", **left),
        node("route", "route", "2", **route),
        node("stage", "train", "1", message=said),
    ]
    status = {"phase": "Running", "nodes": dict(zip(("again", "end", "route", "stage"), nodes, strict=True))}
    progress = as_progress({"metadata": {"name": "run"}, "status": status})
    assert [words(step) for step in progress.steps] == [
        "train: running: main: Error (exit code 1): shoestring: nothing fits",
        "route train (attempt 2): running on n1",
        "settle: running",
    ]
    assert (progress.summary, progress.is_over) == ("{}", False)


def test_a_workflow_that_nobody_looked_at_yet_is_pending() -> None:
    progress = as_progress({"metadata": {"name": "run"}})
    assert (progress.phase, progress.steps, progress.summary, progress.is_over) == ("Pending", (), "", False)


def workflow_given(name: str, run_id: str | None, hour: int) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": f"2026-11-21T{hour:02d}:00:00Z"}
    given = [{"name": "recipe", "value": "{}"}, *([{"name": "run_id", "value": run_id}] if run_id else [])]
    return {"metadata": meta, "spec": {"arguments": {"parameters": given}}}


def test_a_run_is_found_by_the_id_that_it_was_given_and_by_its_workflows_uid_where_it_was_given_none() -> (
    None
):
    bare = {"metadata": workflow_given("bare", None, 1)["metadata"], "spec": {}}
    there = [
        workflow_given("old", "mine", 3),
        workflow_given("new", "mine", 4),
        workflow_given("none", None, 5),
        bare,
    ]
    found = {asked: workflow_of(asked, there) for asked in ("mine", "uid-of-none", "uid-of-bare", "recipe")}
    assert [each and each["metadata"]["name"] for each in found.values()] == ["new", "none", "bare", None]
