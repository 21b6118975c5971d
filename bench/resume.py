"""Claim: a training that is killed at random points, and resumed with another batch size, number of ranks and
number of loader threads each time, trains on every selected row once an epoch, in the order of a training
that nothing interrupts.

Each start is a group of real processes, killed with SIGKILL: one that steps and writes checkpoints, and one
for each rank, which reads its part of every batch. The learner is a cheap one: its state is the digest of the
rows of each epoch, in the order in which they were trained. Only what the last checkpoint descends from
counts: rows after a checkpoint that a kill discarded are trained again.

python bench/resume.py [--kills 300] [--rows 40000] [--seed 0] [--quick]

--quick: 100 kills, 20,000 rows; a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from machine import describe

from shoestring.backends.folder_store import FolderStore
from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import Guardrails
from shoestring.core.datasets import Encoding
from shoestring.core.types import Format
from shoestring.data.formats.readers import open_rows, write_table
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.samples import Collator, SampleReader
from shoestring.data.loading.selection import choose_share, read_selection, store_selection
from shoestring.data.loading.shuffle import SampleCursor, sample_indices
from shoestring.training.checkpoints import Checkpoint, Checkpoints, read_pointer
from shoestring.training.contracts import TrainingSetup
from shoestring.training.control.controller import Controller
from shoestring.training.control.memory import remember

RUN_ID, SHARE, PARTS = "resumed", 0.6, 3
STEP_S, CHECKPOINT_STEPS = 0.002, 8
MOST_SECONDS = 0.5
BATCHES, RANKS, THREADS = (7, 32, 100, 333, 1024), (1, 2, 3, 4), (1, 2, 4)
Ids = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Start:
    """One start of the training: what differs between starts, and where the data is. `epochs`: where it ends;
    None: only by a kill."""

    folder: Path
    rows: int
    attempt: int
    seed: int
    batch_rows: int
    ranks: int
    threads: int
    epochs: int | None = None


def open_table(folder: Path) -> SampleReader:
    """Return the samples of the parts in `folder`; the target of each is its row number."""
    rows = open_rows(sorted(folder.glob("*.packed")), Format.PACKED, folder)
    return SampleReader(rows, Collator(Encoding(features=(), task="regression"), rows.dtype))


def write_parts(folder: Path, rows: int) -> None:
    for part, values in enumerate(np.array_split(np.arange(rows, dtype=np.float64), PARTS)):
        write_table(pa.table({"y": values}), Format.PACKED, folder / f"{part}.packed")


def read_part(start: Start, rank: int, cursor: SampleCursor, steps: Connection) -> None:
    """Answer each batch size with the row numbers of this rank, until there is none."""
    rows = open_table(start.folder)
    rows = rows.subset(read_selection(FolderStore(start.folder), cursor.selection, len(rows)))
    # Few bytes, so that blocks end in the middle of batches.
    with Loader(
        rows, cursor, rank=rank, ranks=start.ranks, threads=start.threads, prefetch_bytes=1 << 14
    ) as loader:
        while (batch_rows := steps.recv()) is not None:
            batch = loader.next_batch(batch_rows)
            steps.send((batch.start, batch.stop, batch.samples["target"].astype(np.int64), loader.cursor))


class Ranks:
    """The rank processes of one start."""

    def __init__(self, start: Start, cursor: SampleCursor) -> None:
        fork = multiprocessing.get_context("fork")
        self._steps, self._processes = list[Connection](), []
        for rank in range(start.ranks):
            here, there = fork.Pipe()
            self._processes.append(fork.Process(target=read_part, args=(start, rank, cursor, there)))
            self._processes[-1].start()
            self._steps.append(here)

    def step(self, batch_rows: int) -> tuple[Ids, SampleCursor]:
        """Return the rows of the next batch of all ranks in the global order, and the cursor after it."""
        for each in self._steps:
            each.send(batch_rows)
        answers = [each.recv() for each in self._steps]
        (span,) = {(start, stop) for start, stop, _, _ in answers}
        (cursor,) = {cursor for *_, cursor in answers}
        ids = np.empty(span[1] - span[0], np.int64)
        for rank, (start, _, own, _) in enumerate(answers):
            ids[(rank - start) % len(answers) :: len(answers)] = own
        return ids, cursor

    def close(self) -> None:
        for step, process in zip(self._steps, self._processes, strict=True):
            step.send(None)
            process.join()


class OrderDigest:
    """A learner whose state is the order of the rows: the digest of each epoch, and the rows of the current
    one (int64)."""

    def __init__(self, state: bytes = b"") -> None:
        digests, _, rows = state.partition(b"\n")
        self.epochs = digests.decode().split()
        self.current: Ids = np.frombuffer(rows, np.int64)

    def state(self) -> bytes:
        return " ".join(self.epochs).encode() + b"\n" + self.current.tobytes()

    def end_epoch(self) -> None:
        self.epochs.append(hashlib.sha256(self.current.tobytes()).hexdigest())
        self.current = np.zeros(0, np.int64)


def checkpoint_at(cursor: SampleCursor, samples: int) -> Checkpoint:
    """Return a checkpoint whose controller has decided nothing yet."""
    setup = TrainingSetup(1, 1, 1, 1, 1.0, AdaptationLimits(), Guardrails())
    return Checkpoint(
        rows_sha256="rows",
        samples=samples,
        cursor=cursor,
        memory=remember(Controller.start(setup, None), 1.0),
        training_s=0.0,
        spent_usd=Decimal(0),
        sample_ranges=(),
        starts=(),
        windows=(),
        is_shaped_by_budget=False,
    )


def train(start: Start) -> None:
    """Train from the last checkpoint on."""
    store, chance = FolderStore(start.folder), random.Random(start.attempt)
    checkpoints = Checkpoints(store, RUN_ID, start.attempt)
    saved, _ = checkpoints.load("rows")
    if saved:
        cursor, samples = saved.checkpoint.cursor, saved.checkpoint.samples
        learner = OrderDigest(saved.parts["learner"])
    else:
        chosen = choose_share(start.rows, start.seed, SHARE)
        cursor, samples = SampleCursor(seed=start.seed, selection=store_selection(store, chosen)), 0
        learner = OrderDigest()
    ranks = Ranks(start, cursor)
    for number in range(1, 1 << 30):
        epoch = cursor.epoch
        ids, cursor = ranks.step(start.batch_rows if chance.random() < 0.9 else chance.choice(BATCHES))
        if cursor.epoch > epoch:
            learner.end_epoch()
        learner.current = np.concatenate([learner.current, ids])
        samples += len(ids)
        time.sleep(STEP_S)
        done = start.epochs is not None and len(learner.epochs) >= start.epochs
        if done or not number % CHECKPOINT_STEPS:
            checkpoints.save(checkpoint_at(cursor, samples), {"learner": learner.state()})
        if done:
            ranks.close()
            return


@contextmanager
def started(start: Start) -> Iterator[int]:
    """Run a start in a process group of its own; the id of both."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setsid()
            train(start)
            code = 0
        finally:
            # Also after an error: the child must not go on as its parent.
            if code:
                traceback.print_exc()
            os._exit(code)
    yield pid
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"start {start.attempt} failed by itself")


