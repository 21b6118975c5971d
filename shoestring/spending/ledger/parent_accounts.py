"""Accounts inside accounts: a cap is a hold in each account that it lies in, made before it is opened and settled when it closes.

A run lies in its month and, where it belongs to one, in its campaign. What dies between two accounts leaves a hold with a lease: asking
again completes it, or a sweep settles it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta

from shoestring.config.budgets import CAMPAIGN_NAME
from shoestring.core.errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from shoestring.core.interfaces import Clock
from shoestring.core.money import from_microusd
from shoestring.spending.ledger.account import OpenReservation
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import NO_ENTRY, Entry, HashedEntry

MONTH_ACCOUNT = re.compile(r"\d{4}-\d{2}")
# No run's account ends like this: what stands behind a run's dot is a number.
CAMPAIGN_ACCOUNT = re.compile(rf"({CAMPAIGN_NAME})\.campaign")
# How old a parent's hold must be before nobody is still about to open its child; opening takes a few writes.
LEASE_S = 600


def campaign_account(campaign: str) -> str:
    return f"{campaign}.campaign"


def is_root_account(account: str) -> bool:
    """Does it lie in nothing? Months and campaigns do not, so a campaign may last for several months."""
    return bool(MONTH_ACCOUNT.fullmatch(account) or CAMPAIGN_ACCOUNT.fullmatch(account))


class ParentAccounts:
    """What is done in the accounts above."""

    def __init__(self, books: ChainWriter, clock: Clock, pod_uid: str) -> None:
        self._writer, self._clock, self._pod_uid = books, clock, pod_uid

    def reserve_in_all(self, parents: tuple[str, ...], child: str, cap: int | None) -> tuple[str, ...]:
        """The hashes of the entries that hold the child's cap: in all of its parents, or, where one refuses, in none.

        Raises:
            BudgetExceeded, LedgerConflict: the parent that refused is named. Then the child's name is used up.
        """
        if cap is None and parents:
            raise LedgerConflict(child, f"is inside {parents[0]}, so it needs a cap")
        proofs: list[str] = []
        for parent in parents:
            if MONTH_ACCOUNT.fullmatch(parent) and not self._writer.latest(parent).number:
                self._writer.append(self.draft(parent, kind="open", id="open"))
            reserve = self.draft(
                parent, kind="reserve", id=f"reserve/{child}", hold=child, child=child, amount_microusd=cap
            )
            try:
                proofs.append(self._writer.append(reserve).sha256)
            except (BudgetExceeded, LedgerConflict) as error:
                if proofs:
                    self._take_back(parents[: len(proofs)], child, proofs[0], str(error))
                raise
        return tuple(proofs)

    def _take_back(self, parents: tuple[str, ...], child: str, proof: str, why: str) -> None:
        """Whoever has opened it meanwhile found money for it, and keeps it."""
        with suppress(LedgerConflict):
            self._writer.append(
                self.draft(child, kind="close", id="close", parent=parents[0], parent_hash=proof, why=why)
            )
            for parent in parents:
                self.settle(parent, child)

    def reserve_at_least(self, child: str, cap: int) -> tuple[str, ...]:
        """The hashes of the entries by which the holds in its parents cover `cap`. Every parent is asked before one of them is written to.

        Raises:
            BudgetExceeded: a parent has not that much left.
        """
        parents = self._writer.known(child).parents
        drafts = [self._grown(parent, child, cap) for parent in parents]
        for parent, draft in zip(parents, drafts, strict=True):
            if draft is not None:
                self._writer.latest(parent).check(draft)
        proofs = (None if draft is None else self._writer.append(draft).sha256 for draft in drafts)
        return tuple(
            proof or self._writer.known(parent).reservations[child].entry_hash
            for parent, proof in zip(parents, proofs, strict=True)
        )

    def _grown(self, parent: str, child: str, cap: int) -> Entry | None:
        """What makes the child's hold cover `cap`; None where it does."""
        held = self._writer.latest(parent).reservations.get(child)
        if held is None:
            raise LedgerConflict(child, "was closed by somebody else just now")
        if (more := cap - held.amount_microusd) <= 0:
            return None
        return self.draft(
            parent, kind="extend", id=f"extend/{child}/{cap}", hold=child, child=child, amount_microusd=more
        )

    def settle(self, parent: str, child: str) -> HashedEntry:
        """Settle a parent's hold by the closed child; at nothing where the child was opened without that parent after all."""
        over = self._writer.latest(child)
        inside = parent in over.parents
        spent, proof = (over.spent, over.head) if inside else (0, self._writer.entry(child, 1).sha256)
        about = {"hold": child, "child": child, "child_hash": proof, "amount_microusd": spent}
        return self._writer.append(self.draft(parent, kind="settle", id=f"settle/{child}", **about))

    def sweep(self, parent: str) -> list[str]:
        """Mend what crashed between two accounts; says what it did. Holds of accounts that are open are left alone."""
        said = []
        for name, held in list(self._writer.latest(parent).reservations.items()):
            try:
                child = self._writer.latest(name) if held.child else None
            except LedgerCorrupt as error:
                said.append(f"{name} in {parent} could not be mended: {error}")
                continue
            if child is None or (parent in child.parents and not child.closed):
                continue
            if not child.number and not self._close_unopened(parent, name, held):
                continue
            spent = self.settle(parent, name).entry.amount_microusd
            said.append(
                f"{name} in {parent}: ${from_microusd(held.amount_microusd)} held, settled at ${from_microusd(spent)}"
            )
        return said

    def _close_unopened(self, parent: str, child: str, held: OpenReservation) -> bool:
        """Close what nobody opened within the lease, so that whoever reserved it, and wakes up late, no longer can."""
        if self._clock.now() - self._since(parent, child, held) < timedelta(seconds=LEASE_S):
            return False
        why = f"reserved in {parent}, and never opened"
        with suppress(LedgerConflict):
            self._writer.append(
                self.draft(child, kind="close", id="close", parent=parent, parent_hash=held.entry_hash, why=why)
            )
            return True
        return False

    def _since(self, parent: str, child: str, held: OpenReservation) -> datetime:
        """From when the lease runs. Entries are ordered by their numbers: where a clock was ahead of ours, what came after it tells."""
        if held.reserved_at <= self._clock.now():
            return held.reserved_at
        account = self._writer.known(parent)
        first = account.requests.entry_number(f"reserve/{child}")
        later = AccountChain(self._writer.store, parent, account.number).entries[first:]
        return min([held.reserved_at, *(sealed.entry.at for sealed in later)])

    def draft(self, account: str, **content: object) -> Entry:
        return Entry.model_validate(
            {
                "account": account,
                "number": 1,
                "prev": NO_ENTRY,
                "at": self._clock.now(),
                "pod_uid": self._pod_uid,
            }
            | content
        )
