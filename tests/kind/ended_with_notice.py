"""A scenario of Argo alone: pods with the hook that docs/kubeflow.md gives to those of Kubeflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import check_books, receipts, wait_for_checkpoint, wait_for_pod
from engine_scenarios.engine import StartedRun
from engine_scenarios.recipes import LONG_RAIN, write_recipe
from engine_scenarios.waiting import wait_for
from pod_times import container_end

from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION
from shoestring.core.receipt import Receipt

TEMPLATE = "shoestring-train-with-notice"
HOOK = {"lifecycle": {"preStop": {"sleep": {"seconds": 15}}}}
"""Shorter than that of docs/kubeflow.md: on Argo, the route step of a stage sets its grace period."""


def ended_with_notice(engine: ArgoEngine, package: Path) -> None:
    """The supervisor of a pod that is deleted, and of one that is ended as the reaper does it, settles and
    ends by itself before the first signal; the second attempt continues from the checkpoint.
    """
    apply_hooked_template(engine)
    recipe = write_recipe(engine.scratch, LONG_RAIN, "notice.yaml")
    run = engine.run(recipe, "--template", TEMPLATE)
    first = wait_for_pod(engine, run, "train")
    wait_for_checkpoint(engine, run.run_id)
    engine.place.kubectl("delete", "pod", first["metadata"]["name"], "--wait=false")
    check_ended(engine, run, 0, "stop-requested", "its pod is being deleted")
    second = wait_for(lambda: running_second(engine, run), "the pod of the second attempt", timeout_s=300.0)
    reason = "OutOfMoney: the test has ended it"
    overdue = {"metadata": {"annotations": {ENDED_ANNOTATION: reason}}, "spec": {"activeDeadlineSeconds": 1}}
    engine.place.kubectl("patch", "pod", second["metadata"]["name"], "--patch", json.dumps(overdue))
    check_ended(engine, run, 1, "money", reason)
    assert run.wait().not_done().status == "stopped"
    check_books(engine, run.run_id)


def apply_hooked_template(engine: ArgoEngine) -> None:
    """Apply the training's WorkflowTemplate under another name, with the hook for each of its pods."""
    found = json.loads(
        engine.place.kubectl("get", "workflowtemplate", "shoestring-train", "--output", "json")
    )
    patch = json.loads(found["spec"]["podSpecPatch"])
    patch["containers"].append({"name": "main", **HOOK})
    found["spec"]["podSpecPatch"] = json.dumps(patch)
    found["metadata"] = {"name": TEMPLATE, "labels": found["metadata"].get("labels", {})}
    applied = engine.place.try_kubectl("apply", "--filename", "-", stdin=json.dumps(found))
    assert applied.code == 0, applied.err
    engine.adopt_template(TEMPLATE)


def running_second(engine: ArgoEngine, run: StartedRun) -> dict[str, Any] | None:
    pods = engine.pods(run, "train")
    return pods[1] if len(pods) > 1 and pods[1]["status"].get("phase") == "Running" else None


def check_ended(engine: ArgoEngine, run: StartedRun, number: int, cause: str, reason: str) -> None:
    """Check the receipt of an attempt that had notice, and that its container ended before the signal."""

    def find() -> Receipt | None:
        found = receipts(engine, run.run_id, "train")
        return found[number] if len(found) > number else None

    receipt = wait_for(find, f"the receipt of attempt {number + 1}", timeout_s=60.0)
    assert (receipt.status, receipt.cause) == ("stopped", cause), receipt
    assert receipt.reason.startswith(reason)
    wait_for(lambda: container_end(engine.pods(run, "train")[number]), "the end of its container")
    pod = engine.pods(run, "train")[number]
    ended = pod["status"]["containerStatuses"]
    main = next(each for each in ended if each["name"] == "main")["state"]["terminated"]
    # 143: by SIGTERM. Its supervisor ends with 1.
    assert main["exitCode"] == 1, main