def run(folder: Path, first: Start, kills: int, chance: random.Random) -> tuple[Counter[str], OrderDigest]:
    """Start and kill the training `kills` times, then let it end. Return counts, and the last checkpoint."""
    store, counts, seen = FolderStore(folder), Counter[str](), 0
    for attempt in range(1, kills + 1):
        choice = [chance.choice(each) for each in (BATCHES, RANKS, THREADS)]
        batch_rows, ranks, threads = choice
        start = replace(first, attempt=attempt, batch_rows=batch_rows, ranks=ranks, threads=threads)
        with started(start) as pid:
            time.sleep(chance.uniform(0.0, MOST_SECONDS))
            # Before setsid(), the child has no group of its own, and no children.
            kill = os.killpg if os.getpgid(pid) == pid else os.kill
            kill(pid, signal.SIGKILL)
        slots = read_pointer(store, RUN_ID).slots
        samples = slots[0].samples if slots else 0
        counts["resumed from a checkpoint"] += attempt > 1 and seen > 0
        counts["went on before the kill"] += samples > seen
        counts[f"with {ranks} ranks"] += 1
        seen = samples
    last = kills + 1
    saved, _ = Checkpoints(store, RUN_ID, last).load("rows")
    epochs = len(OrderDigest(saved.parts["learner"]).epochs) + 2 if saved else 2
    with started(replace(first, attempt=last, ranks=2, epochs=epochs)):
        pass
    saved, note = Checkpoints(store, RUN_ID, last).load("rows")
    assert saved and not note, note
    return counts, OrderDigest(saved.parts["learner"])


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    kills, rows = (100, 20_000) if args.quick else (args.kills, args.rows)
    print(describe(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_parts(folder, rows)
        first = Start(folder, rows, attempt=0, seed=args.seed, batch_rows=1024, ranks=1, threads=1)
        counts, saved = run(folder, first, kills, random.Random(args.seed))
    chosen = choose_share(rows, args.seed, SHARE)
    n, epochs = len(chosen), saved.epochs
    expected = [
        hashlib.sha256(chosen[sample_indices(n, args.seed, epoch, 0, n)].tobytes()).hexdigest()
        for epoch in range(len(epochs))
    ]
    begun = saved.current
    holds = epochs == expected and np.array_equal(
        begun, chosen[sample_indices(n, args.seed, len(epochs), 0, len(begun))]
    )
    print(f"{kills} kills: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    print(f"{len(epochs)} epochs of {n:,} selected rows of {rows:,}, and {len(begun):,} rows of the next")
    wrong = [
        number for number, (found, right) in enumerate(zip(epochs, expected, strict=True)) if found != right
    ]
    print("holds" if holds else f"does not hold: epochs {wrong} differ")
    raise SystemExit(not holds)


if __name__ == "__main__":
    main()
