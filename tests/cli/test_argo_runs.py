"""`--on CONTEXT` without a reachable cluster, and the text of a Workflow's steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Ran, shoestring

from shoestring.backends.argo import find_workflow, parse_progress
from shoestring.cli.argo_runs import step_text

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
def test_an_unreachable_cluster_is_reported_with_its_address(
    kubeconfig: dict[str, str], command: str
) -> None:
    ran = on(kubeconfig, command, "flights", "--on", "away")
    assert ran.code == 1
    assert "the cluster at http://127.0.0.1:1 does not answer" in ran.err


def test_a_missing_kubeconfig_is_reported_with_its_path(tmp_path: Path) -> None:
    ran = on({"KUBECONFIG": str(tmp_path / "none")}, "run", "flights", "--on", "away")
    assert (ran.code, "$KUBECONFIG" in ran.err) == (2, True)


@pytest.mark.parametrize("option", [("--store", "/s"), ("--world", "/w"), ("--out", "/o")])
def test_local_options_are_refused_for_a_cluster(kubeconfig: dict[str, str], option: tuple[str, str]) -> None:
    ran = on(kubeconfig, "run", "flights", "--on", "away", *option)
    assert (ran.code, option[0] in ran.err) == (2, True)


def test_a_template_without_a_cluster_is_bad_usage() -> None:
    ran = shoestring("run", "flights", "--template", "dedupe-rows")
    assert (
        ran.code,
        "--template dedupe-rows is a pipeline on a cluster: name the kubeconfig context with --on" in ran.err,
    ) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--template", "digits"), 1, "does not answer"),
        ((), 2, "name a recipe"),
        (("--template", "digits", "--campaign", "night"), 2, "name a recipe"),
    ],
)
def test_only_a_template_of_commands_runs_without_a_recipe(
    kubeconfig: dict[str, str], arguments: tuple[str, ...], code: int, why: str
) -> None:
    ran = on(kubeconfig, "run", "--on", "away", *arguments)
    assert (ran.code, why in ran.err) == (code, True), ran.err


def test_an_invalid_budget_is_reported_before_the_cluster_is_contacted(kubeconfig: dict[str, str]) -> None:
    ran = on(kubeconfig, "run", "flights", "--on", "away", "--budget", "lots")
    assert (ran.code, "'lots'" in ran.err) == (2, True)


def test_a_path_of_this_machine_is_warned_of_before_the_cluster_is_contacted(
    kubeconfig: dict[str, str], tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("name: mine\nsource: {rows: {path: rows.csv}}\ntarget: {column: y}\n")
    ran = on(kubeconfig, "run", str(recipe), "--on", "away", "--json")
    assert (ran.code, ran.json["status"]) == (1, "refused")
    warning, refusal = ran.err.splitlines()
    assert f"warning: the pods read the table rows at {tmp_path / 'rows.csv'} in their image" in warning
    assert "does not answer" in refusal


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


def test_a_workflow_is_reported_as_its_pods_in_start_order_with_their_messages() -> None:
    route = {
        "inputs": {"parameters": [{"name": "stage", "value": "train"}]},
        "boundaryID": "again",
        "hostNodeName": "n1",
    }
    log = "main: Error (exit code 1): shoestring: nothing fits\ntime=12:00 level=info\nError: exit status 1"
    left = {"outputs": {"parameters": [{"name": "summary", "value": "{}"}]}}
    nodes = [
        {"type": "DAG", "name": "train(1)", "displayName": "train(1)", "startedAt": "1", "phase": "Running"},
        node("end(0)", "settle", "3", **left),
        node("route", "route", "2", **route),
        node("stage", "train", "1", message=log),
    ]
    status = {"phase": "Running", "nodes": dict(zip(("again", "end", "route", "stage"), nodes, strict=True))}
    progress = parse_progress({"metadata": {"name": "run"}, "status": status})
    assert [step_text(step) for step in progress.steps] == [
        "train: running: main: Error (exit code 1): shoestring: nothing fits",
        "route train (attempt 2): running on n1",
        "settle: running",
    ]
    assert (progress.summary, progress.is_finished) == ("{}", False)


def test_what_argo_could_not_begin_is_named_with_its_error() -> None:
    nodes = {
        "1": node("run.loop.items", "", "1", type="Skipped", phase="Error", message="no list"),
        "2": node("run.last", "last", "2", type="Skipped", phase="Omitted", message="depends not met"),
    }
    progress = parse_progress({"metadata": {"name": "run"}, "status": {"nodes": nodes}})
    assert progress.errors == ("loop.items: no list",)


def test_the_steps_of_a_loop_are_named_by_their_items() -> None:
    stage = {"inputs": {"parameters": [{"name": "stage", "value": "work"}]}}
    nodes = {
        "1": node("run.loop.items(0:0).work(0).stage", "work", "1"),
        "2": node("run.loop.items(12:12).work(0).route", "route", "2", **stage),
    }
    progress = parse_progress({"metadata": {"name": "run"}, "status": {"nodes": nodes}})
    assert [step.name for step in progress.steps] == ["work.0", "route work.12"]


def test_a_workflow_without_status_is_pending() -> None:
    progress = parse_progress({"metadata": {"name": "run"}})
    assert (progress.phase, progress.steps, progress.summary, progress.is_finished) == (
        "Pending",
        (),
        "",
        False,
    )


def workflow_given(name: str, run_id: str | None, hour: int) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": f"2026-11-21T{hour:02d}:00:00Z"}
    given = [{"name": "recipe", "value": "{}"}, *([{"name": "run_id", "value": run_id}] if run_id else [])]
    return {"metadata": meta, "spec": {"arguments": {"parameters": given}}}


def test_a_run_is_found_by_its_id_or_else_by_its_workflows_uid() -> None:
    bare = {"metadata": workflow_given("bare", None, 1)["metadata"], "spec": {}}
    workflows = [
        workflow_given("old", "mine", 3),
        workflow_given("new", "mine", 4),
        workflow_given("none", None, 5),
        bare,
    ]
    found = {
        wanted: find_workflow(wanted, workflows)
        for wanted in ("mine", "uid-of-none", "uid-of-bare", "recipe")
    }
    assert [each and each["metadata"]["name"] for each in found.values()] == ["new", "none", "bare", None]
