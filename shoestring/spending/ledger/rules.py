"""The rules for the next entry of an account. Writers check them before they append, and readers for each
entry they read.
"""

from __future__ import annotations

from shoestring.core.attempt_id import declared_stage
from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.core.money import from_microusd
from shoestring.spending.ledger.balances import Balances
from shoestring.spending.ledger.entry import Entry


def check_entry(
    account: Balances, entry: Entry, min_left_microusd: int = 0, unbooked_microusd: int = 0
) -> None:
    """Check that `entry` may come next, with at least `min_left_microusd` still free after it.

    `unbooked_microusd`: what was spent besides, which no entry books.

    Raises:
        BudgetExceeded: it would exceed the cap of the account or of the stage, or settle above the reserved
            amount. LedgerConflict: the account or the reservation is not in a state for it.
    """
    if entry.kind == "open" or (entry.kind == "close" and not account.number and entry.parent):
        _check_first(account, entry)
    elif not account.number:
        raise LedgerConflict(account.name, "has not been opened")
    elif entry.kind == "close" and entry.parent:
        raise LedgerConflict(
            account.name, "is already open: only an account that was never opened is closed for its parent"
        )
    elif account.closed:
        wanted = f"{entry.kind} {entry.reservation}".rstrip()
        raise LedgerConflict(account.name, f"is closed, which is final: it cannot {wanted}")
    elif entry.kind == "cap":
        _check_cap(account, entry)
    elif entry.kind == "close":
        if account.reservations:
            names = ", ".join(sorted(account.reservations))
            raise LedgerConflict(
                account.name, f"cannot be closed while it holds money for {names}: settle that first"
            )
    elif entry.kind == "reserve":
        _check_reserve(account, entry, min_left_microusd, unbooked_microusd)
    else:
        _check_reservation(account, entry, min_left_microusd, unbooked_microusd)


def _check_first(account: Balances, entry: Entry) -> None:
    """Check the first entry of an account: an `open`, or a `close` if the account was not opened in time.

    After such a `close` the account cannot be opened any more.
    """
    if account.number:
        raise LedgerConflict(
            account.name, "is closed, which is final" if account.closed else "is already open"
        )
    if entry.campaign is not None and entry.parent is None:
        raise LedgerConflict(
            account.name, f"is inside {entry.campaign}, so it must be inside a month as well"
        )
    check_limit(account.name, entry.cap_microusd, entry.approve_above_microusd, entry.approval)
    for parent, entry_hash in entry.reserved_in:
        if entry_hash is None or (entry.kind == "open" and entry.cap_microusd is None):
            raise LedgerConflict(
                account.name,
                f"is inside {parent}, so it needs a cap and the entry of {parent} that reserved it",
            )


def check_limit(account: str, cap: int | None, limit: int | None, approval: str | None) -> None:
    """Check that an account without an approval is opened with at most `limit` (None: any cap), in
    micro-dollars. Raises LedgerConflict.
    """
    if cap is not None and limit is not None and cap > limit and approval is None:
        raise LedgerConflict(
            account,
            f"has a cap of ${from_microusd(cap)}, above the ${from_microusd(limit)} that needed no approval "
            "when it was opened: name an approval",
        )


def _check_cap(account: Balances, entry: Entry) -> None:
    """Check a new cap. Inside parents a cap can only rise, by an approval; without parents it can be anything
    not yet exceeded.
    """
    if entry.cap_microusd is None:
        raise LedgerConflict(account.name, "cannot be given a cap without an amount")
    cap = from_microusd(entry.cap_microusd)
    if account.parent is None:
        used = account.spent_microusd + account.held_microusd
        if used > entry.cap_microusd:
            raise LedgerConflict(
                account.name, f"has spent and holds ${from_microusd(used)}, so its cap cannot be ${cap}"
            )
        return
    if account.cap_microusd is None or entry.cap_microusd <= account.cap_microusd:
        before = from_microusd(account.cap_microusd or 0)
        raise LedgerConflict(
            account.name, f"has a cap of ${before}, which can only be raised, not set to ${cap}"
        )
    if entry.approval is None:
        raise LedgerConflict(
            account.name,
            f"cannot have its cap raised to ${cap} without an approval: "
            f"shoestring approve {account.name.partition('.')[0]} --usd {cap} --by NAME",
        )
    if tuple(name for name, entry_hash in entry.reserved_in if entry_hash) != account.parents:
        parents = " and ".join(account.parents)
        raise LedgerConflict(
            account.name, f"is inside {parents}, so a higher cap needs the entries there that reserved it"
        )


