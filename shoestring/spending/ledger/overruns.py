"""What an attempt cost beyond what its account has left: booked up to the cap, and the rest recorded as an
overrun, so that none of the cap is handed back.
"""

from __future__ import annotations

from decimal import Decimal

from shoestring.core.errors import BudgetExceeded
from shoestring.spending.ledger.ledger import Ledger

MAX_RACES = 8
"""Other writers of the account may take money between a refusal and the next try this many times."""


def book_cost(
    ledger: Ledger, account: str, reservation: str, cost_usd: Decimal, reason: str, id: str = ""
) -> Decimal:
    """Adjust a settled reservation to what it really cost, as far as the caps allow.

    The rest is recorded as its overrun, which is returned. With an `id` the request can be repeated.

    Raises:
        LedgerConflict: a request with this id was made before, for another cost.
    """
    limit_usd = cost_usd
    for _ in range(MAX_RACES):
        state = ledger.state(account)
        settled_usd = state.settled_usd[reservation]
        overrun_usd = state.overruns_usd.get(reservation, Decimal(0))
        more_usd = min(cost_usd - settled_usd, limit_usd)
        still_usd = cost_usd - settled_usd - more_usd
        if not more_usd and still_usd == overrun_usd:
            return overrun_usd
        try:
            ledger.adjust(account, reservation, more_usd, reason, id=id, overrun_usd=still_usd - overrun_usd)
            return still_usd
        except BudgetExceeded as error:
            limit_usd = max(Decimal(0), error.left_usd)
    raise AssertionError("an adjustment by $0 fits every cap")


def absorb_overruns(ledger: Ledger, account: str) -> None:
    """Book overruns with money that was released after they were recorded."""
    state = ledger.state(account)
    for name, overrun_usd in state.overruns_usd.items():
        cost_usd = state.settled_usd[name] + overrun_usd
        book_cost(ledger, account, name, cost_usd, "paid by money that was released later")
