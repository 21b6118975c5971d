"""A list of heads that was kept elsewhere shows what the ledger alone cannot: that its end was removed, that
it was put back to an older state, or that it was written again.
"""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import StillClock
from example_ledger import check, copy_example, cut
from faulty_stores import MONTH

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import LedgerCorrupt, UsageError
from shoestring.spending.audit.export import export_accounts
from shoestring.spending.audit.heads import LedgerHead, ledger_heads, read_heads
from shoestring.spending.audit.verify import load_anchors, open_ledger_folder, verify
from shoestring.spending.ledger.ledger import Ledger, account_names


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return copy_example(tmp_path / "store")


@pytest.fixture
def kept(store: FolderStore) -> tuple[LedgerHead, ...]:
    return ledger_heads(store, StillClock(), account_names(store))


def check_against(store: FolderStore, kept: tuple[LedgerHead, ...]) -> None:
    verify(store, load_anchors(store), kept)


def test_heads_are_read_back_from_their_lines_and_hold_while_the_ledger_grows(store, kept, tmp_path):
    lines = "".join(f"{head.as_line()}\n" for head in kept)
    (tmp_path / "heads.txt").write_text(lines)
    assert lines.startswith(f"{MONTH} 5 ") and read_heads(tmp_path / "heads.txt") == kept
    Ledger(store, StillClock()).reserve("run-2", "more-1", "more", 1, Decimal("0.1"))
    Ledger(store, StillClock()).open("run-3", Decimal("1"))
    check_against(store, kept)


def test_a_store_that_was_put_back_to_an_older_state_is_found_only_by_heads_kept_elsewhere(store, tmp_path):
    shutil.copytree(store.root, tmp_path / "older")
    ledger = Ledger(store, StillClock())
    ledger.settle("run-2", "evaluate-1", Decimal("0.1"))
    kept = ledger_heads(store, StillClock(), account_names(store))
    older = FolderStore(tmp_path / "older")
    check(older)
    with pytest.raises(
        LedgerCorrupt, match=r"run-2/00000008\.json: is missing: the chain has 7 entries, .* put back"
    ):
        check_against(older, kept)


def test_an_end_that_was_removed_with_all_that_names_it_is_found_only_by_heads_kept_elsewhere(store, kept):
    cut(store, "run-2", 5)
    check(store)
    with pytest.raises(LedgerCorrupt, match=r"run-2/00000007\.json: is missing: the chain has 5 entries"):
        check_against(store, kept)


def test_an_account_that_was_removed_with_all_that_names_it_is_found_only_by_heads_kept_elsewhere(store):
    Ledger(store, StillClock()).open("2026-10", Decimal("1"))
    kept = ledger_heads(store, StillClock(), account_names(store))
    shutil.rmtree(store.root / "ledger/2026-10")
    check(store)
    with pytest.raises(LedgerCorrupt, match=r"2026-10/00000001\.json: is missing: the chain has 0 entries"):
        check_against(store, kept)


def test_a_ledger_that_was_written_again_is_found_only_by_heads_kept_elsewhere(store, kept, tmp_path):
    again = FolderStore(tmp_path / "again")
    ledger = Ledger(again, StillClock())
    ledger.open("run-1", Decimal("1"))
    ledger.open("run-2", Decimal("1"))
    for number in range(9):
        ledger.reserve("run-2", f"more-{number}", "more", number, Decimal("0.01"))
    check(again)
    with pytest.raises(LedgerCorrupt, match=r"the chain was written again|is missing: the chain has"):
        check_against(again, kept)
    with pytest.raises(
        LedgerCorrupt, match=r"run-2/00000007\.json: is not the entry .* the chain was written"
    ):
        check_against(again, kept[2:])


def test_an_export_is_compared_with_the_heads_of_its_own_accounts(store, kept, tmp_path):
    export_accounts(store, tmp_path / "copy", "run-1")
    verify(*open_ledger_folder(tmp_path / "copy"), kept)
    other = LedgerHead(account="run-1", entries=7, sha256="a" * 64)
    with pytest.raises(LedgerCorrupt, match=r"run-1/00000007\.json: is not the entry aaaa"):
        verify(*open_ledger_folder(tmp_path / "copy"), (other,))


@pytest.mark.parametrize(
    "text", ["", "\n", "{}", '{"ledger_heads": []}', "run-1 7", "../x 1 " + "a" * 64, "[1]"]
)
def test_a_file_that_names_no_heads_is_refused_and_not_taken_for_an_empty_list(tmp_path, text):
    (tmp_path / "heads.txt").write_text(text)
    with pytest.raises(UsageError, match="shoestring ledger heads"):
        read_heads(tmp_path / "heads.txt")
    with pytest.raises(UsageError, match="cannot read the heads"):
        read_heads(tmp_path / "missing.txt")
