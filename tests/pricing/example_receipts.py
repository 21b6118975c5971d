"""Receipts of a stage called train, one a minute."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from shoestring.core.receipt import Hardware, Receipt
from shoestring.core.types import Market, Need, Pool

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
NEED = Need(stage="train", work="small", gpu="may", gpu_flop_per_row=1e9)
CPU = Pool(name="cpu", cores=1, memory_gb=8)


def gpu_pool(name: str, gpu: str, memory_gb: float, tflops: float) -> Pool:
    return Pool(
        name=name, cores=8, memory_gb=64, gpu=gpu, gpu_count=1, gpu_memory_gb=memory_gb, gpu_tflops=tflops
    )


T4, A100, H100 = (
    gpu_pool("t4", "T4", 16, 65),
    gpu_pool("a100", "A100", 40, 312),
    gpu_pool("h100", "H100", 80, 989),
)


def receipt(seconds: float, minute: int = 0, **fields: Any) -> Receipt:
    """Return a receipt of an attempt that took `seconds`, where the prediction was 10."""
    defaults = {
        "run_id": f"run-{minute}",
        "stage": "train",
        "work": "small",
        "attempt": 1,
        "pod": None,
        "decision_key": "k",
        "status": "done",
        "pool": "cpu",
        "hardware": Hardware(kind="cores", type="1 Gop/s core", count=1, gflop_s=1),
        "market": Market.ON_DEMAND,
        "format": None,
        "cache_hit": False,
        "budget_usd": Decimal(1),
        "est_usd": Decimal(1),
        "p95_usd": Decimal(1),
        "est_s": 1.0,
        "spent_usd": Decimal(1),
        "started_at": NOON + timedelta(minutes=minute),
        "finished_at": NOON + timedelta(minutes=minute),
        "ledger_head": "h",
        "prior_s": 10.0,
    }
    return Receipt.model_validate(defaults | {"seconds": seconds} | fields)


def receipts(seconds: Sequence[float], **fields: Any) -> list[Receipt]:
    return [receipt(each, minute, **fields) for minute, each in enumerate(seconds)]
