"""Locations of stores, which other processes can receive and open."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.backends.memory import MemoryStore
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import open_s3_store
from shoestring.core.interfaces import Store

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["shoestring.backends.local", "shoestring.backends.s3.store", "shoestring.spending.ledger.ledger"]
)


@dataclass(frozen=True)
class StoreLocation:
    """Where a store is, and how to open it.

    `folder`: the folder of the store; for S3, the folder below which each reader caches fetched objects.
    `memory`: a store of this process, which no other process can open.
    """

    folder: Path
    s3: S3Location | None = None
    memory: MemoryStore | None = None

    def open(self) -> Store:
        if self.memory is not None:
            return self.memory
        if self.s3 is None:
            return FolderStore(self.folder)
        return open_s3_store(self.s3, Path(tempfile.mkdtemp(dir=self.folder)), WallClock())


def at_once(count: int, work: Callable[..., Any], *given: Any) -> list[Any]:
    """Return the results of `work(number, gate, *given)` in `count` processes, which start together at the
    gate.
    """
    gate, results = FORKS.Barrier(count), FORKS.SimpleQueue()
    processes = [
        FORKS.Process(target=_report, args=(results, work, number, gate, *given)) for number in range(count)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return [result for _, result in sorted(found, key=lambda pair: pair[0])]


def _report(results: Any, work: Callable[..., Any], number: int, gate: Any, *given: Any) -> None:
    try:
        results.put((number, work(number, gate, *given)))
    except BaseException as error:
        results.put((number, f"{type(error).__name__}: {error}"))
        raise
