"""One account's chain as it is read from a store, whole."""

from __future__ import annotations

from shoestring.core.interfaces import Store
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.account_checkpoint import compare_checkpoint, load_checkpoint
from shoestring.spending.ledger.entry import HashedEntry, StoredObject, read_object, read_objects


class AccountChain:
    """All entries so far, folded. `covers`: hash of an entry -> the account inside this one that it reserved for, and the micro-dollars.

    `kept`: the account as its checkpoint has it, which is compared on the way. `last`: the number of an entry that is believed to be
    there; those up to it are read several at once. `objects`: the numbers under which they lie.
    """

    def __init__(self, store: Store, name: str, last: int = 0) -> None:
        self.account = Account(name)
        self.entries: list[HashedEntry] = []
        self.object_numbers: set[int] = set()
        self.child_reservations: dict[str, tuple[str, int]] = {}
        self._by_hash: dict[str, HashedEntry] = {}
        self._store = store
        self.checkpoint = load_checkpoint(store, name)
        for written in read_objects(store, name, 0, last):
            self._take_all(written)
        self.read_new()

    def read_new(self) -> bool:
        """Read what was appended since; whether there was anything. Raises LedgerCorrupt."""
        before = self.account.number
        while written := read_object(self._store, self.account.name, self.account.number + 1):
            self._take_all(written)
        return self.account.number > before

    def _take_all(self, written: StoredObject) -> None:
        self.object_numbers.add(self.account.number + 1)
        for sealed in written.entries:
            self._take(sealed)

    def _take(self, sealed: HashedEntry) -> None:
        self.account.apply(sealed)
        self.entries.append(sealed)
        self._by_hash[sealed.sha256] = sealed
        held = self.account.reservations.get(sealed.entry.reservation)
        if held and held.child:
            self.child_reservations[sealed.sha256] = (held.child, held.amount_microusd)
        if self.checkpoint and self.checkpoint.number == self.account.number:
            compare_checkpoint(self.checkpoint, self.account)

    def find(self, sha256: str) -> HashedEntry | None:
        """Looks again before it says no: the entry may be younger than this reading, and older than the one that names it."""
        if sha256 not in self._by_hash:
            self.read_new()
        return self._by_hash.get(sha256)
