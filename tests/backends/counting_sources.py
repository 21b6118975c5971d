"""Remote sources that count what is read, and do something between two reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shoestring.core.interfaces import RemoteObject, RemoteSources


@dataclass
class CountingSources:
    sources: RemoteSources
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    after_read: Callable[[], object] = lambda: None

    @property
    def read_bytes(self) -> int:
        return sum(end - start for _, start, end in self.reads)

    def list(self, url: str) -> tuple[RemoteObject, ...]:
        return self.sources.list(url)

    def read(self, found: RemoteObject, start: int, end: int) -> bytes:
        self.reads.append((found.name, start, end))
        data = self.sources.read(found, start, end)
        self.after_read()
        return data
