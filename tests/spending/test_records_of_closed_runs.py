"""The digests of a run's records in the entries that close the accounts of its starts."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from clocks import StillClock

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import LedgerCorrupt
from shoestring.spending.audit.run_records import record_digests
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger

RECEIPT, RESULT = "runs/r/migration-checks/train-1.json", "runs/r/evaluation.json"


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """A store with a run of which the first start has ended."""
    store = FolderStore(tmp_path)
    store.put(RECEIPT, b"1")
    store.put(RESULT, b"1")
    store.put("runs/r/heartbeats/train-1.json", b"1")
    end_start(store, "r")
    return store


def end_start(store: FolderStore, account: str) -> None:
    ledger = Ledger(store, StillClock())
    ledger.open(account, Decimal(1))
    ledger.close(account, record_digests(store, "r"))


def test_only_what_stays_as_it_is_has_a_digest(store: FolderStore) -> None:
    assert sorted(record_digests(store, "r")) == ["evaluation.json", "migration-checks/train-1.json"]
    store.put("runs/r/heartbeats/train-1.json", b"2")
    verify(store, {})


@pytest.mark.parametrize("key", [RECEIPT, RESULT])
def test_a_record_that_is_changed_after_the_end_is_found(store: FolderStore, key: str) -> None:
    store.put(key, b"2")
    with pytest.raises(
        LedgerCorrupt, match=rf"^ledger/r/00000002\.json: ended the run with {key}, which was"
    ):
        verify(store, {})


def test_a_later_start_replaces_results_and_nothing_else(store: FolderStore) -> None:
    Ledger(store, StillClock()).open("r.2", Decimal(1))
    store.put(RESULT, b"2")
    verify(store, {})
    Ledger(store, StillClock()).close("r.2", record_digests(store, "r"))
    verify(store, {})
    store.put(RESULT, b"1")
    with pytest.raises(LedgerCorrupt, match=rf"^ledger/r\.2/00000002\.json: ended the run with {RESULT}"):
        verify(store, {})


def test_a_record_that_was_changed_before_a_later_start_ended_is_found(store: FolderStore) -> None:
    store.put(RECEIPT, b"2")
    end_start(store, "r.2")
    with pytest.raises(LedgerCorrupt, match=rf"^ledger/r/00000002\.json: ended the run with {RECEIPT}"):
        verify(store, {})


def test_two_exit_steps_that_read_other_records_close_the_account_once(store: FolderStore) -> None:
    first, second = (Ledger(store, StillClock()) for _ in range(2))
    first.open("other", Decimal(1))
    second.state("other")
    closing = first.close("other", {"run.json": "a" * 64})
    assert second.close("other", {"run.json": "b" * 64}) == closing
