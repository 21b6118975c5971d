"""An example ledger: two runs inside a month, one closed and one open, with a receipt for each stage."""

from __future__ import annotations

import functools
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from approved_caps import approve, approved
from clocks import NOON, StillClock
from faulty_stores import fast_folder

from shoestring.backends.folder_store import FolderStore
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Market
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger


def receipt(run_id: str, stage: str, head: str) -> Receipt:
    return Receipt(
        run_id=run_id,
        stage=stage,
        attempt=1,
        pod=PodRef.parse("host.1.2"),
        decision_key=f"runs/{run_id}/decisions/{stage}-1.json",
        status="done",
        pool="cores-2",
        market=Market.ON_DEMAND,
        format=None,
        cache_hit=False,
        budget_usd=Decimal("0.3"),
        est_usd=Decimal("0.2"),
        p95_usd=Decimal("0.3"),
        est_s=1.0,
        spent_usd=Decimal("0.2"),
        started_at=NOON,
        finished_at=NOON + timedelta(seconds=1),
        seconds=1.0,
        ledger_head=head,
    )


def write_example(root: Path) -> FolderStore:
    """Write two runs inside a month, one closed and one open, with a receipt for each stage."""
    store = FolderStore(root)
    ledger = Ledger(store, StillClock(), "host.1.2")
    for run in ("run-1", "run-2"):
        ledger.open(run, Decimal("1"), stage_caps={"train": Decimal("0.8")})
        for stage in ("ingest", "train"):
            ledger.reserve(run, f"{stage}-1", stage, 1, Decimal("0.3"))
            ledger.settle(run, f"{stage}-1", Decimal("0.2"), "done")
            store.put(
                f"runs/{run}/receipts/{stage}-1.json",
                record_bytes(receipt(run, stage, ledger.state(run).head_hash)),
            )
    ledger.adjust("run-1", "train-1", Decimal("-0.01"), "true times")
    approve(store, "run-2")
    ledger.set_cap("run-2", Decimal("1.5"), approved("run-2"))
    ledger.reserve("run-2", "evaluate-1", "evaluate", 1, Decimal("0.1"))
    ledger.close("run-1")
    return store


@functools.cache
def example_files() -> dict[str, bytes]:
    with fast_folder() as folder:
        write_example(folder)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.json")}


def copy_example(root: Path) -> FolderStore:
    for name, content in example_files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return FolderStore(root)


def check(store: FolderStore) -> None:
    verify(store, load_anchors(store))


def cut(store: FolderStore, account: str, keep: int) -> None:
    """Remove the entries after `keep` and the head hint from the account's folder."""
    for path in (store.root / "ledger" / account).iterdir():
        if path.is_file() and (path.name == "head.json" or int(path.stem) > keep):
            path.unlink()
