"""Save and load the checkpoints of a training, in two alternating slots: one is intact while the other is
written.

Each attempt has slots of its own. A pod that was taken for lost may wake up in the middle of a write, and
must not overwrite what the attempt after it has saved.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from pydantic import Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore, StageStopped
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes

SLOTS = 2


class CheckpointSlot(Record):
    """One saved checkpoint."""

    number: int
    sha256: str
    samples: int
    attempt: int = Field(0, description="the attempt that saved it; 0: not recorded")
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


def read_pointer(store: Store, run_id: str) -> CheckpointPointer:
    """Return the slots of a run; none when there is no pointer, or it cannot be read."""
    try:
        path = store.fetch(store_layout.checkpoint_pointer(run_id))
        return CheckpointPointer.model_validate_json(path.read_bytes())
    except (NotInStore, ValidationError):
        return CheckpointPointer(slots=())


def save(
    store: Store, run_id: str, state: dict[str, Any], samples: int, attempt: int, selection: str = ""
) -> None:
    """Write a checkpoint of an attempt. It is valid once the pointer names it. `selection` is the digest of
    the rows that are trained.

    Raises:
        StageStopped: a newer attempt has saved a checkpoint, which stays.
        StoreFull: the store has no space left.
    """
    before = own_pointer(store, run_id, attempt).slots
    data, number = to_bytes(state), (before[0].number + 1) % SLOTS if before else 0
    slot = CheckpointSlot(
        number=number, sha256=digest(data), samples=samples, attempt=attempt, selection=selection
    )
    store.put(_slot_key(run_id, slot), data)
    # Read again: the write may have taken long enough for a newer attempt to save one.
    before = own_pointer(store, run_id, attempt).slots
    _write_pointer(store, run_id, (slot, *before[: SLOTS - 1]))


def own_pointer(store: Store, run_id: str, attempt: int) -> CheckpointPointer:
    """Return the slots of a run. Raises StageStopped if a newer attempt than this one wrote them."""
    pointer = read_pointer(store, run_id)
    if pointer.attempt > attempt:
        raise StageStopped(
            f"attempt {pointer.attempt} has taken over and saved a checkpoint: attempt {attempt} writes none",
            cause="lost",
        )
    return pointer


def load(store: Store, run_id: str, rows_sha256: str) -> tuple[dict[str, Any] | None, str]:
    """Return the newest intact checkpoint, and a sentence about those that cannot be used.

    `rows_sha256` identifies the rows of this training: with other rows, test rows could have been trained.
    Damaged slots are removed from the pointer, so that the next save overwrites them.
    """
    slots, note = read_pointer(store, run_id).slots, ""
    for age, slot in enumerate(slots):
        if (data := _read(store, run_id, slot)) is not None:
            saved = from_bytes(data)
            # A checkpoint of schema version 3 does not name its rows, which were split differently.
            if saved.get("rows_sha256") != rows_sha256:
                return None, (
                    f"the checkpoint at {slot.samples} samples was trained on other rows; "
                    "restarted from the beginning"
                )
            if age:
                _write_pointer(store, run_id, slots[age:])
            return saved, f"{note}resumed from the one at {slot.samples} samples" if note else ""
        note += f"the checkpoint at {slot.samples} samples is damaged; "
    return None, f"{note}restarted from the beginning" if note else ""


def to_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return state


def _slot_key(run_id: str, slot: CheckpointSlot) -> str:
    # Attempts of earlier releases shared their slots, and did not record their number.
    owner = f"{slot.attempt}-" if slot.attempt else ""
    return f"{store_layout.checkpoints(run_id)}/train-{owner}{slot.number}.pt"


def _write_pointer(store: Store, run_id: str, slots: tuple[CheckpointSlot, ...]) -> None:
    store.put(store_layout.checkpoint_pointer(run_id), record_bytes(CheckpointPointer(slots=slots)))


def _read(store: Store, run_id: str, slot: CheckpointSlot) -> bytes | None:
    try:
        data = store.fetch(_slot_key(run_id, slot)).read_bytes()
    except NotInStore:
        return None
    return data if digest(data) == slot.sha256 else None
