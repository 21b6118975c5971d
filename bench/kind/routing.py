"""Claim: on Argo, a router delays its stage by at most 3 s more than Argo takes for a pod that does nothing.

python bench/kind/routing.py [--runs 3]

On the cluster of `make cluster`. Chains of pods that do nothing and runs of a small recipe take turns. Both
use the base image, which the nodes have.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "kind"))

from cluster_engine import CLUSTER, cluster_engine
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.recipes import RAIN
from engine_scenarios.waiting import wait_for
from kind_cluster import POD_SECURITY, SECURITY, Kind
from machine import describe

from shoestring.config.world import IMAGES
from shoestring.pipelines.argo_templates import executor_patch

LINKS = 5
MAX_DELAY_S = 3.0
BARE = "bare-chain"


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def bare_chain() -> dict[str, Any]:
    tasks = [
        {"name": f"pod-{link}", "template": "pod"} | ({"depends": f"pod-{link - 1}"} if link else {})
        for link in range(LINKS)
    ]
    container = {
        "image": IMAGES["base"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["true"],
        "securityContext": SECURITY,
    }
    spec = {
        "entrypoint": "chain",
        "serviceAccountName": "shoestring-stage",
        "securityContext": POD_SECURITY,
        "podSpecPatch": executor_patch(),
        "templates": [{"name": "chain", "dag": {"tasks": tasks}}, {"name": "pod", "container": container}],
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": BARE, "namespace": "shoestring"},
        "spec": spec,
    }


def pods(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    found = [node for node in workflow["status"]["nodes"].values() if node["type"] == "Pod"]
    return sorted(found, key=lambda node: str(node["startedAt"]))


def start_intervals_s(nodes: list[dict[str, Any]]) -> list[float]:
    return [
        (parse_time(after["startedAt"]) - parse_time(before["startedAt"])).total_seconds()
        for before, after in pairwise(nodes)
    ]


def bare_s(kind: Kind) -> list[float]:
    """Return the seconds from the start of a pod that does nothing to the start of the next pod."""
    kind.kubectl("delete", "workflow", BARE, "--ignore-not-found")
    kind.apply(yaml.safe_dump(bare_chain()))

    def find_finished() -> dict[str, Any] | None:
        workflow: dict[str, Any] = kind.get("workflow", BARE)
        return workflow if workflow.get("status", {}).get("phase") == "Succeeded" else None

    interval_s = start_intervals_s(pods(wait_for(find_finished, "the chain of pods that do nothing")))
    kind.kubectl("delete", "workflow", BARE)
    return interval_s


def routed_s(engine: ArgoEngine, recipe: Path, seed: int) -> list[float]:
    """Return the seconds from the start of each router to the start of its stage."""
    run = engine.run(str(recipe), "--seed", str(seed))
    run.wait().done()
    nodes = pods(CLUSTER.get("workflow", run.run_id))
    return [
        start_intervals_s([node, after])[0]
        for node, after in pairwise(nodes)
        if node["templateName"] == "route"
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(describe())
    bare, routed = [], []
    with tempfile.TemporaryDirectory() as folder, cluster_engine() as engine:
        recipe = Path(folder) / "rain.yaml"
        recipe.write_text(RAIN)
        for seed in range(runs):
            bare += bare_s(CLUSTER)
            routed += routed_s(engine, recipe, seed)
    print(f"{'':30} pods  median s   worst s")
    for name, interval_s in (("a pod that does nothing", bare), ("a router, until its stage", routed)):
        print(f"{name:30} {len(interval_s):4} {median(interval_s):9.1f} {max(interval_s):9.1f}")
    more_s = median(routed) - median(bare)
    print(f"a router costs {more_s:.1f} s more (claimed: {MAX_DELAY_S:.0f} s at most)")
    raise SystemExit(more_s > MAX_DELAY_S)


if __name__ == "__main__":
    main()
