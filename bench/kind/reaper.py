"""Claim: a stage whose supervisor is stopped is ended at most 10 s after its silence limit, and costs at most
that time, and its pod's grace period, more than it reserved.

python bench/kind/reaper.py [--runs 5] [--seed SEED]

On the cluster of `make cluster`. Each run is a run of flights with its own seed. The supervisor of its
training is stopped (SIGSTOP) while the training goes on. 10 s are a look every 5 s, what a look takes, and
what this process takes to see the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "kind"))

from cluster_engine import CLUSTER, cluster_engine
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import receipts, wait_for_pod
from engine_scenarios.waiting import wait_for
from machine import describe
from pod_times import container_end, lived_s
from stopped_supervisor import stop_supervisor
from world_changes import read_world_file

from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION
from shoestring.config.policy import Policy
from shoestring.routing.placement import POD_GRACE_S
from shoestring.spending.heartbeat import silence_limit_s

MAX_LOOK_S = 10.0


def stop_and_measure(engine: ArgoEngine, seed: int, limit_s: float) -> tuple[str, bool]:
    """Run flights and stop the supervisor of its training; return a line, and whether all is well."""
    run = engine.run("flights", "--budget", "0.05", "--deadline", "900", "--seed", str(seed))
    stopped = wait_for_pod(engine, run, "train")
    name = stopped["metadata"]["name"]
    stop_supervisor(engine, stopped)
    stopped_s = time.monotonic()
    wait_for(
        lambda: CLUSTER.get("pod", name)["metadata"].get("annotations", {}).get(ENDED_ANNOTATION),
        "the reaper's end of the pod",
    )
    ended_s = time.monotonic() - stopped_s

    def find_end() -> float | None:
        pod = CLUSTER.get("pod", name)
        return lived_s(pod) if container_end(pod) else None

    lived = wait_for(find_end, "the end of the containers")
    gone_s = time.monotonic() - stopped_s
    (receipt, *_) = wait_for(lambda: receipts(engine, run.run_id, "train") or None, "the receipt", 180.0)
    engine.terminate(run.engine_id)
    run.wait()
    well = receipt.cause == "silent" and ended_s <= limit_s + MAX_LOOK_S
    well = well and gone_s <= limit_s + MAX_LOOK_S + POD_GRACE_S + 5
    return f"{ended_s:7.1f} {gone_s:7.1f} {lived:9.1f}  {receipt.cause:7} {receipt.spent_usd:>9}", well


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    # A training that was run before, with the same seed, is found again and has no pod.
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    options = parser.parse_args()
    print(describe())
    policy = Policy.model_validate(yaml.safe_load(read_world_file(CLUSTER, "policy")))
    limit_s = silence_limit_s(policy.heartbeat_s, policy.silent_intervals)
    print(f"silence limit {limit_s:g} s, claimed end after {limit_s + MAX_LOOK_S:g} s at most")
    print("ended s  gone s  pod lived s  cause    receipt $")
    with cluster_engine() as engine:
        found = []
        for number in range(options.runs):
            line, well = stop_and_measure(engine, options.seed + number, limit_s)
            print(line, "" if well else "  <- above the claim", flush=True)
            found.append(well)
    raise SystemExit(not all(found))


if __name__ == "__main__":
    main()
