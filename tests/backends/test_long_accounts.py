"""A new writer of a long account reads its checkpoint, not all of its entries."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pending_entries import contended_ledger, pending_entry, write_pending

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt
from shoestring.spending.ledger.account_checkpoint import MIN_INTERVAL, load_checkpoint
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.ledger import Ledger

CENT = Decimal("0.01")


def test_a_new_writer_reads_a_long_account_from_its_checkpoint(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    ledger, entries = contended_ledger(store), 2
    while entries <= MIN_INTERVAL:
        write_pending(
            store,
            entries + 1,
            *(pending_entry("run", f"work-{entries}-{number}", 10) for number in range(40)),
        )
        ledger.reserve("run", f"mine-{entries}", "work", 1, CENT / 1000)
        entries = ledger.state("run").entries
    kept = load_checkpoint(store, "run")
    assert kept and kept.named_by == MIN_INTERVAL <= entries and kept.named_in == entries - 40
    assert Ledger(store, WallClock()).state("run") == ledger.state("run")
    # Of the entries before the checkpoint, the writer reads only the object that names the checkpoint.
    for number in AccountChain(store, "run").object_numbers - {kept.named_in}:
        (store.root / store_layout.ledger_entry("run", number)).unlink()
    assert Ledger(store, WallClock()).state("run") == ledger.state("run")
    (store.root / store_layout.ledger_checkpoint("run")).unlink()
    with pytest.raises(LedgerCorrupt, match="is missing"):
        Ledger(store, WallClock()).state("run")
