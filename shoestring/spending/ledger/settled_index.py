"""The history of an account in packed form: the ids of its requests, and its settled reservations.

A checkpoint stores the history packed. It is unpacked only when a caller needs it, and an append does not.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import astuple, dataclass
from hashlib import blake2b

DIGEST_BYTES = 8
"""Bytes kept of each request id. Two of a million requests share them in one of 37 million accounts."""
SEARCHES_BEFORE_INDEX = 32
"""After this many searches an index is built. Building it takes as long as this many searches."""


@dataclass(frozen=True, slots=True)
class SettledReservation:
    """A settled reservation: the amount it was settled at, and the amount that was released."""

    stage: str
    attempt: int
    amount_microusd: int
    child: str | None
    released_microusd: int


class RequestIndex:
    """The ids of an account's entries, in the order of their numbers: the n-th id belongs to entry n."""

    def __init__(self, packed: str = "") -> None:
        self._packed = base64.b64decode(packed)
        self._recent: dict[bytes, int] = {}
        self._index: dict[bytes, int] | None = None
        self._searches = 0

    def __len__(self) -> int:
        return len(self._packed) // DIGEST_BYTES + len(self._recent)

    def add(self, id: str) -> None:
        self._recent[_digest(id)] = len(self) + 1

    def entry_number(self, id: str) -> int:
        """Return the number of the entry with this id, or 0 if there is none."""
        wanted = _digest(id)
        if found := self._recent.get(wanted):
            return found
        self._searches += 1
        if self._searches > SEARCHES_BEFORE_INDEX:
            return self._built_index().get(wanted, 0)
        start = self._packed.find(wanted)
        while start % DIGEST_BYTES and start > 0:
            start = self._packed.find(wanted, start + 1)
        return start // DIGEST_BYTES + 1 if start >= 0 else 0

    def _built_index(self) -> dict[bytes, int]:
        if self._index is None:
            starts = range(0, len(self._packed), DIGEST_BYTES)
            digests = (self._packed[start : start + DIGEST_BYTES] for start in starts)
            self._index = {digest: number for number, digest in enumerate(digests, 1)}
        return self._index

    def copy(self) -> RequestIndex:
        other = RequestIndex()
        other._packed, other._recent = self._packed, dict(self._recent)
        other._index, other._searches = self._index, self._searches
        return other

    def pack(self) -> str:
        self._packed += b"".join(self._recent)
        self._recent.clear()
        self._index = None
        return base64.b64encode(self._packed).decode()


class SettledReservations:
    """The settled reservations of an account, by name.

    Each pack holds the reservations that were settled or adjusted since the pack before it.
    """

    def __init__(self, packs: tuple[str, ...] = ()) -> None:
        self._packs = packs
        self._unpacked: dict[str, SettledReservation] = {}
        self._unread = packs
        self._recent: dict[str, SettledReservation] = {}

    def put(self, name: str, settled: SettledReservation) -> None:
        self._recent[name] = settled

    def get(self, name: str) -> SettledReservation | None:
        return self._recent.get(name) or self._unpack().get(name)

    def all(self) -> dict[str, SettledReservation]:
        return self._unpack() | self._recent

    def _unpack(self) -> dict[str, SettledReservation]:
        for pack in self._unread:
            rows = json.loads(zlib.decompress(base64.b64decode(pack)))
            self._unpacked |= {name: SettledReservation(*fields) for name, *fields in rows}
        self._unread = ()
        return self._unpacked

    def copy(self) -> SettledReservations:
        other = SettledReservations(self._packs)
        other._unpacked, other._unread = dict(self._unpacked), self._unread
        other._recent = dict(self._recent)
        return other

    def pack(self) -> tuple[str, ...]:
        if self._recent:
            rows = json.dumps([(name, *astuple(settled)) for name, settled in self._recent.items()]).encode()
            self._packs += (base64.b64encode(zlib.compress(rows)).decode(),)
            self._unread += self._packs[-1:]
            self._recent.clear()
        return self._packs


def _digest(id: str) -> bytes:
    return blake2b(id.encode(), digest_size=DIGEST_BYTES).digest()
