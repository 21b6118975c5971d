"""A store with two real runs, a finished one and a stopped one, whose objects are as old as a test wants."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import CorruptObject, NotInStore
from shoestring.data.storage.blobs import load_manifest, open_blob
from shoestring.data.storage.cache import find_outcome

STORED = Path(__file__).parent / "stored" / "v4" / "store"
DAY_S = 86400.0


class StoredRuns(FolderStore):
    """The store, its finished run `done`, of the recipe planes, and its stopped run, of long-planes."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(STORED, folder)
        super().__init__(folder)
        self.stopped, self.done = sorted(path.name for path in (folder / "runs").iterdir())
        self.age("", 10)

    def age(self, prefix: str, days: float) -> None:
        """Make all objects under a prefix this many days old."""
        at = time.time() - days * DAY_S
        for key in self.list(prefix):
            os.utime(self.root / key, (at, at))

    def all_keys(self) -> set[str]:
        return set(self.list(""))

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    def copy_run(self, run_id: str, new_id: str, days: float) -> None:
        """Copy the records of a run, as another run that is this many days old, with the same account."""
        shutil.copytree(self.root / "runs" / run_id, self.root / "runs" / new_id)
        record = self.root / "runs" / new_id / "run.json"
        record.write_text(record.read_text().replace(run_id, new_id))
        self.age(f"runs/{new_id}/", days)

    def open_account(self, run_id: str) -> None:
        """Remove the entry that closed a run's account: the run counts as running."""
        entries = sorted(path for path in (self.root / "ledger" / run_id).glob("0*.json"))
        entries[-1].unlink()
        (self.root / "ledger" / run_id / "head.json").unlink()


def dangling(store: FolderStore) -> Iterator[str]:
    """Yield each manifest and cached result of the store of which a part is missing or damaged."""
    for key in store.list("datasets/"):
        manifest = load_manifest(store, key)
        for part in (part for parts in manifest.splits.values() for part in parts):
            try:
                open_blob(store, part.sha256)
            except (NotInStore, CorruptObject):
                yield f"{key}: {part.sha256}"
    for key in store.list("cache/"):
        if key.count("/") == 1 and find_outcome(store, Path(key).stem) is None:
            yield key
