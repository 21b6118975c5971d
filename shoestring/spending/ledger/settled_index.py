"""What lies behind an account: which requests it has had, and what became of its holds. Packed, so that a long past costs little to carry.

A packed past is only unpacked by whoever asks for it, which an append does not.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import astuple, dataclass
from hashlib import blake2b

# Of a million requests two share such a digest once in 37 million accounts.
DIGEST_BYTES = 8
# Whoever asks more often than this has an index made, which takes as long as so many searches.
SEARCHES_BEFORE_INDEX = 32


@dataclass(frozen=True, slots=True)
class SettledReservation:
    """A hold that is settled: at how much, and how much of it was released."""

    stage: str
    attempt: int
    microusd: int
    child: str | None
    released: int


class RequestIndex:
    """The ids of an account's entries, in the order of their numbers: the n-th is entry n's."""

    def __init__(self, packed: str = "") -> None:
        self._packed = base64.b64decode(packed)
        self._recent: dict[bytes, int] = {}
        self._index: dict[bytes, int] | None = None
        self._searches = 0

    def __len__(self) -> int:
        return len(self._packed) // DIGEST_BYTES + len(self._recent)

    def add(self, id: str) -> None:
        self._recent[_digest(id)] = len(self) + 1

    def number(self, id: str) -> int:
        """Of the entry that has this id; 0: there is none."""
        wanted = _digest(id)
        if found := self._recent.get(wanted):
            return found
        self._searches += 1
        if self._searches > SEARCHES_BEFORE_INDEX:
            if self._index is None:
                digests = (
                    self._packed[at : at + DIGEST_BYTES] for at in range(0, len(self._packed), DIGEST_BYTES)
                )
                self._index = {each: number for number, each in enumerate(digests, 1)}
            return self._index.get(wanted, 0)
        at = self._packed.find(wanted)
        while at % DIGEST_BYTES and at > 0:
            at = self._packed.find(wanted, at + 1)
        return at // DIGEST_BYTES + 1 if at >= 0 else 0

    def copy(self) -> RequestIndex:
        other = RequestIndex()
        other._packed, other._recent, other._index, other._searches = (
            self._packed,
            dict(self._recent),
            self._index,
            self._searches,
        )
        return other

    def pack(self) -> str:
        self._packed += b"".join(self._recent)
        self._recent.clear()
        self._index = None
        return base64.b64encode(self._packed).decode()


class SettledReservations:
    """By name. Each pack is the holds that were settled or adjusted since the one before it."""

    def __init__(self, packs: tuple[str, ...] = ()) -> None:
        self._packs = packs
        self._before: dict[str, SettledReservation] = {}
        self._unread = packs
        self._recent: dict[str, SettledReservation] = {}

    def put(self, name: str, settled: SettledReservation) -> None:
        self._recent[name] = settled

    def get(self, name: str) -> SettledReservation | None:
        return self._recent.get(name) or self._past().get(name)

    def all(self) -> dict[str, SettledReservation]:
        return self._past() | self._recent

    def _past(self) -> dict[str, SettledReservation]:
        for pack in self._unread:
            self._before |= {
                name: SettledReservation(*of) for name, *of in json.loads(zlib.decompress(base64.b64decode(pack)))
            }
        self._unread = ()
        return self._before

    def copy(self) -> SettledReservations:
        other = SettledReservations(self._packs)
        other._before, other._unread, other._recent = dict(self._before), self._unread, dict(self._recent)
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
