"""Accounts inside accounts: the cap of a run's account is reserved in its month's account, and in its
campaign's if it has one.

The cap is reserved in each parent before the child account is opened, and settled there when the child
closes. A writer that dies in between leaves a reservation in a parent. The same request made again completes
it, or `repair` settles it after `LEASE_S`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta

from shoestring.config.budgets import CAMPAIGN_NAME
from shoestring.core.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from shoestring.core.interfaces import Clock
from shoestring.core.money import from_microusd
from shoestring.spending.ledger.balances import OpenReservation
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import NO_ENTRY, Entry, HashedEntry

MONTH_ACCOUNT = re.compile(r"\d{4}-\d{2}")
# No run's account ends in this suffix: the part after the dot of such an account is a number.
CAMPAIGN_ACCOUNT = re.compile(rf"({CAMPAIGN_NAME})\.campaign")
LEASE_S = 600
"""Age at which a reservation in a parent counts as abandoned if its child was never opened. Opening takes a
few writes.
"""


def campaign_account(campaign: str) -> str:
    return f"{campaign}.campaign"


def is_root_account(account: str) -> bool:
    """Return whether the account has no parents: a month or a campaign. So a campaign may last several
    months.
    """
    return bool(MONTH_ACCOUNT.fullmatch(account) or CAMPAIGN_ACCOUNT.fullmatch(account))


class ParentAccounts:
    """Reserves, raises and settles the caps of child accounts in their parents."""

    def __init__(self, chains: ChainWriter, clock: Clock, writer: str) -> None:
        self._chains, self._clock, self._writer = chains, clock, writer

    def reserve_in_all(self, parents: tuple[str, ...], child: str, cap: int | None) -> tuple[str, ...]:
        """Reserve the child's cap (in micro-dollars) in all parents, or in none. Returns the hashes of the
        entries.

        Raises:
            BudgetExceeded, LedgerConflict: from the parent that refused. The child's name cannot be used any
                more.
        """
        if cap is None and parents:
            raise LedgerConflict(child, f"is inside {parents[0]}, so it needs a cap")
        hashes: list[str] = []
        for parent in parents:
            if MONTH_ACCOUNT.fullmatch(parent) and not self._chains.latest(parent).number:
                self._chains.append(self.draft(parent, kind="open", id="open"))
            about = {"reservation": child, "child": child, "amount_microusd": cap}
            reserve = self.draft(parent, kind="reserve", id=f"reserve/{child}", **about)
            try:
                hashes.append(self._chains.append(reserve).sha256)
            except (BudgetExceeded, LedgerConflict) as error:
                if hashes:
                    self._roll_back(parents[: len(hashes)], child, hashes[0], str(error))
                raise
        return tuple(hashes)

    def _roll_back(self, parents: tuple[str, ...], child: str, entry_hash: str, reason: str) -> None:
        """Release the child's reservations, unless another writer has opened the child in the meantime."""
        with suppress(LedgerConflict):
            self._close_before_open(parents[0], child, entry_hash, reason)
            for parent in parents:
                self.settle(parent, child)

    def _close_before_open(self, parent: str, child: str, entry_hash: str, reason: str) -> None:
        """Close a child account that was never opened, so that it cannot be opened any more. Raises
        LedgerConflict.
        """
        about = {"parent": parent, "parent_hash": entry_hash, "reason": reason}
        self._chains.append(self.draft(child, kind="close", id="close", **about))

    def reserve_at_least(self, child: str, cap: int) -> tuple[str, ...]:
        """Raise the child's reservations to `cap` micro-dollars. Returns the hashes of the entries that cover
        it.

        All parents are checked before the first of them is written to.

        Raises:
            BudgetExceeded: a parent has too little left.
        """
        parents = self._chains.cached(child).parents
        drafts = [self._extension(parent, child, cap) for parent in parents]
        for parent, draft in zip(parents, drafts, strict=True):
            if draft is not None:
                self._chains.latest(parent).check(draft)
        hashes = (None if draft is None else self._chains.append(draft).sha256 for draft in drafts)
        return tuple(
            sha256 or self._chains.cached(parent).reservations[child].entry_hash
            for parent, sha256 in zip(parents, hashes, strict=True)
        )

    def _extension(self, parent: str, child: str, cap: int) -> Entry | None:
        """Return the entry that raises the child's reservation to `cap`, or None if it covers `cap`."""
        open_ = self._chains.latest(parent).reservations.get(child)
        if open_ is None:
            raise LedgerConflict(child, "was closed by another writer in the meantime")
        if (more := cap - open_.amount_microusd) <= 0:
            return None
        about = {"reservation": child, "child": child, "amount_microusd": more}
        return self.draft(parent, kind="extend", id=f"extend/{child}/{cap}", **about)

    def settle(self, parent: str, child: str) -> HashedEntry:
        """Settle the parent's reservation at what the closed child spent; at $0 if the child was opened
        without that parent.
        """
        closed = self._chains.latest(child)
        is_inside = parent in closed.parents
        spent = closed.spent_microusd if is_inside else 0
        child_hash = closed.head if is_inside else self._chains.entry(child, 1).sha256
        about = {"reservation": child, "child": child, "child_hash": child_hash, "amount_microusd": spent}
        return self._chains.append(self.draft(parent, kind="settle", id=f"settle/{child}", **about))

    def repair(self, parent: str, ended: Collection[str] = ()) -> list[str]:
        """Settle the reservations that crashed writers left in a parent. Returns a sentence for each.

        Reservations of accounts that are open stay as they are. `ended`: accounts whose writer is known to
        have ended, so that they need not be waited for if they were never opened.
        """
        done = []
        for name, open_ in list(self._chains.latest(parent).reservations.items()):
            try:
                child = self._chains.latest(name) if open_.child else None
            except LedgerCorrupt as error:
                done.append(f"{name} in {parent} could not be repaired: {error}")
                continue
            if child is None or (parent in child.parents and not child.closed):
                continue
            leased = name not in ended and self._lease_runs(parent, name, open_)
            if not child.number and (leased or not self._close_unopened(parent, name, open_)):
                continue
            spent = from_microusd(self.settle(parent, name).entry.amount_microusd)
            held = from_microusd(open_.amount_microusd)
            done.append(f"{name} in {parent}: ${held} held, settled at ${spent}")
        return done

    def _close_unopened(self, parent: str, child: str, open_: OpenReservation) -> bool:
        """Close a child that was never opened, so that a delayed writer can no longer open it.

        Returns False if it was opened after all.
        """
        with suppress(LedgerConflict):
            self._close_before_open(
                parent, child, open_.entry_hash, f"reserved in {parent}, and never opened"
            )
            return True
        return False

    def _lease_runs(self, parent: str, child: str, open_: OpenReservation) -> bool:
        return self._clock.now() - self._lease_start(parent, child, open_) < timedelta(seconds=LEASE_S)

    def _lease_start(self, parent: str, child: str, open_: OpenReservation) -> datetime:
        """Return when the lease began.

        If the reserving writer's clock was ahead of this one's, the earliest time of the entries after it
        counts.
        """
        if open_.reserved_at <= self._clock.now():
            return open_.reserved_at
        account = self._chains.cached(parent)
        first = account.requests.entry_number(f"reserve/{child}")
        later = AccountChain(self._chains.store, parent, account.number).entries[first:]
        return min([open_.reserved_at, *(hashed.entry.at for hashed in later)])

    def draft(self, account: str, **content: object) -> Entry:
        """Return an entry that has no position in the chain yet."""
        position = {"account": account, "number": 1, "prev": NO_ENTRY, "at": self._clock.now()}
        return Entry.model_validate(position | {"writer": self._writer} | content)
