"""An approval counts up to its amount, until it expires, unchanged; the entry that uses it names it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import NOON, StillClock
from faulty_stores import MONTH

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.errors import LedgerConflict, LedgerCorrupt
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.spending.approvals import (
    ENTRY_MARGIN_S,
    Approval,
    insufficiency_reason,
    read_approvals,
    valid_approval,
    write_approval,
)
from shoestring.spending.audit.export import export_accounts
from shoestring.spending.audit.verify import open_ledger_folder, verify
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import Entry, hash_entry
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import ParentAccounts


def approval(amount: str = "5", days: float = 1, by: str = "ann", at: float = 0) -> Approval:
    return Approval(
        run_id="run",
        approved_by=by,
        approved_at=NOON + timedelta(seconds=at),
        amount_usd=Decimal(amount),
        expires_at=NOON + timedelta(days=days),
        pod=PodRef.parse("host.1.2"),
    )


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def test_the_newest_sufficient_approval_counts_and_an_insufficient_one_gives_the_reason(store):
    first, last = write_approval(store, approval("5")), write_approval(store, approval("6", at=9, by="bob"))
    write_approval(store, approval("1", at=10))
    found = read_approvals(store, "run")
    assert valid_approval(found, Decimal("5"), NOON) == last
    assert valid_approval({first: found[first]}, Decimal("5"), NOON) == first
    assert valid_approval(found, Decimal("6.000001"), NOON) is None
    assert insufficiency_reason(found, Decimal("7"), NOON) == "ann approved $1.000000, which is less"
    assert insufficiency_reason({}, Decimal("7"), NOON) == ""


def test_an_approval_that_expires_within_the_margin_does_not_count(store):
    sha256 = write_approval(store, approval())
    found, end = read_approvals(store, "run"), NOON + timedelta(days=1)
    assert valid_approval(found, Decimal("5"), end - timedelta(seconds=ENTRY_MARGIN_S + 1)) == sha256
    assert valid_approval(found, Decimal("5"), end - timedelta(seconds=ENTRY_MARGIN_S)) is None
    assert (
        insufficiency_reason(found, Decimal("5"), end)
        == "the approval of ann expires at 2026-11-22 12:00 UTC, and it is 2026-11-22 12:00"
    )


@pytest.fixture
def used(store: FolderStore) -> str:
    """The digest of an approval with which a run was opened."""
    sha256 = write_approval(store, approval())
    Ledger(store, StillClock()).open("run", Decimal("5"), approval=sha256)
    return sha256


def test_a_ledger_with_an_approval_verifies_also_after_an_export(store, used, tmp_path):
    verify(store, {})
    export_accounts(store, tmp_path / "copy", "run")
    verify(*open_ledger_folder(tmp_path / "copy"))
    (tmp_path / "copy/run/approvals" / f"{used}.json").unlink()
    with pytest.raises(LedgerCorrupt, match=rf"names the approval {used[:12]}\.\.\., which does not exist"):
        verify(*open_ledger_folder(tmp_path / "copy"))


@pytest.mark.parametrize("by", ["eve", ""])
def test_a_changed_approval_is_reported_to_every_reader(store, used, by):
    path = store.root / store_layout.approvals("run", used)
    path.write_bytes(path.read_bytes().replace(b'"approved_by": "ann"', f'"approved_by": "{by}"'.encode()))
    for read in (lambda: verify(store, {}), lambda: read_approvals(store, "run")):
        with pytest.raises(LedgerCorrupt, match="was changed after it was given"):
            read()


def test_an_approval_copied_to_another_run_is_reported(store, used):
    store.put(store_layout.approvals("other", used), record_bytes(approval()))
    with pytest.raises(LedgerCorrupt, match="was changed after it was given"):
        read_approvals(store, "other")


INSUFFICIENT = [
    (approval("4.999999"), r"has a cap of \$5\.000000, but the approval .* of ann allows \$4\.999999"),
    (approval(days=-1), r"was written after the approval .* of ann had expired"),
]

MADE_UP = ["", "0" * 64, "../../run/approvals/x"]


def set_cap_by_hand(store: FolderStore, cap: int, **more: object) -> None:
    """Raise a cap as a process does that writes entries by itself: the month reserves the difference."""
    clock = StillClock()
    (month,) = ParentAccounts(ChainWriter(store, clock), clock, "").reserve_at_least("run", cap)
    last = Ledger(store, clock).state("run")
    forged = Entry(
        account="run",
        number=last.entries + 1,
        prev=last.head_hash,
        at=NOON,
        kind="cap",
        id=f"cap/{cap}",
        cap_microusd=cap,
        parent=MONTH,
        parent_hash=month,
        **more,
    )
    store.put(store_layout.ledger_entry("run", forged.number), record_bytes(hash_entry(forged)))


@pytest.mark.parametrize(("given", "reason"), INSUFFICIENT)
def test_verify_reports_a_cap_that_its_approval_does_not_allow(store, given, reason):
    Ledger(store, StillClock()).open("run", Decimal("1"))
    set_cap_by_hand(store, 5_000_000, approval=write_approval(store, given))
    with pytest.raises(LedgerCorrupt, match=reason):
        verify(store, {})


@pytest.mark.parametrize(
    ("given", "reason"),
    [*INSUFFICIENT, *((made_up, r"the approval .*\.\.\., which does not exist") for made_up in MADE_UP)],
)
def test_no_account_gets_a_cap_by_an_approval_that_does_not_allow_it(store, given, reason):
    """Neither does its month reserve anything for it."""
    ledger = Ledger(store, StillClock())
    ledger.open("run", Decimal("1"))
    named = given if isinstance(given, str) else write_approval(store, given)
    for ask in (
        lambda: ledger.set_cap("run", Decimal("5"), named),
        lambda: ledger.open("run.2", Decimal("5"), approval=named),
    ):
        with pytest.raises(LedgerConflict, match=reason):
            ask()
    assert ledger.state("run").cap_usd == ledger.state(MONTH).held_usd == Decimal("1")
    verify(store, {})


def test_a_raised_cap_names_its_approval(store, used):
    ledger = Ledger(store, StillClock())
    more = write_approval(store, approval("8", at=1))
    assert ledger.set_cap("run", Decimal("8"), more).entry.approval == more
    verify(store, {})
    (store.root / store_layout.approvals("run", more)).unlink()
    with pytest.raises(LedgerCorrupt, match="run/00000002"):
        verify(store, {})


def test_verify_reports_a_cap_that_was_raised_without_an_approval(store, used):
    set_cap_by_hand(store, 8_000_000)
    reason = r"run/00000002\.json: .* raised to \$8\.000000 without an approval: shoestring approve run"
    for read in (lambda: verify(store, {}), lambda: Ledger(store, StillClock()).state("run")):
        with pytest.raises(LedgerCorrupt, match=reason):
            read()


def test_an_account_above_the_limit_of_its_time_is_not_opened_without_an_approval(store):
    ledger = Ledger(store, StillClock())
    ledger.open("small", Decimal("5"), approve_above_usd=Decimal("5"))
    with pytest.raises(LedgerConflict, match=r"\$5\.000001, above the \$5\.000000 that needed no approval"):
        ledger.open("run", Decimal("5.000001"), approve_above_usd=Decimal("5"))
    more = write_approval(store, approval("6"))
    ledger.open("run", Decimal("6"), approve_above_usd=Decimal("5"), approval=more)
    verify(store, {})
