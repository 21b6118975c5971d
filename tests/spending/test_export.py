"""An export of a run's accounts is verified without its store, and a store through its folder."""

from __future__ import annotations

import functools
import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from approved_caps import approve, approved
from clocks import StillClock
from example_ledger import check, copy_example, cut
from examples import examples
from faulty_stores import MONTH, BusyStore, fast_folder
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt, UnknownName, UsageError
from shoestring.spending.audit.export import export_accounts
from shoestring.spending.audit.verify import load_anchors, open_ledger_folder, verify
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return copy_example(tmp_path)


def test_a_store_and_its_ledger_folder_verify_alike(store):
    whole = verify(store, load_anchors(store))
    assert (
        verify(*open_ledger_folder(store.root)) == whole == verify(*open_ledger_folder(store.root / "ledger"))
    )


def test_a_removed_chain_end_is_found_from_the_ledger_folder_too(store):
    cut(store, "run-2", 3)
    for path in (store.root, store.root / "ledger"):
        with pytest.raises(LedgerCorrupt, match=r"the receipt of train-1 names .* no chain has"):
            verify(*open_ledger_folder(path))


def test_a_folder_without_a_ledger_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="there is no ledger in"):
        open_ledger_folder(tmp_path)


def test_receipts_reveal_a_ledger_that_was_deleted(store):
    shutil.rmtree(store.root / "ledger")
    with pytest.raises(LedgerCorrupt, match=r"run-1: the receipt of ingest-1 names .* no chain has"):
        verify(*open_ledger_folder(store.root))


@pytest.fixture
def out(store, tmp_path) -> Path:
    """A run's output folder: its ledger export, and its receipts next to it."""
    export_accounts(store, tmp_path / "out/ledger", "run-1")
    shutil.copytree(store.root / "runs/run-1/receipts", tmp_path / "out/receipts")
    return tmp_path / "out"


def test_an_export_verifies_alone_and_names_what_it_does_not_contain(store, out, tmp_path):
    alone = tmp_path / "elsewhere"
    shutil.move(out, alone)
    shutil.move(alone / "ledger", alone / "books")
    shutil.rmtree(tmp_path / "ledger")
    found = verify(*open_ledger_folder(alone / "books"))
    assert [state.account for state in found.accounts] == [MONTH, "run-1"]
    assert found.spent_usd == Decimal("0.39")
    assert found.not_in_export == ("run-2, at $1.500000 in 2026-11, is not in this export",)


@examples(40)
@given(st.data())
def test_any_changed_byte_of_an_export_is_found(data):
    with fast_folder() as folder:
        export_accounts(copy_example(folder / "store"), folder / "out/ledger", "run-1")
        path = data.draw(st.sampled_from(sorted((folder / "out/ledger").rglob("*.json"))))
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        with pytest.raises(LedgerCorrupt):
            verify(*open_ledger_folder(folder / "out"))


def test_an_export_without_its_own_account_is_refused(out):
    shutil.rmtree(out / "ledger/run-1")
    with pytest.raises(
        LedgerCorrupt, match=r"run-1/00000001\.json: is missing: this export is of that account"
    ):
        verify(*open_ledger_folder(out))


def test_an_export_with_changed_formatting_is_found(out):
    marker = out / "ledger/export.json"
    marker.write_text(json.dumps(json.loads(marker.read_bytes()), sort_keys=True))
    with pytest.raises(LedgerCorrupt, match=r"export\.json: was changed"):
        verify(*open_ledger_folder(out))


def test_an_export_made_while_its_run_ends_verifies(store, tmp_path):
    ledger = Ledger(store, StillClock())
    ledger.settle("run-2", "evaluate-1", Decimal("0.05"))
    busy = BusyStore(
        store.root, store_layout.ledger_entry(MONTH, 1), functools.partial(ledger.close, "run-2")
    )
    export_accounts(busy, tmp_path / "out/ledger", "run-2")
    found = verify(*open_ledger_folder(tmp_path / "out"))
    assert [state.closed for state in found.accounts] == [False, True]


def test_an_export_replaces_an_older_export_and_no_other_files(store, tmp_path):
    folder, other = tmp_path / "out/ledger", copy_example(tmp_path / "other")
    export_accounts(store, folder, "run-1", "run-2")
    approve(other, "run-2")
    Ledger(other, StillClock()).set_cap("run-2", Decimal("7"), approved("run-2"))
    export_accounts(other, folder, "run-1")
    assert [state.account for state in verify(*open_ledger_folder(folder)).accounts] == [MONTH, "run-1"]
    with pytest.raises(UsageError, match="holds files that are not a ledger export"):
        export_accounts(store, store.root / "ledger", "run-1")
    with pytest.raises(UnknownName):
        export_accounts(store, tmp_path / "new", "run-9")
    check(store)


def test_the_export_of_a_run_contains_its_campaigns_chain(tmp_path):
    store, spring = FolderStore(tmp_path / "store"), campaign_account("spring")
    ledger = Ledger(store, StillClock())
    ledger.open(MONTH, Decimal("3"))
    ledger.open(spring, Decimal("2"))
    ledger.open("run", Decimal("1"), campaign=spring)
    ledger.open("other", Decimal("0.5"), campaign=spring)
    export_accounts(store, tmp_path / "copy", "run")
    found = verify(*open_ledger_folder(tmp_path / "copy"))
    assert [state.account for state in found.accounts] == [MONTH, "run", spring]
    assert len(found.not_in_export) == 2
