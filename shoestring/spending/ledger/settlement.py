"""Writes the cost of an ended attempt into its account. Everything that settles an attempt does it here.

What goes beyond the money of the account is booked up to the cap, and the rest recorded as an overrun, so
that none of the cap is handed back.
"""

from __future__ import annotations

from decimal import Decimal

from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.spending.end_evidence import EndCost
from shoestring.spending.ledger.ledger import Ledger

MAX_RACES = 8
"""Other writers of the account may take money between a refusal and the next try this many times."""


def settle_at_cost(
    ledger: Ledger, account: str, name: str, cost: EndCost, reserved_usd: Decimal, reason: str
) -> Decimal | None:
    """Settle the reservation of an ended attempt at its cost; return the overrun. None: it was settled
    meanwhile.
    """
    settled_usd = min(cost.usd, reserved_usd)
    try:
        ledger.settle(account, name, settled_usd, reason)
    except LedgerConflict:
        return None
    if cost.is_capped or cost.usd == settled_usd:
        return Decimal(0)
    return book_cost(
        ledger, account, name, cost.usd, f"it cost ${cost.usd}, more than was reserved for it", id=name
    )


def book_cost(
    ledger: Ledger, account: str, reservation: str, cost_usd: Decimal, reason: str, id: str = ""
) -> Decimal | None:
    """Adjust a settled reservation to what it really cost, as far as the caps allow.

    The rest is recorded as its overrun, which is returned. With an `id` the request can be repeated. None:
    the account is closed, or a request with this id was made before, for another cost.
    """
    try:
        return _adjust(ledger, account, reservation, cost_usd, reason, id)
    except LedgerConflict:
        return None


def _adjust(
    ledger: Ledger, account: str, reservation: str, cost_usd: Decimal, reason: str, id: str
) -> Decimal:
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
    """Book overruns with money that was released after they were recorded, and those of a stage's own cap
    with money that no other stage took. Done before an account is closed: what is not booked goes back.
    """
    state = ledger.state(account)
    for name, overrun_usd in state.overruns_usd.items():
        cost_usd = state.settled_usd[name] + overrun_usd
        book_cost(ledger, account, name, cost_usd, "paid by what the account has left")
