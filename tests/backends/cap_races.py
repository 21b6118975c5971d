"""Runs in processes of their own that reach for one month's last money at the same moment."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from store_places import Place, at_once

from shoestring.backends.local import WallClock
from shoestring.core.errors import BudgetExceeded
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger

MONTH_CAP_USD, RUN_CAP_USD = Decimal("1.50"), Decimal("1.00")


def open_run(me: int, gate: Any, place: Place, month: str) -> str:
    """What the ledger said to this run: nothing, or its no."""
    ledger = Ledger(place.open(), WallClock(), f"pod-{me}")
    gate.wait()
    try:
        ledger.open(f"{month}-run-{me}", RUN_CAP_USD, month)
    except BudgetExceeded as error:
        return str(error)
    return ""


def race(place: Place, month: str, runs: int = 2) -> tuple[list[str], Decimal]:
    """What each run was told, and what the month holds afterwards; the books are verified."""
    store = place.open()
    ledger = Ledger(store, WallClock())
    ledger.open(month, MONTH_CAP_USD)
    said = at_once(runs, open_run, place, month)
    state = Ledger(store, WallClock()).state(month)
    verify(store, {month: (state.head_hash,)})
    return said, state.held_usd
