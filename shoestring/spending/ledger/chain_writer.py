"""Appends entries to the chains of a store, concurrently with any number of other writers.

A writer puts its entry under the next number, if that number is free. If another writer took it, the writer
reads the new entries, checks the caps again, and tries the number after them. So the caps hold among writers
that do not know each other, and a writer that dies leaves no lock. Under contention, writers write batches
(`group_commit.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from contextlib import suppress
from functools import partial
from random import Random, SystemRandom

from shoestring.core import store_layout
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
from shoestring.spending.ledger.account import Account, KnownAccounts
from shoestring.spending.ledger.entry import (
    ACCOUNT_PATTERN,
    SEQUENTIAL_READS,
    Entry,
    HashedEntry,
    HeadHint,
    StoredObject,
    read_entry,
    read_head,
    read_object,
    read_objects,
)
from shoestring.spending.ledger.group_commit import GroupCommit, NextObject, PendingEntry, next_entry

VISIBILITY_TIMEOUT_S, POLL_INTERVAL_S = 60.0, 0.05
"""How long to look for the entry that took a number. NFS may report a new file as missing for up to 30 s."""
CONTENTION_FRESH_S = 0.2
"""For this long, the last object that a writer read is taken to be the newest when deciding how to write."""

SYSTEM_RANDOM = SystemRandom()
"""Random numbers that differ between processes, also after a fork, so that writers that collided continue at
different times.
"""


class ChainWriter:
    """The accounts of a store, as this writer has read them.

    One thread uses an object; any number of objects and processes use a store. `known`: shared with other
    writers of this process.
    """

    def __init__(
        self, store: Store, clock: Clock, rng: Random = SYSTEM_RANDOM, known: KnownAccounts | None = None
    ) -> None:
        self.store, self._clock, self._rng, self._known = store, clock, rng, known
        self._accounts: dict[str, Account] = {}
        self._group = GroupCommit(store, clock, rng)
        # By account: the objects that this writer read last, the newest at the end, and when it read the
        # newest.
        self._recent: defaultdict[str, deque[StoredObject]] = defaultdict(
            partial(deque, maxlen=SEQUENTIAL_READS)
        )
        self._read_at_s: dict[str, float] = {}

    def latest(self, name: str) -> Account:
        """Return the account with all its entries, reading only those that are new. Raises LedgerCorrupt."""
        account, hint = self._known_account(check_account_name(name)), None
        if account is None:
            # The hint is read before the entries: if it is ahead of them, no race explains it, and the end
            # was removed.
            hint = read_head(self.store, name)
            account = self._catch_up(Account(name), hint)
        objects = 0
        while self._apply_next(account):
            objects += 1
            if objects % SEQUENTIAL_READS == 0:
                account = self._catch_up(account, read_head(self.store, name))
        if hint and hint.number > account.number:
            raise LedgerCorrupt(
                name,
                account.number + 1,
                f"is missing, and head.json names {hint.number} entries: the end of the chain was removed",
            )
        self._keep(account)
        return account

    def _known_account(self, name: str) -> Account | None:
        """Return the account as it was read last in this process; None: it was not."""
        account = self._accounts.get(name)
        later = self._known.later_than(name, account.number if account else 0) if self._known else None
        if later is None:
            return account
        self._recent[name].extend(later[1])
        # It may have been read long ago.
        self._read_at_s[name] = float("-inf")
        return later[0]

    def _keep(self, account: Account) -> None:
        self._accounts[account.name] = account
        if self._known:
            self._known.keep(account, self._recent[account.name])

    def cached(self, name: str) -> Account:
        """Return the account as this writer read it last, which may be out of date. `append` checks against
        the store.
        """
        return self._accounts.get(check_account_name(name)) or self.latest(name)

    def _catch_up(self, account: Account, hint: HeadHint | None) -> Account:
        """Bring the account to the head hint: by a checkpoint, if that is far ahead, and then by parallel
        reads.
        """
        if hint is None:
            return account
        name = account.name
        if (
            hint.number - account.number >= account_checkpoint.MIN_INTERVAL
            and (saved := account_checkpoint.load_checkpoint(self.store, name))
            and saved.account.number > account.number
        ):
            account, stored = account_checkpoint.restore(self.store, saved)
            self._remember(name, stored)
        for stored in read_objects(self.store, name, account.number, hint.number):
            self._apply(account, stored)
        return account

    def _apply_next(self, account: Account) -> bool:
        """Read and apply the next object. Returns False if there is none."""
        stored = read_object(self.store, account.name, account.number + 1)
        if stored:
            self._apply(account, stored)
        return stored is not None

    def _apply(self, account: Account, stored: StoredObject) -> None:
        account.apply_object(stored)
        self._remember(account.name, stored)

    def _remember(self, name: str, stored: StoredObject) -> None:
        self._recent[name].append(stored)
        self._read_at_s[name] = self._clock.monotonic_s()

    def append(self, draft: Entry, min_left_microusd: int = 0) -> HashedEntry:
        """Write `draft` as the next entry of its account, exactly once, concurrently with other writers.

        It starts from the cached account. When that turns out to be out of date (the number is taken, or the
        entry is refused), the new entries are read and the draft is checked again.
        """
        account, is_fresh, has_lost = self.cached(draft.account), False, False
        if self._is_contended(account) and not self._was_just_read(account):
            # A proposal for a number that is taken would be useless.
            account, is_fresh = self.latest(account.name), True
        while True:
            try:
                if before := account.requests.entry_number(draft.id):
                    return self._same_request(draft, self.entry(account.name, before))
                account.check(draft, min_left_microusd)
            except (BudgetExceeded, LedgerConflict):
                if is_fresh:
                    raise
                account, is_fresh = self.latest(account.name), True
                continue
            number, began_s = account.number + 1, self._clock.monotonic_s()
            following = self._next_object(account, draft, min_left_microusd, has_lost)
            if following and self._put(following.stored):
                self._apply(account, following.stored)
                self._keep(account)
                self._write_hints(account, following.checkpoint)
                return following.stored.entries[0]
            self._wait_for_entry(account, number)
            if not self._is_contended(account):
                # The losers retry at different times: the first to get a number tells the others of the
                # contention.
                self._clock.sleep(self._rng.uniform(0, self._clock.monotonic_s() - began_s))
            # Losing a number to an entry that was not read yet is no sign of contention.
            has_lost, is_fresh = is_fresh, True
            if not account.requests.entry_number(draft.id):
                account = self.latest(account.name)

    def _next_object(
        self, account: Account, draft: Entry, min_left_microusd: int, has_lost: bool
    ) -> NextObject | None:
        """Return the object to put under the next number, or None if another writer took that number."""
        if self._is_contended(account):
            pending = PendingEntry(draft=draft, min_left_microusd=min_left_microusd)
            return self._group.prepare(account, pending, partial(self._apply_next, account))
        hashed, checkpoint = next_entry(account, draft, self._clock, account.number + 1)
        return NextObject(StoredObject((hashed,), contended=has_lost), checkpoint)

    def _is_contended(self, account: Account) -> bool:
        """Return whether the writer of the newest object met other writers."""
        recent = self._recent[account.name]
        return bool(recent) and recent[-1].contended

    def _was_just_read(self, account: Account) -> bool:
        return self._clock.monotonic_s() - self._read_at_s[account.name] <= CONTENTION_FRESH_S

    def _put(self, stored: StoredObject) -> bool:
        """Put the object. Returns False if its number is taken. A store may fail and have written it all the
        same.
        """
        entry = stored.entries[0].entry
        key = store_layout.ledger_entry(entry.account, entry.number)
        try:
            return self.store.put(key, stored.data, if_absent=True)
        except StoreFull:
            raise
        except StoreError:
            with suppress(StoreError):
                if read_object(self.store, entry.account, entry.number) == stored:
                    return True
            raise

    def _write_hints(self, account: Account, checkpoint: account_checkpoint.HashedCheckpoint | None) -> None:
        """Write the head hint, and the checkpoint that the entry names. If that fails, the entry is still
        written.
        """
        with suppress(StoreError):
            head = HeadHint(number=account.number, sha256=account.head)
            self.store.put(store_layout.ledger_head(account.name), record_bytes(head))
            if checkpoint:
                account_checkpoint.write_checkpoint(self.store, checkpoint)

    def _same_request(self, draft: Entry, hashed: HashedEntry) -> HashedEntry:
        """Return the entry that this request wrote before. Raises LedgerConflict if its content differs."""
        # Two exit steps may read the records of a run at different moments.
        of_writer = {"number", "prev", "at", "writer", "checkpoint", "records"}
        if draft.model_dump(exclude=of_writer) != hashed.entry.model_dump(exclude=of_writer):
            raise LedgerConflict(
                draft.account,
                f"already has {draft.id!r} as entry {hashed.entry.number}, with other content: "
                "read its state first",
            )
        return hashed

    def _wait_for_entry(self, account: Account, number: int) -> None:
        """Wait until the entry that took `number` can be read. Raises StoreError after
        `VISIBILITY_TIMEOUT_S`.
        """
        until_s = self._clock.monotonic_s() + VISIBILITY_TIMEOUT_S
        while account.number < number and not self._apply_next(account):
            if self._clock.monotonic_s() > until_s:
                key = store_layout.ledger_entry(account.name, number)
                raise StoreError(f"the store reports that {key} exists, but cannot find it")
            self._clock.sleep(POLL_INTERVAL_S)

    def entry(self, account: str, number: int) -> HashedEntry:
        """Return an entry that is known to exist. Raises LedgerCorrupt if it does not exist any more."""
        recent = (hashed for stored in self._recent[account] for hashed in stored.entries)
        hashed = next((each for each in recent if each.entry.number == number), None)
        hashed = hashed or read_entry(self.store, account, number)
        if hashed is None:
            raise LedgerCorrupt(account, number, "existed before and is missing")
        return hashed


def check_account_name(account: str) -> str:
    """Return the name. Raises UsageError if it cannot name an account."""
    if not re.fullmatch(ACCOUNT_PATTERN, account):
        raise UsageError(
            f"{account!r} cannot name an account: letters, digits, '.', '_' and '-', at most 128 characters"
        )
    return account