def _check_reserve(account: Balances, entry: Entry, min_left_microusd: int, unbooked_microusd: int) -> None:
    name = entry.reservation
    _check_not_negative(account, entry)
    if entry.id != f"reserve/{name}" or not name:
        # With this id, a reservation that existed before is a request that was made before.
        raise LedgerConflict(
            account.name, f"already had a reservation {name!r}: a new attempt needs a new name"
        )
    if entry.child not in (None, name):
        raise LedgerConflict(
            account.name,
            f"cannot hold {name} for the account {entry.child}: such a reservation has the account's name",
        )
    _check_fits(account, entry, entry.stage, min_left_microusd, unbooked_microusd)


def _check_reservation(
    account: Balances, entry: Entry, min_left_microusd: int, unbooked_microusd: int
) -> None:
    """Check an `extend`, `settle` or `adjust` of a reservation that exists."""
    amount, name = entry.amount_microusd, entry.reservation
    _check_not_negative(account, entry)
    _check_overrun(account, entry)
    found = account.settled.get(name) if entry.kind == "adjust" else account.reservations.get(name)
    if found is None:
        raise LedgerConflict(account.name, _missing_reservation(account, entry))
    if found.child != entry.child or (found.child and entry.kind == "adjust"):
        raise LedgerConflict(
            account.name, f"holds {name} for the account of that name: it is settled when that account closes"
        )
    if entry.kind == "settle":
        if amount > found.amount_microusd:
            amounts = map(from_microusd, (amount, found.amount_microusd, found.amount_microusd))
            raise BudgetExceeded(f"settle {name} of {account.name}", *amounts)
        if found.child and entry.child_hash is None:
            raise LedgerConflict(
                account.name, f"settles {name} without the hash of that account's last entry"
            )
    elif amount > 0:
        # A recorded overrun was paid already, so its stage's cap does not keep it from being booked.
        stage = "" if entry.kind == "adjust" and entry.overrun_microusd == -amount else found.stage
        _check_fits(account, entry, stage, min_left_microusd, unbooked_microusd)
    elif found.amount_microusd + amount < 0:
        settled, change = from_microusd(found.amount_microusd), from_microusd(amount)
        raise LedgerConflict(
            account.name, f"{name} was settled at ${settled}, which cannot be adjusted by ${change}"
        )


def _check_overrun(account: Balances, entry: Entry) -> None:
    overrun = account.overruns.get(entry.reservation, 0)
    if entry.overrun_microusd and (entry.kind != "adjust" or overrun + entry.overrun_microusd < 0):
        change = from_microusd(entry.overrun_microusd)
        raise LedgerConflict(
            account.name,
            f"has an overrun of ${from_microusd(overrun)} for {entry.reservation}: "
            f"it cannot {entry.kind} it by ${change}",
        )


def _check_not_negative(account: Balances, entry: Entry) -> None:
    if entry.amount_microusd < 0 and entry.kind != "adjust":
        raise LedgerConflict(account.name, f"cannot {entry.kind} {entry.reservation} by a negative amount")


def _missing_reservation(account: Balances, entry: Entry) -> str:
    if settled := account.settled.get(entry.reservation):
        amount = from_microusd(settled.amount_microusd)
        return f"already settled {entry.reservation} at ${amount}: it cannot {entry.kind} it"
    state = "settled" if entry.kind == "adjust" else "open"
    return f"has no {state} reservation {entry.reservation!r} to {entry.kind}"


def _check_fits(
    account: Balances, entry: Entry, stage: str, min_left_microusd: int, unbooked_microusd: int
) -> None:
    amount, what = entry.amount_microusd, f"{entry.kind} {entry.reservation}"
    used = account.spent_microusd + account.held_microusd + min_left_microusd + unbooked_microusd
    if account.cap_microusd is not None and used + amount > account.cap_microusd:
        kept = {"reserved for later stages": min_left_microusd, "overrun": unbooked_microusd}
        texts = ", ".join(f"${from_microusd(each)} {why}" for why, each in kept.items() if each)
        later = f" ({texts})" if texts else ""
        left = max(0, account.cap_microusd - used)
        amounts = map(from_microusd, (amount, left, account.cap_microusd))
        raise BudgetExceeded(f"{what} of {account.name}{later}", *amounts)
    stage = declared_stage(stage)
    cap, used = account.stage_caps.get(stage), account.stage_spent[stage] + account.stage_held[stage]
    if cap is not None and used + amount > cap:
        amounts = map(from_microusd, (amount, max(0, cap - used), cap))
        raise BudgetExceeded(f"{what} of stage {stage} in {account.name}", *amounts)
