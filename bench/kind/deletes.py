"""Claim: a run whose training pod is deleted at any moment ends, stays within its budget and leaves no
reservation.

python bench/kind/deletes.py [--runs 10] [--seed 0]

On the cluster of `make cluster`. Each run is a run of flights with its own seed. Its training pod is deleted
at a random moment of the 30 s that the training takes.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "kind"))

from cluster_engine import CLUSTER, cluster_engine
from engine_scenarios.argo_engine import ArgoEngine
from kind_cluster import CommandFailed
from machine import describe
from world_changes import placed_pod

from shoestring.backends.local import WallClock
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger

MAX_DELAY_S = 25.0


def run_and_delete(engine: ArgoEngine, seed: int, after_s: float) -> tuple[str, bool]:
    """Run flights, delete its training pod `after_s` seconds after a node took it; return a line and if all
    is well.
    """
    run = engine.run("flights", "--budget", "0.05", "--deadline", "900", "--seed", str(seed))
    pod = placed_pod(engine, run, "train")["metadata"]["name"]
    time.sleep(after_s)
    try:
        CLUSTER.kubectl("delete", "pod", pod)
        how = "deleted"
    except CommandFailed:
        how = "ended before"
    ended = run.wait()
    summary, state = ended.summary, Ledger(engine.store, WallClock(), "bench").state(run.run_id)
    assert summary is not None, ended.err
    (train,) = [stage for stage in summary.stages if stage.name == "train"]
    well = (
        ended.code == 0
        and summary.spent_usd <= summary.budget_usd
        and state.closed
        and not state.reservations
    )
    line = (
        f"{after_s:8.1f}  {how:12} {train.attempts:8}  {summary.status:8} {summary.spent_usd:>9} "
        f"{len(state.reservations):10}  {summary.quality.get('log_loss', 0):.4f}"
    )
    return line, well


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(describe())
    print("after s   pod          attempts  run      spent USD reserved   log loss")
    dice, good = random.Random(options.seed), []
    with cluster_engine() as engine:
        for run in range(options.runs):
            line, well = run_and_delete(engine, 1000 * options.seed + run, dice.uniform(0, MAX_DELAY_S))
            print(line, flush=True)
            good.append(well)
        verify(engine.store, load_anchors(engine.store))
    print(
        f"{sum(good)} of {len(good)} ended within their budgets and without reservations; the ledger verifies"
    )
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
