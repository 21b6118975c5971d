"""One line of the ledger: what was asked of an account, chained by hash to the line before it.

An object of the store holds one, or, where many wrote at once, several that follow each other, under the number of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, ValidationError

from shoestring.core.errors import LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes

NO_ENTRY = "0" * 64
# Objects that are read at once: as many connections as a store on S3 keeps.
PARALLEL_READS = 16
# A chain that is no longer is not worth the threads.
SEQUENTIAL_READS = 8
# So much of a chain at once: a hint that is far ahead of the entries costs no more requests in vain.
READ_WINDOW = 8 * PARALLEL_READS
# Entries that one object holds at most: as many as are read at once in a few round trips.
MAX_BATCH_ENTRIES = 64
# How an object begins that holds several.
BATCH_PREFIX = b'{\n "entries"'

EntryKind = Literal["open", "reserve", "extend", "settle", "adjust", "cap", "close"]
ACCOUNT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
AccountName = Annotated[str, Field(pattern=ACCOUNT_PATTERN)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _require_utc(moment: datetime) -> datetime:
    if moment.utcoffset() != UTC.utcoffset(None):
        raise ValueError("a ledger's moments are in UTC")
    return moment


def is_none(value: object) -> bool:
    """Not written down where there is none: entries from before there were such fields keep their hashes."""
    return value is None


class Entry(StoredRecord):
    """What was asked of an account. Amounts are whole micro-dollars.

    `id` names the request: asked again, it is the same entry. `amount_microusd` is what is reserved, what a hold grows by, what it is
    settled at, or (adjust) what a settled hold changes by.
    """

    model_config = ConfigDict(strict=True)

    account: AccountName
    number: int = Field(ge=1)
    prev: Sha256 = Field(description="hash of the entry before; 64 zeros for the first")
    at: Annotated[AwareDatetime, AfterValidator(_require_utc)]
    kind: EntryKind
    id: str = Field(min_length=1)
    pod_uid: str = Field("", description="who wrote it")
    hold: str = ""
    stage: str = ""
    attempt: int = Field(0, ge=0)
    amount_microusd: int = 0
    why: str = ""
    cap_microusd: int | None = Field(
        None, ge=0, description="open, cap: the most the account may spend and hold; null = no limit"
    )
    stage_caps: dict[str, int] = Field(
        {}, description="open: stage -> the most it may spend and hold, in micro-dollars"
    )
    parent: AccountName | None = Field(None, description="the account that holds this one's cap")
    parent_hash: Sha256 | None = Field(None, description="the parent's entry that reserved it")
    campaign: AccountName | None = Field(
        None, exclude_if=is_none, description="a second account that holds this one's cap"
    )
    campaign_hash: Sha256 | None = Field(
        None, exclude_if=is_none, description="that account's entry that reserved it"
    )
    approval: Sha256 | None = Field(
        None, exclude_if=is_none, description="open, cap: the approval that allows the cap, by its digest"
    )
    child: AccountName | None = Field(None, description="in a parent: the account that this hold belongs to")
    child_hash: Sha256 | None = Field(
        None, description="settle of a child: the hash of the entry that closed it"
    )

    @property
    def reserved_in(self) -> tuple[tuple[str, str | None], ...]:
        """The accounts that this one lies in, each with the hash of its entry that reserved the cap."""
        both = ((self.parent, self.parent_hash), (self.campaign, self.campaign_hash))
        return tuple((name, sha256) for name, sha256 in both if name is not None)


class HashedEntry(Record):
    """An entry and its hash, as they lie in the store."""

    model_config = ConfigDict(strict=True)

    entry: Entry
    sha256: Sha256


class EntryBatch(Record):
    """Entries of writers who saw each other, as one of them wrote them. Nobody sees some of them without the others."""

    model_config = ConfigDict(strict=True)

    entries: tuple[HashedEntry, ...] = Field(min_length=1, max_length=MAX_BATCH_ENTRIES)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What one object of the store holds. `crowd`: more than one writer wanted its number."""

    entries: tuple[HashedEntry, ...]
    crowd: bool = False

    @property
    def data(self) -> bytes:
        return record_bytes(EntryBatch(entries=self.entries) if self.contended else self.entries[0])


