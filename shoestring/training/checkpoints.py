"""Save and load the checkpoints of a training: its state as a record, and its large parts as objects of their
own, which are written again only when they have changed.

A checkpoint and each of its parts have two alternating slots: one is intact while the other is written. Each
attempt has slots of its own. A pod that was taken for lost may wake up in the middle of a write, and must not
overwrite what the attempt after it has saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from pydantic import Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore, StageStopped
from shoestring.core.interfaces import Store
from shoestring.core.record import SCHEMA_VERSION, Record, StoredRecord, digest, record_bytes
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.control.memory import ControllerMemory
from shoestring.training.model_record import SampleRange
from shoestring.training.window_log import TrainingStart, WindowRecord

SLOTS = 2
FROM_THE_BEGINNING = "restarted from the beginning"


class PartSlot(Record):
    """The slot of a part, and the attempt that owns it."""

    attempt: int
    number: int
    sha256: str


class TrainedMember(Record):
    """A member of a blend whose training has ended."""

    family: str
    training_s: float
    spent_usd: Decimal = Field(description="spent by the stage at its end, in all attempts")
    depends_on_limits: bool = Field(description="more money or time would have made another model")


class Checkpoint(StoredRecord):
    """The state of a training; `parts` names the places of its large parts.

    `rows_sha256` identifies the rows: with others, test rows could have been trained. Seconds and dollars are
    those of all starts so far.
    """

    rows_sha256: str
    samples: int
    cursor: SampleCursor
    memory: ControllerMemory
    training_s: float
    spent_usd: Decimal
    sample_ranges: tuple[SampleRange, ...]
    starts: tuple[TrainingStart, ...]
    windows: tuple[WindowRecord, ...]
    is_shaped_by_budget: bool
    parts: dict[str, PartSlot] = Field({})
    members: tuple[TrainedMember, ...] = Field(
        (), exclude_if=lambda members: not members, description="of a blend: those trained before this one"
    )


class CheckpointSlot(Record):
    """One saved checkpoint."""

    number: int
    sha256: str
    samples: int
    attempt: int = Field(0, description="the attempt that saved it")
    selection: str = Field(
        "",
        exclude_if=lambda sha256: not sha256,
        description="digest of the blob with the rows that are trained; empty: all rows of the split",
    )


class CheckpointPointer(StoredRecord):
    """The slots of a run, newest first. Stored at `runs/RUN_ID/checkpoints/train.json`."""

    slots: tuple[CheckpointSlot, ...]

    @property
    def attempt(self) -> int:
        """The attempt that saved the newest checkpoint; 0: none did."""
        return self.slots[0].attempt if self.slots else 0

    @property
    def selection(self) -> str:
        """The digest of the rows of the newest checkpoint; empty: all rows, or there is no checkpoint."""
        return self.slots[0].selection if self.slots else ""


class SavedTraining(NamedTuple):
    """A checkpoint with its parts."""

    checkpoint: Checkpoint
    parts: Mapping[str, bytes]


def read_pointer(store: Store, run_id: str) -> CheckpointPointer:
    """Return the slots of a run; none when there is no pointer, or it cannot be read."""
    try:
        path = store.fetch(store_layout.checkpoint_pointer(run_id))
        return CheckpointPointer.model_validate_json(path.read_bytes())
    except (NotInStore, ValidationError):
        return CheckpointPointer(slots=())


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of a run, as one attempt reads and writes them."""

    store: Store
    run_id: str
    attempt: int
    _parts: dict[str, tuple[bytes, PartSlot]] = field(default_factory=dict)
    """The parts of the newest checkpoint that this attempt has loaded or saved, and their slots."""

    def load(self, rows_sha256: str) -> tuple[SavedTraining | None, str]:
        """Return the newest intact checkpoint of these rows, and a sentence about those that cannot be used.

        Damaged slots are removed from the pointer, so that the next save overwrites them.
        """
        pointer, note = read_pointer(self.store, self.run_id), ""
        for age, slot in enumerate(pointer.slots):
            named = f"the checkpoint at {slot.samples} samples"
            if pointer.schema_version != SCHEMA_VERSION:
                return None, (
                    f"{named} is of schema version {pointer.schema_version}, and this release continues "
                    f"those of version {SCHEMA_VERSION}; {FROM_THE_BEGINNING}"
                )
            if (saved := self._read(slot)) is None:
                note += f"{named} is damaged; "
                continue
            if saved.checkpoint.rows_sha256 != rows_sha256:
                return None, f"{named} was trained on other rows; {FROM_THE_BEGINNING}"
            if age:
                self._point_to(pointer.slots[age:])
            slots = saved.checkpoint.parts
            self._parts = {name: (data, slots[name]) for name, data in saved.parts.items()}
            return saved, f"{note}resumed from the one at {slot.samples} samples" if note else ""
        return None, f"{note}{FROM_THE_BEGINNING}" if note else ""

    def save(self, checkpoint: Checkpoint, parts: Mapping[str, bytes]) -> None:
        """Write a checkpoint. It is valid once the pointer names it.

        Raises:
            StageStopped: a newer attempt has saved a checkpoint, which stays.
            StoreFull: the store has no space left.
        """
        before = self._own_slots()
        written = {name: (data, self._put_part(name, data)) for name, data in parts.items()}
        slots = {name: slot for name, (_, slot) in written.items()}
        data = record_bytes(checkpoint.model_copy(update={"parts": slots}))
        slot = CheckpointSlot(
            number=(before[0].number + 1) % SLOTS if before else 0,
            sha256=digest(data),
            samples=checkpoint.samples,
            attempt=self.attempt,
            selection=checkpoint.cursor.selection,
        )
        self.store.put(self._key(slot), data)
        # Read again: the write may have taken long enough for a newer attempt to save one.
        before = self._own_slots()
        self._point_to((slot, *before[: SLOTS - 1]))
        self._parts = written

    def _own_slots(self) -> tuple[CheckpointSlot, ...]:
        """Return the slots of the run. Raises StageStopped if a newer attempt than this one wrote them."""
        pointer = read_pointer(self.store, self.run_id)
        if pointer.attempt > self.attempt:
            raise StageStopped(
                f"attempt {pointer.attempt} has taken over and saved a checkpoint: attempt {self.attempt} "
                "writes none",
                cause="lost",
            )
        return pointer.slots if pointer.schema_version == SCHEMA_VERSION else ()

    def _put_part(self, name: str, data: bytes) -> PartSlot:
        """Write a part that has changed, into the slot that the newest checkpoint does not use."""
        known = self._parts.get(name)
        if known and (known[0] is data or known[0] == data):
            return known[1]
        number = (known[1].number + 1) % SLOTS if known and known[1].attempt == self.attempt else 0
        slot = PartSlot(attempt=self.attempt, number=number, sha256=digest(data))
        self.store.put(self._part_key(name, slot), data)
        return slot

    def _read(self, slot: CheckpointSlot) -> SavedTraining | None:
        """Return a checkpoint with its parts, or None if one of them is missing or changed."""
        if (data := self._intact(self._key(slot), slot.sha256)) is None:
            return None
        checkpoint, parts = Checkpoint.model_validate_json(data), dict[str, bytes]()
        for name, part in checkpoint.parts.items():
            if (data := self._intact(self._part_key(name, part), part.sha256)) is None:
                return None
            parts[name] = data
        return SavedTraining(checkpoint, parts)

    def _intact(self, key: str, sha256: str) -> bytes | None:
        try:
            data = self.store.fetch(key).read_bytes()
        except NotInStore:
            return None
        return data if digest(data) == sha256 else None

    def _key(self, slot: CheckpointSlot) -> str:
        return f"{store_layout.checkpoints(self.run_id)}/train-{slot.attempt}-{slot.number}.state"

    def _part_key(self, name: str, slot: PartSlot) -> str:
        return f"{store_layout.checkpoints(self.run_id)}/{name}-{slot.attempt}-{slot.number}.part"

    def _point_to(self, slots: tuple[CheckpointSlot, ...]) -> None:
        pointer = CheckpointPointer(slots=slots)
        self.store.put(store_layout.checkpoint_pointer(self.run_id), record_bytes(pointer))
