"""Runs in separate processes that reserve the rest of one month's cap at the same moment."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from store_locations import StoreLocation, at_once

from shoestring.backends.local import WallClock
from shoestring.core.errors import BudgetExceeded
from shoestring.spending.audit.records import Anchor
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger

MONTH_CAP_USD, RUN_CAP_USD = Decimal("1.50"), Decimal("1.00")


def open_run(me: int, gate: Any, location: StoreLocation, month: str) -> str:
    """Return the ledger's refusal of this run; empty if it was admitted."""
    ledger = Ledger(location.open(), WallClock(), f"pod-{me}")
    gate.wait()
    try:
        ledger.open(f"{month}-run-{me}", RUN_CAP_USD, month)
    except BudgetExceeded as error:
        return str(error)
    return ""


def race(location: StoreLocation, month: str, runs: int = 2) -> tuple[list[str], Decimal]:
    """Return each run's refusal and the month's balance afterwards; the ledger is verified."""
    store = location.open()
    ledger = Ledger(store, WallClock())
    ledger.open(month, MONTH_CAP_USD)
    refusals = at_once(runs, open_run, location, month)
    state = Ledger(store, WallClock()).state(month)
    verify(store, {month: (Anchor(state.head_hash),)})
    return refusals, state.held_usd
