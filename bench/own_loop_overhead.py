"""Claim: `budgeted` takes at most 30 us of CPU time a step, apart from checkpoints.

A loop over batches in a list takes steps of SGD on a model of one weight. It runs as it is, and with
`budgeted`, which sets the learning rate, reads the file of a meter that is replaced ten times a second, and
writes a file of progress. The difference of the CPU times of the thread counts, of the best of three each.

python bench/own_loop_overhead.py [--steps 100000] [--quick]

--quick: 10,000 steps; 10 seconds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import torch
from machine import describe
from torch import Tensor, nn

from shoestring.budget import Budget, budgeted
from shoestring.core.record import record_bytes
from shoestring.spending.budget_file import BudgetFile

MOST_US = 30.0
BUDGET_S = 3600.0
FILE_INTERVAL_S = 0.1


class MeterFile:
    """A thread that replaces a budget file, as the meter of a command does."""

    def __init__(self, path: Path) -> None:
        self._path, self._began_s, self._stop = path, time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._write()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(FILE_INTERVAL_S):
            self._write()

    def _write(self) -> None:
        gone_s = time.monotonic() - self._began_s
        file = BudgetFile(
            run_id="one",
            attempt=1,
            usd_left=Decimal(1),
            usd_per_hour=Decimal(1),
            seconds_left=BUDGET_S - gone_s,
            share_gone=gone_s / BUDGET_S,
            should_stop=False,
            stop_reason="",
            grace_s=30.0,
            written_at=datetime.now(UTC),
        )
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(record_bytes(file))
        temporary.replace(self._path)


def cpu_s(batches: Iterable[Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Return the CPU seconds that this thread takes for a training of one pass."""
    began_s = time.thread_time()
    for batch in batches:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    return time.thread_time() - began_s


def overhead_us(steps: int) -> tuple[float, float]:
    """Return the CPU microseconds of a bare step, and what `budgeted` adds to it."""
    batches = [torch.ones(1, 1)] * steps
    bare, within = [], []
    for _ in range(3):
        for found in (bare, within):
            model = nn.Linear(1, 1, bias=False)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
            loader: Iterable[Tensor] = batches
            if found is within:
                loader = budgeted(batches, model, optimizer, Budget.here())
            found.append(cpu_s(loader, model, optimizer))
    return min(bare) / steps * 1e6, (min(within) - min(bare)) / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    steps = 10_000 if args.quick else args.steps
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="no folder for checkpoints")
    print(describe(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "budget.json")
        os.environ |= {
            "SHOESTRING_BUDGET": str(path),
            "SHOESTRING_PROGRESS": str(Path(name, "progress.json")),
        }
        with MeterFile(path):
            bare_us, added_us = overhead_us(steps)
    print(f"{steps:,} steps: {bare_us:.1f} us of CPU a bare step, {added_us:.1f} us more with budgeted")
    holds = added_us <= MOST_US
    print("holds" if holds else f"does not hold: more than {MOST_US:g} us")
    raise SystemExit(not holds)


if __name__ == "__main__":
    main()
