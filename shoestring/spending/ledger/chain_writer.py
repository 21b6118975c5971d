"""Chains in a store, read and appended to by one writer among any number.

A writer puts its entry under the next number, if nobody else did; whoever loses reads what came in between, checks the caps again and
takes the number after. So the caps hold among writers that know nothing of each other, and no lock is left behind by one that dies.
Where many lose, they write together (`spending/crowd.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from contextlib import suppress
from functools import partial
from random import Random, SystemRandom

from shoestring.core.errors import (
    BudgetExceeded,
    LedgerConflict,
    LedgerCorrupt,
    StoreError,
    StoreFull,
    UsageError,
)
from shoestring.core.interfaces import Clock, Store
from shoestring.core.record import record_bytes
from shoestring.spending.ledger import account_checkpoint
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.entry import (
    ACCOUNT_PATTERN,
    SEQUENTIAL_READS,
    Entry,
    HashedEntry,
    HeadHint,
    StoredObject,
    entry_key,
    head_key,
    read_entry,
    read_head,
    read_object,
    read_objects,
)
from shoestring.spending.ledger.group_commit import GroupCommit, PendingEntry, chain_next

# A store may show a new object late (NFS remembers for up to 30 s that a file was not there): how long to look again for the
# entry that took our number.
VISIBILITY_TIMEOUT_S, POLL_INTERVAL_S = 60.0, 0.05
# What a crowd wrote last is taken for its last for so long.
CONTENTION_FRESH_S = 0.2

# Writers who got in each other's way go on at different moments: also those that were one process a moment ago.
SYSTEM_RANDOM = SystemRandom()


class ChainWriter:
    """Accounts by name, as this writer knows them. One thread an object; any number of objects and processes a store."""

    def __init__(self, store: Store, clock: Clock, dice: Random = SYSTEM_RANDOM) -> None:
        self.store, self._clock, self._dice = store, clock, dice
        self._known: dict[str, Account] = {}
        self._group = GroupCommit(store, clock, dice)
        # By account, the objects that this writer saw last, the newest at the end.
        self._seen: defaultdict[str, deque[StoredObject]] = defaultdict(partial(deque, maxlen=SEQUENTIAL_READS))
        self._seen_s: dict[str, float] = {}

    def latest(self, name: str) -> Account:
        """The account with all entries that are there now; only those that are new are read. Raises LedgerCorrupt."""
        account, hint = self._known.get(check_account_name(name)), None
        if account is None:
            # Before the entries: a hint that is ahead of them afterwards is no race, but a tail that was cut off.
            hint = read_head(self.store, name)
            account = self._jump(Account(name), hint)
        steps = 0
        while self._step(account):
            steps += 1
            if steps % SEQUENTIAL_READS == 0:
                account = self._jump(account, read_head(self.store, name))
        if hint and hint.number > account.number:
            raise LedgerCorrupt(
                name,
                account.number + 1,
                f"is missing, and head.json knows of {hint.number} entries: the tail was cut off",
            )
        self._known[name] = account
        return account

    def cached(self, name: str) -> Account:
        """The account as this writer saw it last, which may be a while ago: what is then appended is checked against what is there."""
        return self._known.get(check_account_name(name)) or self.latest(name)

    def _jump(self, account: Account, hint: HeadHint | None) -> Account:
        """Towards where the hint says that the chain has come to: by a checkpoint, where that is further, and by many entries at once."""
        if hint is None:
            return account
        name = account.name
        if (
            hint.number - account.number >= account_checkpoint.MIN_INTERVAL
            and (kept := account_checkpoint.load_checkpoint(self.store, name))
            and kept.number > account.number
        ):
            written = read_object(self.store, name, kept.object_number)
            if written is None or written.entries[-1].sha256 != kept.head:
                raise LedgerCorrupt(
                    name,
                    kept.number,
                    "is not the entry that account_checkpoint.json was written at: the chain was cut off or changed",
                )
            account = kept
            self._saw(name, written)
        for written in read_objects(self.store, name, account.number, hint.number):
            self._take_in(account, written)
        return account

    def _step(self, account: Account) -> bool:
        """Take in the next object; False: there is none yet."""
        written = read_object(self.store, account.name, account.number + 1)
        if written:
            self._take_in(account, written)
        return written is not None

    def _take_in(self, account: Account, written: StoredObject) -> None:
        account.apply_object(written)
        self._saw(account.name, written)

    def _saw(self, name: str, written: StoredObject) -> None:
        self._seen[name].append(written)
        self._seen_s[name] = self._clock.monotonic_s()

    def append(self, draft: Entry, keep: int = 0) -> HashedEntry:
        """Write `draft` as the next entry of its account, once, whoever else is writing.

        What is known of the account does to begin with: if it is out of date, the number is taken, or what is refused is looked at again.
        """
        account, is_fresh, has_lost = self.cached(draft.account), False, False
        if self._crowded(account) and self._clock.monotonic_s() - self._seen_s[account.name] > CONTENTION_FRESH_S:
            # A wish for a number that is had already is in vain.
            account, is_fresh = self.latest(account.name), True
        while True:
            try:
                if before := account.requests.entry_number(draft.id):
                    return self._same(draft, self.entry(account.name, before))
                account.check(draft, keep)
            except (BudgetExceeded, LedgerConflict):
                if is_fresh:
                    raise
                account, is_fresh = self.latest(account.name), True
                continue
            number, began_s = account.number + 1, self._clock.monotonic_s()
            written = self._next(account, draft, keep, has_lost)
            if written and self._put(written):
                self._take_in(account, written)
                self._tell(account)
                return written.entries[0]
            self._wait_for(account, number)
            if not self._crowded(account):
                # Not all who lost at once: the first of them to get a number tells the others that they are many.
                self._clock.sleep(self._dice.uniform(0, self._clock.monotonic_s() - began_s))
            # A number that was lost to what was not read yet says nothing of others who write now.
            has_lost, is_fresh = is_fresh, True
            if not account.requests.entry_number(draft.id):
                account = self.latest(account.name)

    def _next(self, account: Account, draft: Entry, keep: int, has_lost: bool) -> StoredObject | None:
        """What to put under the next number; None where somebody else did."""
        if self._crowded(account):
            wish = PendingEntry(draft=draft, min_left_microusd=keep)
            return self._group.gather(account, wish, partial(self._step, account))
        return StoredObject((chain_next(account, draft, self._clock),), contended=has_lost)

    def _crowded(self, account: Account) -> bool:
        """Did whoever wrote last see others?"""
        seen = self._seen[account.name]
        return bool(seen) and seen[-1].contended

    def _put(self, written: StoredObject) -> bool:
        """False: the number is taken. A store that fails at it may have written it all the same."""
        entry = written.entries[0].entry
        try:
            return self.store.put(entry_key(entry.account, entry.number), written.data, if_absent=True)
        except StoreFull:
            raise
        except StoreError:
            with suppress(StoreError):
                if read_object(self.store, entry.account, entry.number) == written:
                    return True
            raise

    def _tell(self, account: Account) -> None:
        """Leave the hints. One that could not be written is no reason to disown an entry that was."""
        with suppress(StoreError):
            self.store.put(head_key(account.name), record_bytes(HeadHint(number=account.number, sha256=account.head)))
            if any(map(account_checkpoint.checkpoint_is_due, range(account.object_number, account.number + 1))):
                account_checkpoint.write_checkpoint(self.store, account)

    def _same(self, draft: Entry, sealed: HashedEntry) -> HashedEntry:
        place = {"number", "prev", "at", "pod_uid"}
        if draft.model_dump(exclude=place) != sealed.entry.model_dump(exclude=place):
            number = sealed.entry.number
            raise LedgerConflict(
                draft.account,
                f"has {draft.id!r} as entry {number} already, with other content: read its state first",
            )
        return sealed

    def _wait_for(self, account: Account, number: int) -> None:
        """Until the entry that took our number is read."""
        until_s = self._clock.monotonic_s() + VISIBILITY_TIMEOUT_S
        while account.number < number and not self._step(account):
            if self._clock.monotonic_s() > until_s:
                raise StoreError(
                    f"the store says that {entry_key(account.name, number)} is there, but cannot find it"
                )
            self._clock.sleep(POLL_INTERVAL_S)

    def entry(self, account: str, number: int) -> HashedEntry:
        """Raises LedgerCorrupt: it is not there any more."""
        # What was just read, or written, need not be looked for.
        known = (
            sealed
            for written in self._seen[account]
            for sealed in written.entries
            if sealed.entry.number == number
        )
        sealed = next(known, None) or read_entry(self.store, account, number)
        if sealed is None:
            raise LedgerCorrupt(account, number, "was there and is missing")
        return sealed


def check_account_name(account: str) -> str:
    """Raises UsageError for what cannot be an account's name."""
    if not re.fullmatch(ACCOUNT_PATTERN, account):
        raise UsageError(
            f"{account!r} cannot name an account: letters, digits, '.', '_' and '-', at most 128"
        )
    return account