class HeadHint(Record):
    """A hint at an account's last entry. It may be old, and nobody has to trust it; one that is ahead shows that a tail was cut off."""

    model_config = ConfigDict(strict=True)

    number: int = Field(ge=1)
    sha256: Sha256


def hash_entry(entry: Entry) -> HashedEntry:
    return HashedEntry(entry=entry, sha256=digest(record_bytes(entry)))


def parse_object(data: bytes) -> StoredObject:
    """Parse an object. Raises ValueError: no entries, written otherwise than we write, or not of their own hashes."""
    crowd = data.startswith(BATCH_PREFIX)
    written = StoredObject(
        EntryBatch.model_validate_json(data).entries if crowd else (HashedEntry.model_validate_json(data),), crowd
    )
    if any(digest(record_bytes(sealed.entry)) != sealed.sha256 for sealed in written.entries):
        raise ValueError("its content does not have the hash that is written beside it: it was changed")
    if written.data != data:
        raise ValueError("its bytes are not the ones that were written: it was changed")
    return written


def entry_key(account: str, number: int) -> str:
    return f"ledger/{account}/{number:08d}.json"


def head_key(account: str) -> str:
    return f"ledger/{account}/head.json"


def read_object(store: Store, account: str, number: int) -> StoredObject | None:
    """What the object of that number holds; None when there is none. Raises LedgerCorrupt."""
    try:
        written = parse_object(store.fetch(entry_key(account, number)).read_bytes())
    except NotInStore:
        return None
    except ValidationError as error:
        raise LedgerCorrupt(account, number, f"is not an entry: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise LedgerCorrupt(account, number, str(error)) from error
    return written


def read_entry(store: Store, account: str, number: int) -> HashedEntry | None:
    """One that is known to be there, whatever object it lies in; None when it is not. Raises LedgerCorrupt."""
    if here := read_object(store, account, number):
        return here.entries[0]
    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        before = readers.map(
            partial(read_object, store, account), range(max(1, number - MAX_BATCH_ENTRIES + 1), number)
        )
        return next(
            (
                sealed
                for written in before
                if written
                for sealed in written.entries
                if sealed.entry.number == number
            ),
            None,
        )


def read_objects(store: Store, account: str, after: int, last: int) -> Iterator[StoredObject]:
    """Many objects, from the one after entry `after` up to entry `last`, in order, several read at once; none after one that is missing.

    On S3 each takes a round trip. A few are left to whoever reads on from here. Raises LedgerCorrupt.
    """
    if last - after <= SEQUENTIAL_READS:
        return
    window = READ_WINDOW
    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        while after < last:
            numbers = range(after + 1, min(after + window, last) + 1)
            for number, written in zip(
                numbers, readers.map(partial(read_object, store, account), numbers), strict=True
            ):
                if number <= after:
                    continue
                if written is None:
                    return
                after += len(written.entries)
                # Where many entries are together, most numbers have no object of their own.
                window = READ_WINDOW if len(written.entries) == 1 else PARALLEL_READS
                yield written


def read_head(store: Store, account: str) -> HeadHint | None:
    """None when there is no hint. Raises LedgerCorrupt for a damaged one: it was written whole, so somebody changed it."""
    try:
        data = store.fetch(head_key(account)).read_bytes()
        head = HeadHint.model_validate_json(data)
    except NotInStore:
        return None
    except ValidationError:
        head = None
    if head is None or record_bytes(head) != data:
        raise LedgerCorrupt(
            account,
            0,
            "its head.json was changed: verify the entries, then delete it (the next entry writes a new one)",
        )
    return head
