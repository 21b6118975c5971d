"""Many writers of one account do not race for its next number: each leaves its wish, and one of them writes what all wish for.

A wish is for one number. It has come true, or not, once there is an object under that number, so none is granted later, when nobody
waits for it any more: what was left out is wished again for a number to come. Who gathers the wishes is a matter of speed alone. One
claims to, the others wait for it, and if it died they gather themselves: of several, the number takes one.

Whoever got a number after it had lost one says so in what it writes (`Written.contended`), and so does whoever writes for several: that is
how those who come next know that they are many. It ends with a writer whom nobody joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

from pydantic import ConfigDict, Field, ValidationError

from shoestring.core.errors import BudgetExceeded, LedgerConflict, NotInStore, StoreError
from shoestring.core.interfaces import Clock, Store
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.spending.ledger.account import Account
from shoestring.spending.ledger.entry import (
    MAX_BATCH_ENTRIES,
    PARALLEL_READS,
    SEQUENTIAL_READS,
    Entry,
    HashedEntry,
    StoredObject,
    hash_entry,
)

# How often whoever gathers looks for wishes, until there are as many as last time: so long first, times what its own took, then twice as
# long, and so on. So it fits a disk as well as a server far away, and one that is busy.
GATHERS, FIRST_GATHER = 4, 2.0
# How often one looks whether what was wished for is written: so long first, times what the wish took, then twice as long, up to these.
LOOKS, FIRST_LOOK, LONGEST_LOOK, LONGEST_PAUSE_S = 6, 8.0, 16.0, 2.0
# Of as many as wrote together last, so many try to be the one that gathers at once; the others where none has after two looks.
EAGER, PATIENT_LOOKS = 4, 2


class PendingEntry(StoredRecord):
    """An entry without its place in the chain, and how many micro-dollars have to be left when it is written."""

    model_config = ConfigDict(strict=True)

    draft: Entry
    min_left_microusd: int = Field(0, ge=0)


def pending_prefix(account: str, number: int) -> str:
    """Where the wishes for one number lie: of no use once that is written, and to nobody's harm if they are deleted."""
    return f"wishes/{account}/{number:08d}/"


class GroupCommit:
    def __init__(self, store: Store, clock: Clock, dice: Random) -> None:
        self._store, self._clock, self._dice = store, clock, dice

    def gather(self, account: Account, own: PendingEntry, moved_on: Callable[[], bool]) -> StoredObject | None:
        """What the next object of `account` is to hold, `own` first; None: somebody else wrote it.

        `moved_on`: looks whether there is an object under the next number. Raises StoreError.
        """
        folder = pending_prefix(account.name, account.number + 1)
        began_s = self._clock.monotonic_s()
        name = digest(f"{folder}{own.draft.id}".encode())[:32]
        self._store.put(f"{folder}{name}.json", record_bytes(own))
        took_s = self._clock.monotonic_s() - began_s
        last = account.number + 1 - account.object_number
        longest_s = max(LONGEST_PAUSE_S, took_s * LONGEST_LOOK)
        claims_at = 0 if int(name, 16) / 16 ** len(name) * last < EAGER else PATIENT_LOOKS
        for look in range(LOOKS):
            if look == claims_at and self._claims(f"{folder}by", name):
                break
            self._clock.sleep(self._dice.uniform(0.5, 1.0) * min(longest_s, took_s * FIRST_LOOK * 2**look))
            if moved_on():
                return None
        return self._sealed(
            account, own, self._wishes(folder, f"{name}.json", max(1, last - 1), took_s * FIRST_GATHER)
        )

    def _claims(self, key: str, name: str) -> bool:
        with suppress(StoreError):
            return self._store.put(key, name.encode(), if_absent=True)
        return False

    def _wishes(self, folder: str, own: str, expected: int, pause_s: float) -> Iterator[PendingEntry]:
        """The others', once there are as many as are expected, or no more are waited for."""
        keys = list[str]()
        for gather in range(GATHERS):
            self._clock.sleep(min(LONGEST_PAUSE_S, pause_s * 2**gather))
            before, keys = len(keys), self._listed(folder, own)
            if before == len(keys) >= expected or len(keys) >= MAX_BATCH_ENTRIES - 1:
                break
        if len(keys) < SEQUENTIAL_READS:
            yield from filter(None, map(self._read, keys))
            return
        with ThreadPoolExecutor(PARALLEL_READS) as readers:
            yield from filter(None, readers.map(self._read, keys))

    def _listed(self, folder: str, own: str) -> list[str]:
        with suppress(StoreError):
            return [key for key in self._store.list(folder) if key.endswith(".json") and key != folder + own]
        return []

    def _read(self, key: str) -> PendingEntry | None:
        with suppress(NotInStore, StoreError, ValidationError):
            return PendingEntry.model_validate_json(self._store.fetch(key).read_bytes())
        return None

    def _sealed(self, account: Account, own: PendingEntry, others: Iterator[PendingEntry]) -> StoredObject:
        """Those that may come next, one after the other. A wish that may not is for whoever has it to see, by what was written."""
        trial, together = account.copy(), list[HashedEntry]()
        for wish in (own, *others):
            if len(together) == MAX_BATCH_ENTRIES:
                break
            if wish.draft.account != trial.name or trial.requests.entry_number(wish.draft.id):
                continue
            with suppress(BudgetExceeded, LedgerConflict):
                trial.check(wish.draft, wish.min_left_microusd)
                together.append(sealed := chain_next(trial, wish.draft, self._clock))
                trial.apply(sealed)
        # One that was alone is no sign yet that all the others are done.
        return StoredObject(tuple(together), contended=len(together) > 1 or account.object_number < account.number)


def chain_next(account: Account, draft: Entry, clock: Clock) -> HashedEntry:
    return hash_entry(
        draft.model_copy(update={"number": account.number + 1, "prev": account.head, "at": clock.now()})
    )
