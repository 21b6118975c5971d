"""Chains in a store, read and appended to by one writer among any number.

A writer puts its entry under the next number, if nobody else did; whoever loses reads what came in between, checks the caps again and
takes the number after. So the caps hold among writers that know nothing of each other, and no lock is left behind by one that dies.
"""

from __future__ import annotations

import random
import re
from contextlib import suppress

from shoestring.errors import BudgetExceeded, LedgerBroken, LedgerConflict, StoreError, StoreFull, UsageError
from shoestring.model import record
from shoestring.seams import Clock, Store
from shoestring.spending import checkpoint
from shoestring.spending.account import Account
from shoestring.spending.entry import (
    ACCOUNT_PATTERN,
    SHORT,
    Entry,
    Head,
    Sealed,
    entry_key,
    head_key,
    read_entries,
    read_entry,
    read_head,
    seal,
)

# A store may show a new object late (NFS remembers for up to 30 s that a file was not there): how long to look again for the
# entry that took our number.
LATE_S, LOOK_EVERY_S = 60.0, 0.05
# How often the pause after a lost number doubles. It begins at what a try took, so it fits a disk as well as a server far away.
DOUBLINGS, LONGEST_PAUSE_S = 6, 2.0


class Books:
    """Accounts by name, as this writer knows them. One thread an object; any number of objects and processes a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self._clock = store, clock
        self._known: dict[str, Account] = {}

    def fold(self, name: str) -> Account:
        """The account with all entries that are there now; only those that are new are read. Raises LedgerBroken."""
        account, hint = self._known.get(named(name)), None
        if account is None:
            # Before the entries: a hint that is ahead of them afterwards is no race, but a tail that was cut off.
            hint = read_head(self.store, name)
            account = self._jump(Account(name), hint)
        steps = 0
        while (sealed := read_entry(self.store, name, account.number + 1)) is not None:
            account.apply(sealed)
            steps += 1
            if steps % SHORT == 0:
                account = self._jump(account, read_head(self.store, name))
        if hint and hint.number > account.number:
            raise LedgerBroken(name, account.number + 1, f"is missing, and head.json knows of {hint.number} entries: the tail was cut off")
        self._known[name] = account
        return account

    def known(self, name: str) -> Account:
        """The account as this writer saw it last, which may be a while ago: what is then appended is checked against what is there."""
        return self._known.get(named(name)) or self.fold(name)

    def _jump(self, account: Account, hint: Head | None) -> Account:
        """Towards where the hint says that the chain has come to: by a checkpoint, where that is further, and by many entries at once."""
        if hint is None:
            return account
        name = account.name
        if (
            hint.number - account.number >= checkpoint.EVERY
            and (kept := checkpoint.load(self.store, name))
            and kept.number > account.number
        ):
            sealed = read_entry(self.store, name, kept.number)
            if sealed is None or sealed.sha256 != kept.head:
                raise LedgerBroken(
                    name, kept.number, "is not the entry that checkpoint.json was written at: the chain was cut off or changed"
                )
            account = kept
        for sealed in read_entries(self.store, name, account.number, hint.number):
            account.apply(sealed)
        return account

    def append(self, draft: Entry, keep: int = 0) -> Sealed:
        """Write `draft` as the next entry of its account, once, whoever else is writing.

        What is known of the account does to begin with: if it is out of date, the number is taken, or what is refused is looked at again.
        """
        account, is_fresh, losses = self.known(draft.account), False, 0
        while True:
            try:
                if before := account.requests.number(draft.id):
                    return self._same(draft, self.entry(account.name, before))
                account.check(draft, keep)
            except (BudgetExceeded, LedgerConflict):
                if is_fresh:
                    raise
                account, is_fresh = self.fold(account.name), True
                continue
            began_s = self._clock.monotonic_s()
            sealed = seal(draft.model_copy(update={"number": account.number + 1, "prev": account.head, "at": self._clock.now()}))
            if self._put(sealed):
                self._take_in(account, sealed)
                return sealed
            self._wait_for(account)
            losses += 1
            self._pause(self._clock.monotonic_s() - began_s, losses)
            account, is_fresh = self.fold(account.name), True

    def _put(self, sealed: Sealed) -> bool:
        """False: the number is taken. A store that fails at it may have written it all the same."""
        entry, data = sealed.entry, record(sealed)
        try:
            return self.store.put(entry_key(entry.account, entry.number), data, if_absent=True)
        except StoreFull:
            raise
        except StoreError:
            with suppress(StoreError):
                if read_entry(self.store, entry.account, entry.number) == sealed:
                    return True
            raise

    def _take_in(self, account: Account, sealed: Sealed) -> None:
        account.apply(sealed)
        # A hint that could not be written is no reason to disown an entry that was.
        with suppress(StoreError):
            self.store.put(head_key(account.name), record(Head(number=account.number, sha256=account.head)))
            if checkpoint.is_due(account.number):
                checkpoint.keep(self.store, account)

    def _same(self, draft: Entry, sealed: Sealed) -> Sealed:
        place = {"number", "prev", "at", "pod_uid"}
        if draft.model_dump(exclude=place) != sealed.entry.model_dump(exclude=place):
            number = sealed.entry.number
            raise LedgerConflict(draft.account, f"has {draft.id!r} as entry {number} already, with other content: read its state first")
        return sealed

    def _pause(self, took_s: float, losses: int) -> None:
        """At random, and longer each time, so that of many writers few try at once, and one that wins goes on while the others wait."""
        self._clock.sleep(random.uniform(0, min(LONGEST_PAUSE_S, took_s * 2 ** min(losses, DOUBLINGS))))

    def _wait_for(self, account: Account) -> None:
        """Until the entry that took our number can be read."""
        until_s = self._clock.monotonic_s() + LATE_S
        while read_entry(self.store, account.name, account.number + 1) is None:
            if self._clock.monotonic_s() > until_s:
                raise StoreError(f"the store says that {entry_key(account.name, account.number + 1)} is there, but cannot find it")
            self._clock.sleep(LOOK_EVERY_S)

    def entry(self, account: str, number: int) -> Sealed:
        """Raises LedgerBroken: it is not there any more."""
        sealed = read_entry(self.store, account, number)
        if sealed is None:
            raise LedgerBroken(account, number, "was there and is missing")
        return sealed


def named(account: str) -> str:
    """Raises UsageError for what cannot be an account's name."""
    if not re.fullmatch(ACCOUNT_PATTERN, account):
        raise UsageError(f"{account!r} cannot name an account: letters, digits, '.', '_' and '-', at most 128")
    return account
