"""Claim: on Argo a router delays its stage by at most 3 s more than Argo takes for a pod that does nothing.

python bench/kind/routing.py [--runs 3]

On the cluster that `SHOESTRING_KIND_KEEP=1 pytest -m kind tests/kind/test_argo.py` leaves. A chain of pods that do nothing, then a run on a
small recipe, in turns; both with the base image, which the nodes have.
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
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "kind"))

from kind_cluster import POD_SECURITY, SECURITY, Kind
from machine import describe
from on_argo import RAIN, Going, soon

from shoestring.pipelines.argo import executor
from shoestring.config.world import IMAGES

LINKS = 5
MOST_S = 3.0
BARE = "bare-chain"


def moment(text: str) -> datetime:
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
        "podSpecPatch": executor(),
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


def from_start_to_next_s(nodes: list[dict[str, Any]]) -> list[float]:
    return [
        (moment(after["startedAt"]) - moment(before["startedAt"])).total_seconds()
        for before, after in pairwise(nodes)
    ]


def bare_s(kind: Kind) -> list[float]:
    """What Argo takes for a pod that does nothing, from its start to that of the next."""
    kind.kubectl("delete", "workflow", BARE, "--ignore-not-found")
    kind.apply(yaml.safe_dump(bare_chain()))

    def over() -> dict[str, Any] | None:
        workflow: dict[str, Any] = kind.get("workflow", BARE)
        return workflow if workflow.get("status", {}).get("phase") == "Succeeded" else None

    taken_s = from_start_to_next_s(pods(soon(over, "the chain of pods that do nothing")))
    kind.kubectl("delete", "workflow", BARE)
    return taken_s


def routed_s(kind: Kind, recipe: Path, seed: int) -> list[float]:
    """From the start of each router to that of its stage."""
    ended = Going(kind, str(recipe), "--seed", str(seed)).end()
    assert ended.code == 0, ended.err
    nodes = pods(kind.get("workflow", ended.summary.run_id))
    return [
        from_start_to_next_s([node, after])[0]
        for node, after in pairwise(nodes)
        if node["templateName"] == "route"
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(describe())
    kind, bare, routed = Kind("shoestring"), [], []
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "rain.yaml"
        recipe.write_text(RAIN)
        for seed in range(runs):
            bare += bare_s(kind)
            routed += routed_s(kind, recipe, seed)
    print(f"{'':30} pods  median s   worst s")
    for name, taken_s in (("a pod that does nothing", bare), ("a router, until its stage", routed)):
        print(f"{name:30} {len(taken_s):4} {median(taken_s):9.1f} {max(taken_s):9.1f}")
    more_s = median(routed) - median(bare)
    print(f"a router costs {more_s:.1f} s more (claimed: {MOST_S:.0f} s at most)")
    raise SystemExit(more_s > MOST_S)


if __name__ == "__main__":
    main()
