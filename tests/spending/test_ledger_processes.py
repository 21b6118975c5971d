"""The ledger with real processes: many at once, killed at any moment, and on a full disk."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from faulty_stores import fast_folder

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.core.errors import BudgetExceeded, StoreFull
from shoestring.spending.audit.records import Anchor
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger, account_names
from shoestring.spending.ledger.parent_accounts import MONTH_ACCOUNT

WRITERS, ASKS_EACH = 4, 20
KILLS = 15


def reserve_many(root: Path, writer: int, gate: multiprocessing.synchronize.Barrier) -> None:
    ledger = Ledger(FolderStore(root), WallClock(), f"pod-{writer}")
    gate.wait()
    for number in range(ASKS_EACH):
        try:
            ledger.reserve("run", f"work-{writer}.{number}", "work", number, Decimal("0.01"))
        except BudgetExceeded:
            (root / f"refused-{writer}-{number}").touch()


def test_concurrent_processes_lose_and_duplicate_nothing_and_respect_the_cap(tmp_path):
    store, clock = FolderStore(tmp_path), WallClock()
    Ledger(store, clock).open("run", Decimal("0.60"))
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(WRITERS + 1)
    writers = [spawn.Process(target=reserve_many, args=(tmp_path, number, gate)) for number in range(WRITERS)]
    for process in writers:
        process.start()
    gate.wait()
    while any(process.is_alive() for process in writers):
        verify(store, {})
    assert [process.exitcode for process in writers] == [0] * WRITERS
    state = Ledger(store, clock).state("run")
    refused = {path.name.removeprefix("refused-") for path in tmp_path.glob("refused-*")}
    requested = {f"{writer}-{number}" for writer in range(WRITERS) for number in range(ASKS_EACH)}
    granted = {hold.removeprefix("work-").replace(".", "-") for hold in state.reservations}
    assert granted | refused == requested and not granted & refused
    assert (state.held_usd, state.left_usd, state.entries) == (Decimal("0.60"), Decimal(0), 61)
    verify(store, {"run": (Anchor(state.head_hash),)})


def live_runs(root: Path, writer: int) -> None:
    """Open and close runs until the process is killed."""
    ledger, number = Ledger(FolderStore(root), WallClock()), 0
    while True:
        number += 1
        run = f"run-{writer}-{number}"
        ledger.open(run, Decimal("1"))
        ledger.reserve(run, "train-1", "train", 1, Decimal("0.5"))
        ledger.extend(run, "train-1", Decimal("0.1"))
        ledger.settle(run, "train-1", Decimal("0.55"))
        ledger.close(run)


def test_a_writer_killed_at_any_moment_leaves_a_valid_chain():
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["shoestring.backends.local", "shoestring.spending.ledger.ledger"])
    rng = random.Random(7)
    with fast_folder() as folder:
        store = FolderStore(folder)
        for writer in range(KILLS):
            process = forks.Process(target=live_runs, args=(folder, writer))
            process.start()
            began_s = time.monotonic()
            while not (folder / f"ledger/run-{writer}-1").exists() and time.monotonic() < began_s + 20:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.05))
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            verify(store, {})
        ledger = Ledger(store, WallClock())
        for month in filter(MONTH_ACCOUNT.fullmatch, account_names(store)):
            ledger.repair_parent(month)
        found = verify(store, {})
        assert all(sentence.endswith("not opened yet") for sentence in found.unfinished)
        assert found.entries > 5 * KILLS


@pytest.fixture
def tiny_disk(tmp_path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a tiny disk needs root: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_reported_and_leaves_nothing_half_written(tiny_disk):
    store, clock = FolderStore(tiny_disk), WallClock()
    ledger = Ledger(store, clock)
    ledger.open("run", Decimal("1"))
    (tiny_disk / "ballast").write_bytes(b"x" * 20_000)
    granted = 0
    with pytest.raises(StoreFull, match=r"no space left for ledger/run/.*nothing of the object was written"):
        for number in range(64):
            ledger.reserve("run", f"work-{number}", "work", number, Decimal("0.01"))
            granted = number + 1
    assert 0 < granted < 64
    files = [path.name for path in (tiny_disk / "ledger/run").iterdir()]
    assert sorted(files) == [*(f"{number:08d}.json" for number in range(1, granted + 2)), "head.json"]
    verify(store, {})
    with pytest.raises(StoreFull):
        ledger.reserve("run", f"work-{granted}", "work", granted, Decimal("0.01"))
    (tiny_disk / "ballast").unlink()
    ledger.reserve("run", f"work-{granted}", "work", granted, Decimal("0.01"))
    state = Ledger(store, clock).state("run")
    assert (state.entries, state.held_usd) == (granted + 2, Decimal("0.01") * (granted + 1))
    assert verify(store, {"run": (Anchor(state.head_hash),)}).unfinished == ()
