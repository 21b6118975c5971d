"""Claim: a training pod that is deleted at any moment costs a run neither its end, nor its budget, nor any money that is left behind.

python bench/kind/deletes.py [--runs 10] [--seed 0]

On the cluster that `SHOESTRING_KIND_KEEP=1 pytest -m kind tests/kind/test_argo.py` leaves. Each run is one of flights with a
seed of its own; its training pod is deleted at a random moment of the half minute that it takes.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "kind"))

from kind_cluster import CommandFailed, Kind
from machine import describe
from on_argo import Going, stage_pod, store_of

from shoestring.backends.local import WallClock
from shoestring.core.interfaces import Store
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger

WITHIN_S = 25.0


def one(kind: Kind, store: Store, seed: int, after_s: float) -> tuple[str, bool]:
    """A run whose training pod is deleted `after_s` seconds after a node took it: what is to be said of it, and is all well."""
    going = Going(kind, "flights", "--budget", "0.05", "--deadline", "900", "--seed", str(seed))
    pod = stage_pod(kind, going.run_id, "train")["metadata"]["name"]
    time.sleep(after_s)
    try:
        kind.kubectl("delete", "pod", pod)
        how = "deleted"
    except CommandFailed:
        how = "over by then"
    ended = going.end()
    summary, state = ended.summary, Ledger(store, WallClock(), "bench").state(going.run_id)
    (train,) = [stage for stage in summary.stages if stage.name == "train"]
    well = ended.code == 0 and summary.spent_usd <= summary.budget_usd and state.closed and not state.reservations
    said = f"{after_s:8.1f}  {how:12} {train.attempts:8}  {summary.status:8} {summary.spent_usd:>9} {len(state.reservations):10}"
    return f"{said}  {summary.quality.get('log_loss', 0):.4f}", well


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(describe())
    print("after s   pod          attempts  run      spent USD left held  log loss")
    kind, moments, good = Kind("shoestring"), random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as scratch, store_of(kind, Path(scratch)) as store:
        for run in range(options.runs):
            said, well = one(kind, store, 1000 * options.seed + run, moments.uniform(0, WITHIN_S))
            print(said, flush=True)
            good.append(well)
        verify(store, load_anchors(store))
    print(
        f"{sum(good)} of {len(good)} ended well inside their budgets, with nothing held; the ledger verifies"
    )
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
