"""A long chain is read in parallel, with the same result as entry by entry."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import StillClock

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt
from shoestring.core.record import record_bytes
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.entry import HeadHint, read_entry
from shoestring.spending.ledger.ledger import Ledger


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(scope="module")
def chain_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("chain")


@pytest.fixture(scope="module")
def ledger(chain_folder) -> Ledger:
    """The ledger that wrote the long chain of `run`."""
    ledger = Ledger(FolderStore(chain_folder), StillClock())
    ledger.open("run", Decimal("1.00"))
    for number in range(1, 300):
        ledger.reserve("run", f"work-{number}", "work", number, Decimal("0.001"))
    return ledger


@pytest.fixture
def store(chain_folder, ledger, tmp_path) -> FolderStore:
    """A copy of the store with the long chain, to change."""
    shutil.copytree(chain_folder, tmp_path, dirs_exist_ok=True)
    return FolderStore(tmp_path)


class MeetingStore(FolderStore):
    """Blocks the read of each of these entries until all of them are being read."""

    def __init__(self, root: Path, account: str, numbers: Collection[int]) -> None:
        super().__init__(root)
        self._keys, self._meeting = (
            {store_layout.ledger_entry(account, number) for number in numbers},
            threading.Barrier(len(numbers), timeout=10),
        )

    def fetch(self, key: str) -> Path:
        if key in self._keys:
            self._meeting.wait()
        return super().fetch(key)


def test_a_long_chain_read_in_parallel_gives_the_same_state(store, clock, ledger):
    at_once = Ledger(MeetingStore(store.root, "run", range(20, 25)), clock)
    assert at_once.state("run") == ledger.state("run")


@pytest.mark.parametrize("number", [1, 2, 150, 256, 257, 299, 300])
def test_a_missing_entry_of_a_long_chain_is_reported_at_any_position(store, clock, ledger, number):
    (store.root / store_layout.ledger_entry("run", number)).unlink()
    with pytest.raises(
        LedgerCorrupt, match=rf"{number:08d}\.json: is missing, but an entry 300 exists or existed"
    ):
        verify(store, {})
    if number > 256:
        with pytest.raises(
            LedgerCorrupt, match=rf"{number:08d}\.json: is missing, and head\.json names 300 entries"
        ):
            Ledger(store, clock).state("run")


def test_a_long_chain_is_checked_in_order(store, clock, ledger):
    (store.root / store_layout.ledger_entry("run", 290)).write_bytes(
        (store.root / store_layout.ledger_entry("run", 291)).read_bytes()
    )
    with pytest.raises(LedgerCorrupt, match="290"):
        Ledger(store, clock).state("run")


def test_a_long_chain_is_read_past_an_old_head_hint(store, clock, ledger):
    early = read_entry(store, "run", 100)
    store.put(store_layout.ledger_head("run"), record_bytes(HeadHint(number=100, sha256=early.sha256)))
    assert Ledger(store, clock).state("run") == ledger.state("run")
