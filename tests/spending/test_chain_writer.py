"""Writers with a wrong head hint, and on stores that show new objects late."""

from __future__ import annotations

from decimal import Decimal

import pytest
from clocks import StillClock
from faulty_stores import LateStore

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import (
    BudgetExceeded,
    LedgerCorrupt,
    StoreError,
)
from shoestring.core.record import record_bytes
from shoestring.spending.ledger.entry import HeadHint
from shoestring.spending.ledger.ledger import Ledger


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return FolderStore(tmp_path)


@pytest.fixture
def ledger(store, clock) -> Ledger:
    ledger = Ledger(store, clock, "host.1.2")
    ledger.open("run", Decimal("1.00"), stage_caps={"train": Decimal("0.60")})
    return ledger


def test_a_head_hint_ahead_of_the_chain_means_a_removed_end(store, clock, ledger):
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.1"))
    (store.root / "ledger/run/00000002.json").unlink()
    with pytest.raises(LedgerCorrupt, match=r"00000002\.json: is missing, and head\.json names 2 entries"):
        Ledger(store, clock).state("run")


def test_a_head_hint_that_is_behind_or_missing_changes_nothing(store, clock, ledger):
    first = ledger.state("run").head_hash
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.1"))
    store.put(store_layout.ledger_head("run"), record_bytes(HeadHint(number=1, sha256=first)))
    assert Ledger(store, clock).state("run").entries == 2
    (store.root / store_layout.ledger_head("run")).unlink()
    assert Ledger(store, clock).reserve("run", "train-2", "train", 2, Decimal("0.1")).entry.number == 3


def test_the_writer_waits_for_a_store_with_delayed_visibility(store, clock, ledger):
    late = Ledger(LateStore(store.root, looks=5), clock)
    late.state("run")
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.4"))
    with pytest.raises(BudgetExceeded):
        late.reserve("run", "ingest-1", "ingest", 1, Decimal("0.7"))
    assert late.reserve("run", "ingest-1", "ingest", 1, Decimal("0.6")).entry.number == 3


def test_the_wait_for_an_object_that_never_appears_times_out(store, clock, ledger):
    late = Ledger(LateStore(store.root, looks=10**9), clock)
    late.state("run")
    ledger.reserve("run", "train-1", "train", 1, Decimal("0.4"))
    with pytest.raises(
        StoreError, match=r"reports that ledger/run/00000002\.json exists, but cannot find it"
    ):
        late.reserve("run", "train-2", "train", 2, Decimal("0.1"))
