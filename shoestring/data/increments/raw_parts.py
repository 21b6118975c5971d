"""The parts of raw data: written from new batches, and taken over where a stored part has all that a new one
would hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from shoestring.core.datasets import DatasetPart
from shoestring.data.storage.part_writer import TARGET_PART_BYTES, PartWriter, Unit


@dataclass(frozen=True, slots=True, eq=False)
class RawPart:
    """A stored part. `ends_by_itself`: it ends where it does because of its own rows, not because the table
    did."""

    part: DatasetPart
    size_bytes: int
    ends_by_itself: bool


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """A batch of a source file in a stored part, from its row `start` on."""

    unit: Unit
    owner: RawPart
    start: int

    @property
    def is_last(self) -> bool:
        return self.start + self.unit.rows == self.owner.part.rows

    def follows(self, other: StoredUnit) -> bool:
        return self.owner is other.owner and self.start == other.start + other.unit.rows


def stored_units(parts: Sequence[DatasetPart], units: Sequence[Unit]) -> list[StoredUnit]:
    """Return where each batch of a table is: `units` in their order, with as many rows as the parts."""
    found: list[StoredUnit] = []
    first = 0
    for part in parts:
        stop, rows = first, 0
        while rows < part.rows:
            rows += units[stop].rows
            stop += 1
        size_bytes = sum(unit.size_bytes for unit in units[first:stop])
        ends_by_itself = units[stop - 1].ends_part or size_bytes >= TARGET_PART_BYTES
        owner, start = RawPart(part, size_bytes, ends_by_itself), 0
        for unit in units[first:stop]:
            found.append(StoredUnit(unit, owner, start))
            start += unit.rows
        first = stop
    return found


class RawPartWriter:
    """Collects the batches of a table in order, new and stored ones, and makes the parts that a writer makes
    that is given all of them. `read` reads a stored part; `keep` accepts one that is used as it is.
    """

    def __init__(
        self,
        writer: PartWriter,
        read: Callable[[DatasetPart], pa.Table],
        keep: Callable[[DatasetPart], object],
    ) -> None:
        self.writer = writer
        self._read_part, self._keep = read, keep
        self._held: list[StoredUnit] = []
        self._open: tuple[RawPart, pa.Table] | None = None

    def add(self, batch: pa.Table) -> Unit:
        """Add a batch with rows. Raises StoreFull, NotInStore, CorruptObject."""
        self._copy_held()
        return self.writer.add_unit(batch)

    def reuse(self, stored: StoredUnit) -> None:
        """Add a batch that a part of the store holds. Raises StoreFull, NotInStore, CorruptObject."""
        if self._held and not stored.follows(self._held[-1]):
            self._copy_held()
        if not self._held and (stored.start or not self.writer.is_between_parts):
            self._copy(stored)
            return
        self._held.append(stored)
        if stored.is_last and stored.owner.ends_by_itself:
            self._take_held()

    def close(self) -> tuple[DatasetPart, ...]:
        """Return all parts. Raises StoreFull, NotInStore, CorruptObject."""
        if self._held and self._held[-1].is_last:
            self._take_held()
        self._copy_held()
        return self.writer.close()

    def _take_held(self) -> None:
        owner = self._held[0].owner
        self._keep(owner.part)
        self.writer.add_part(owner.part, owner.size_bytes)
        self._held = []

    def _copy_held(self) -> None:
        held, self._held = self._held, []
        for stored in held:
            self._copy(stored)

    def _copy(self, stored: StoredUnit) -> None:
        if self._open is None or self._open[0] is not stored.owner:
            self._open = stored.owner, self._read_part(stored.owner.part)
        rows = range(stored.start, stored.start + stored.unit.rows)
        # A slice would be written with bytes of the rows before it.
        self.writer.add_unit(self._open[1].take(pa.array(rows, pa.int64())), stored.unit)
