"""Writers that die at any write, and stores that lose their answers."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from approved_caps import approve, approved
from clocks import StillClock
from faulty_stores import MONTH, DyingStore, ForgetfulStore, fast_folder, writes_of
from test_ledger_laws import start_run

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import StoreError
from shoestring.core.money import microusd
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import LEASE_S


def run_once(ledger: Ledger) -> None:
    start_run(ledger)
    ledger.extend("run", "train-1", Decimal("0.1"), id="pod-1/1")
    ledger.settle("run", "train-1", Decimal("0.35"))
    ledger.adjust("run", "train-1", Decimal("0.01"), "true times", id="exit")
    ledger.set_cap("run", Decimal("2"), approved())
    ledger.close("run")


@pytest.mark.parametrize("wrote", [False, True], ids=["before", "after"])
def test_a_writer_that_dies_at_any_write_leaves_a_valid_ledger_that_a_repeat_completes(
    wrote: bool,
):
    whole = Decimal("0.46")
    for at in range(1, writes_of(run_once) + 1):
        with fast_folder() as folder:
            store, clock = FolderStore(folder), StillClock()
            approve(store)
            with suppress(StoreError):
                run_once(Ledger(DyingStore(folder, at, wrote=wrote), clock))
            verify(store, {})
            again = Ledger(store, clock)
            run_once(again)
            found = verify(store, {})
            assert (found.spent_usd, found.held_usd, found.unfinished) == (whole, Decimal(0), ())
            assert (again.state("run").entries, again.state(MONTH).entries) == (9, 4)


def test_a_store_that_loses_its_answers_gets_no_second_entry(tmp_path):
    approve(FolderStore(tmp_path))
    run_once(Ledger(ForgetfulStore(tmp_path), StillClock()))
    found = verify(FolderStore(tmp_path), {})
    assert [state.entries for state in found.accounts] == [4, 9]
    assert found.spent_usd == Decimal("0.46")


@pytest.mark.parametrize("wrote", [False, True], ids=["before", "after"])
def test_repairing_a_month_releases_what_crashed_writers_left(wrote: bool):
    for at in range(1, writes_of(run_once) + 1):
        with fast_folder() as folder:
            store, clock = FolderStore(folder), StillClock()
            approve(store)
            with suppress(StoreError):
                run_once(Ledger(DyingStore(folder, at, wrote=wrote), clock))
            repairer = Ledger(store, clock)
            if not list(store.list(f"ledger/{MONTH}/")):
                continue
            clock.sleep(LEASE_S)
            repairer.repair_parent(MONTH)
            assert repairer.repair_parent(MONTH) == []
            found = verify(store, {})
            runs = [state for state in found.accounts if state.account == "run"]
            still_open = any(not state.closed for state in runs)
            assert found.unfinished == ()
            assert set(found.accounts[0].reservations) == ({"run"} if still_open else set())
            assert microusd(found.accounts[0].spent_usd) == sum(
                microusd(run.spent_usd) for run in runs if run.closed
            )
