"""The receipt history: receipts that the model learns from are found without a scan of all runs, in bounded
space.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from shoestring.backends.folder_store import FolderStore
from shoestring.core.receipt import Hardware, Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Market
from shoestring.runtime.records.receipt_history import (
    BUCKETS,
    SLOTS,
    KnownReceipts,
    add_to_history,
    earlier_receipts,
    known_receipts,
    write_receipt,
)

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=30)


def receipt(run: int, work: str = "small", hardware: Hardware | None = None) -> Receipt:
    return Receipt(
        run_id=f"run-{run}",
        stage="train",
        attempt=1,
        pod=None,
        decision_key="k",
        status="done",
        pool="cpu",
        market=Market.ON_DEMAND,
        format=None,
        cache_hit=False,
        budget_usd=Decimal(1),
        est_usd=Decimal(1),
        p95_usd=Decimal(1),
        est_s=1.0,
        prior_s=1.0,
        work=work,
        hardware=hardware,
        spent_usd=Decimal(0),
        started_at=NOON,
        finished_at=NOON + timedelta(minutes=run),
        seconds=2.0,
        ledger_head="",
    )


def test_a_written_receipt_teaches_its_own_stage_only(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    write_receipt(store, receipt(1))
    assert store.fetch("runs/run-1/receipts/train-1.json").read_bytes() == record_bytes(receipt(1))
    assert earlier_receipts(store, ["train"], LATER) == ([receipt(1)], ())
    assert earlier_receipts(store, ["evaluate"], LATER) == ([], ())
    assert earlier_receipts(store, ["train"], NOON) == ([], ())


def test_a_runs_own_receipts_teach_since_its_start_and_its_migrations_count_over_all_starts(
    tmp_path: Path,
) -> None:
    store = FolderStore(tmp_path)
    moved = {"run_id": "r", "status": "stopped", "cause": "migrated"}
    before, after = (receipt(number).model_copy(update=moved | {"attempt": number}) for number in (1, 9))
    for each in (before, after, receipt(5).model_copy(update={"run_id": "r", "stage": "train-too"})):
        write_receipt(store, each)
    start = NOON + timedelta(minutes=3)
    assert known_receipts(store, "r", ["train"], start) == KnownReceipts((before, after), 2, ())
    assert earlier_receipts(store, ["train"], start) == ([before], ())


def test_failed_and_cached_attempts_have_receipts_that_teach_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for number, fields in enumerate(({"status": "failed"}, {"cache_hit": True}, {"prior_s": 0.0})):
        write_receipt(store, receipt(number).model_copy(update=fields))
    assert list(store.list("learned/")) == [] and len(list(store.list("runs/"))) == 3


def test_the_history_is_bounded_and_frequent_work_does_not_displace_rare_work(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    seldom = receipt(0, "large", Hardware(kind="gpu", type="H100", count=8, gflop_s=989e3))
    add_to_history(store, seldom)
    for run in range(1, 400):
        add_to_history(store, receipt(run))
    kept, _ = earlier_receipts(store, ["train"], LATER)
    often = sorted(int(each.run_id.removeprefix("run-")) for each in kept if each.work == "small")
    assert seldom in kept and len(often) == SLOTS <= BUCKETS * SLOTS
    assert often[-1] == 399 and sum(often) / SLOTS > 300


def test_a_receipt_that_is_recorded_twice_is_stored_once(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for _ in range(2):
        add_to_history(store, receipt(1))
    assert len(list(store.list("learned/receipts/"))) == 1


def test_a_store_without_a_history_imports_its_receipts_once(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for run in (0, 1, 3):
        store.put(f"runs/run-{run}/receipts/train-1.json", record_bytes(receipt(run)))
    store.put("runs/run-9/receipts/train-1.json", b"{}")
    taught, (note,) = earlier_receipts(store, ["train"], LATER)
    assert (
        sorted(each.run_id for each in taught) == ["run-0", "run-1", "run-3"]
        and "runs/run-9/receipts/train-1.json" in note
    )
    store.put("runs/run-4/receipts/train-1.json", record_bytes(receipt(4)))
    again, notes = earlier_receipts(store, ["train"], LATER)
    assert len(again) == 3 and notes == ()
