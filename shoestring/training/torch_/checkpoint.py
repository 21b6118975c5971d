"""Save and load the checkpoints of a training, in two alternating slots: one is intact while the other is
written."""

from __future__ import annotations

import io
from typing import Any

import torch
from pydantic import ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes

SLOTS = 2


class CheckpointSlot(Record):
    """One saved checkpoint."""

    number: int
    sha256: str
    samples: int


class CheckpointPointer(StoredRecord):
    """The slots of a run, newest first. Stored at `runs/RUN_ID/checkpoints/train.json`."""

    slots: tuple[CheckpointSlot, ...]


def read_pointer(store: Store, run_id: str) -> CheckpointPointer:
    """Return the slots of a run; none when there is no pointer, or it cannot be read."""
    try:
        path = store.fetch(store_layout.checkpoint_pointer(run_id))
        return CheckpointPointer.model_validate_json(path.read_bytes())
    except (NotInStore, ValidationError):
        return CheckpointPointer(slots=())


def save(store: Store, run_id: str, state: dict[str, Any], samples: int) -> None:
    """Write a checkpoint. It is valid once the pointer names it. Raises StoreFull."""
    before = read_pointer(store, run_id).slots
    number = (before[0].number + 1) % SLOTS if before else 0
    data = to_bytes(state)
    store.put(_slot_key(run_id, number), data)
    slots = (CheckpointSlot(number=number, sha256=digest(data), samples=samples), *before[: SLOTS - 1])
    _write_pointer(store, run_id, slots)


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


def _slot_key(run_id: str, number: int) -> str:
    return f"{store_layout.checkpoints(run_id)}/train-{number}.pt"


def _write_pointer(store: Store, run_id: str, slots: tuple[CheckpointSlot, ...]) -> None:
    store.put(store_layout.checkpoint_pointer(run_id), record_bytes(CheckpointPointer(slots=slots)))


def _read(store: Store, run_id: str, slot: CheckpointSlot) -> bytes | None:
    try:
        data = store.fetch(_slot_key(run_id, slot.number)).read_bytes()
    except NotInStore:
        return None
    return data if digest(data) == slot.sha256 else None
