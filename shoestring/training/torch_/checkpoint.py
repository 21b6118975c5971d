"""A training, put down and taken up again. Two slots in turn, so that the one before is whole while one is written."""

from __future__ import annotations

import io
from typing import Any

import torch
from pydantic import ValidationError

from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, StoredRecord, digest, record_bytes

SLOTS = 2


class CheckpointSlot(Record):
    number: int
    sha256: str
    samples: int


class CheckpointPointer(StoredRecord):
    """`checkpoints/train.json`: the newest slot first."""

    slots: tuple[CheckpointSlot, ...]


def folder(run_id: str) -> str:
    return f"runs/{run_id}/checkpoints"


def read_pointer(store: Store, run_id: str) -> CheckpointPointer:
    """Empty when nothing was put down, or what was cannot be read."""
    try:
        return CheckpointPointer.model_validate_json(store.fetch(f"{folder(run_id)}/train.json").read_bytes())
    except (NotInStore, ValidationError):
        return CheckpointPointer(slots=())


def save(store: Store, run_id: str, state: dict[str, Any], samples: int) -> None:
    """Put a state down. It counts from the moment that the pointer names it. Raises StoreFull."""
    before = read_pointer(store, run_id).slots
    number = (before[0].number + 1) % SLOTS if before else 0
    data = to_bytes(state)
    store.put(f"{folder(run_id)}/train-{number}.pt", data)
    slots = (CheckpointSlot(number=number, sha256=digest(data), samples=samples), *before[: SLOTS - 1])
    store.put(f"{folder(run_id)}/train.json", record_bytes(CheckpointPointer(slots=slots)))


def load(store: Store, run_id: str) -> tuple[dict[str, Any] | None, str]:
    """The newest state that is whole, and a sentence about those that were not. The pointer forgets them: the next save is over them."""
    slots, said = read_pointer(store, run_id).slots, ""
    for age, slot in enumerate(slots):
        if (data := _read(store, run_id, slot)) is not None:
            if age:
                store.put(f"{folder(run_id)}/train.json", record_bytes(CheckpointPointer(slots=slots[age:])))
            return from_bytes(data), f"{said}went on from the one at {slot.samples} samples" if said else ""
        said += f"the checkpoint at {slot.samples} samples was damaged; "
    return None, f"{said}started afresh" if said else ""


def _read(store: Store, run_id: str, slot: CheckpointSlot) -> bytes | None:
    try:
        data = store.fetch(f"{folder(run_id)}/train-{slot.number}.pt").read_bytes()
    except NotInStore:
        return None
    return data if digest(data) == slot.sha256 else None


def to_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return state
