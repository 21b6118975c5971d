"""Rows that a device keeps, so that each is moved to it once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import NamedTuple

import numpy as np

from shoestring.data.loading.samples import Positions, Samples
from shoestring.training.contracts import ValidationRows
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.net_kind import NetRows

HELD_SHARE = 0.25
"""The share of a device's free memory that the rows of a split may take. The rest is for steps."""


class HeldRows:
    """The training split on a device, if it fits: each row from when it is first read. Several threads may
    read."""

    def __init__(self, device: Device, count: int) -> None:
        """`count`: the rows of the split."""
        self._device, self._max_bytes = device, HELD_SHARE * device.free_bytes()
        self._lock, self._rows = Lock(), NetRows((), ())
        self._is_held = np.zeros(count if self._max_bytes else 0, bool)

    def add(self, samples: Positions, rows: NetRows) -> None:
        """Keep rows of the device, at their positions in the split. Does nothing if not all will fit."""
        count = len(self._is_held)
        if not len(rows) or rows.bytes / len(rows) * count > self._max_bytes or not count:
            return
        with self._lock, self._device.copying():
            if not self._rows.inputs:
                self._rows = rows.unset(count)
            self._rows.put(self._device.positions(samples), rows)
        self._is_held[samples] = True

    def take(self, samples: Positions) -> NetRows | None:
        """Return rows that are gathered on the device; None: not all of them are there yet."""
        if not len(self._is_held) or not self._is_held[samples].all():
            return None
        with self._device.copying():
            taken = self._rows.take(self._device.positions(samples))
        return self._device.for_steps(taken)


class WeighedRows(NamedTuple):
    """Rows on the device, and what the sum of their losses is divided by."""

    rows: NetRows
    weight: float


class HeldValidation:
    """The batches of the last validation on a device, if they fit."""

    def __init__(self, device: Device) -> None:
        self._max_bytes = HELD_SHARE * device.free_bytes()
        self._of: ValidationRows | None = None
        self._batches = list[WeighedRows]()

    def batches(
        self, rows: ValidationRows, rows_at_once: int, prepare: Callable[[Samples], WeighedRows]
    ) -> Iterator[WeighedRows]:
        """Yield the batches of a validation. `prepare`: moves one to the device."""
        if rows == self._of:
            yield from self._batches
            return
        kept, left = list[WeighedRows](), self._max_bytes
        for samples in rows.batches(rows_at_once):
            batch = prepare(samples)
            left -= batch.rows.bytes
            if left >= 0:
                kept.append(batch)
            yield batch
        if left >= 0:
            self._of, self._batches = rows, kept
