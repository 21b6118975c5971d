"""The whole chain of one account, read from a store."""

from __future__ import annotations

from shoestring.core.interfaces import Store
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.account_checkpoint import compare_checkpoint, load_checkpoint
from shoestring.spending.ledger.entry import HashedEntry, StoredObject, read_object, read_objects


class AccountChain:
    """All entries of an account so far, and the account that they give.

    `child_reservations` maps the hash of an entry to the child account that it reserved for, and the
    micro-dollars. `object_numbers` are the numbers of the objects that hold the entries. `checkpoint` is the
    account as of its checkpoint; it is compared with the entries while reading, also with the one that names
    it.
    """

    def __init__(self, store: Store, name: str, last: int = 0) -> None:
        """Read the chain. Entries up to `last`, which the caller expects to exist, are read in parallel."""
        self.account = Account(name)
        self.entries: list[HashedEntry] = []
        self.object_numbers: set[int] = set()
        self.child_reservations: dict[str, tuple[str, int]] = {}
        self._by_hash: dict[str, HashedEntry] = {}
        self._store = store
        self.checkpoint = load_checkpoint(store, name)
        for stored in read_objects(store, name, 0, last):
            self._append_object(stored)
        self.read_new()

    def read_new(self) -> bool:
        """Read the entries that were appended since the last read. Returns whether there were any. Raises
        LedgerCorrupt.
        """
        before = self.account.number
        while stored := read_object(self._store, self.account.name, self.account.number + 1):
            self._append_object(stored)
        return self.account.number > before

    def _append_object(self, stored: StoredObject) -> None:
        self.object_numbers.add(self.account.number + 1)
        for hashed in stored.entries:
            self._append(hashed)

    def _append(self, hashed: HashedEntry) -> None:
        self.account.apply(hashed)
        self.entries.append(hashed)
        self._by_hash[hashed.sha256] = hashed
        open_ = self.account.reservations.get(hashed.entry.reservation)
        if open_ and open_.child:
            self.child_reservations[hashed.sha256] = (open_.child, open_.amount_microusd)
        if self.checkpoint:
            compare_checkpoint(self.checkpoint, self.account, hashed.entry)

    def find(self, sha256: str) -> HashedEntry | None:
        """Return the entry with this hash, or None.

        If it is unknown, new entries are read first: another account may name an entry that was appended
        since the last read.
        """
        if sha256 not in self._by_hash:
            self.read_new()
        return self._by_hash.get(sha256)
