"""A scenario of Argo alone: the supervisor of a stage's pod is stopped with SIGSTOP, as a hostile or broken
stage could.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from engine_scenarios.books import receipts, wait_for_decision, wait_for_pod
from engine_scenarios.engine import Engine, Job, StartedRun
from engine_scenarios.recipes import LONG_RAIN, write_recipe
from engine_scenarios.waiting import wait_for
from pod_times import container_end

# Argo's executor is process 1, and its command contains the stage's.
STOP_SUPERVISOR = """
import os, pathlib, signal, time

def read(process, file):
    try:
        return (process / file).read_text()
    except OSError:
        return ""

end_s = time.monotonic() + 60
while time.monotonic() < end_s:
    found = list(pathlib.Path("/proc").glob("[0-9]*"))
    stats = [read(process, "stat").rpartition(")")[2].split() for process in found]
    parents = {stat[1] for stat in stats if stat}
    for process in found:
        if process.name != "1" and process.name in parents and "--decision-key" in read(process, "cmdline"):
            os.kill(int(process.name), signal.SIGSTOP)
            print("stopped", process.name)
            raise SystemExit
    time.sleep(0.02)
raise SystemExit("there is no supervisor with a child")
"""


def stop_supervisor(engine: Engine, pod: dict[str, Any]) -> None:
    """Wait until the supervisor of a running pod has started its stage, and stop it."""
    where = ("exec", pod["metadata"]["name"], "--container", "main")
    engine.place.kubectl(*where, "--", "python", "-c", STOP_SUPERVISOR)


def silent_then_past_its_deadline(engine: Engine, package: Path) -> None:
    """A training whose supervisor is stopped is ended and routed again; at its deadline it is not."""
    run = engine.start(Job(write_recipe(engine.scratch, LONG_RAIN, "stopped.yaml")))
    first = wait_for_decision(engine, run.run_id, "train").choice
    pod = wait_for_pod(engine, run, "train")
    world = json.loads(engine.place.kubectl("get", "configmap", "shoestring-budgets", "--output", "json"))
    most_usd = float(yaml.safe_load(world["data"]["budgets.yaml"])["run_usd"])
    assert first
    most_s = most_usd / float(first.usd_per_hour) * 3600
    assert 0.9 * most_s < pod["spec"]["activeDeadlineSeconds"] <= 5 * most_s + 1
    stop_supervisor(engine, pod)
    second = wait_for(lambda: second_pod(engine, run), "the pod of the second attempt", timeout_s=300.0)
    lost = receipts(engine, run.run_id, "train")[0]
    assert (lost.status, lost.cause) == ("lost", "silent")
    wait_for(lambda: container_end(engine.pods(run, "train")[0]), "the first attempt's end")
    stop_supervisor(engine, second)
    # Kubernetes lets a deadline be brought nearer, so the test need not wait for the money's end.
    nearer = '{"spec": {"activeDeadlineSeconds": 1}}'
    engine.place.kubectl("patch", "pod", second["metadata"]["name"], "--patch", nearer)
    summary = run.wait().not_done()
    assert summary.status == "failed"
    assert [(stage.name, stage.attempts) for stage in summary.stages] == [
        ("ingest", 1),
        ("preprocess", 1),
        ("train", 2),
    ]
    wait_for(lambda: container_end(engine.pods(run, "train")[1]), "the second attempt's end")
    reason = engine.pods(run, "train")[1]["status"]["reason"]
    lost = receipts(engine, run.run_id, "train")[1]
    # A busy kubelet may see the deadline after the reaper saw the silence. Neither is tried a third time.
    assert lost.status == "lost" and lost.cause in ("money", "silent"), (reason, lost)


def second_pod(engine: Engine, run: StartedRun) -> dict[str, Any] | None:
    """Return the second pod of the training when its container runs."""
    found = engine.pods(run, "train")[1:]
    return next((pod for pod in found if pod["status"].get("phase") == "Running"), None)
