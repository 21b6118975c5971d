"""The precision of a training: bf16 where the device has it and a few steps show that it pays."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from shoestring.training.changes import PlanChange
from shoestring.training.frameworks.torch_.device import Device

WARM_STEPS, PROBE_STEPS = 5, 20
"""Steps before those that are timed, in which kernels are loaded, and the timed ones, of each precision."""

LEAST_GAIN = 1.05
"""A smaller gain is not worth the digits."""

Choice = Literal["", "float32", "bf16"]


class Precision:
    """What the next step of a network is computed in. Weights, their optimizer, losses and the norm of the
    gradient are float32 in any case.

    The first steps are timed in both: the device is waited for four times, then never again.
    """

    def __init__(self, device: Device, now_s: Callable[[], float] = time.monotonic) -> None:
        self.choice: Choice = "" if device.has_bf16 else "float32"
        """Empty: the steps that decide are not over."""
        self._device, self._now_s = device, now_s
        self._steps = self._rows = 0
        self._marks = list[tuple[float, int]]()
        self._changes = list[PlanChange]()

    @property
    def is_bf16(self) -> bool:
        if self.choice:
            return self.choice == "bf16"
        return self._steps > WARM_STEPS + PROBE_STEPS

    def begin_step(self, rows: int) -> None:
        """Begin a step over some rows."""
        if self.choice:
            return
        of_precision = self._steps % (WARM_STEPS + PROBE_STEPS)
        if of_precision == WARM_STEPS or (self._steps and not of_precision):
            self._device.wait()
            self._marks.append((self._now_s(), self._rows))
        if len(self._marks) == 4:
            self._choose()
        self._steps, self._rows = self._steps + 1, self._rows + rows

    def _choose(self) -> None:
        (began_s, before), (ended_s, done), (again_s, between), (last_s, rows) = self._marks
        exact = (done - before) / max(1e-9, ended_s - began_s)
        short = (rows - between) / max(1e-9, last_s - again_s)
        self.choice = "bf16" if short >= LEAST_GAIN * exact else "float32"
        reason = f"{PROBE_STEPS} steps at {short:,.0f} rows/s in bf16, {exact:,.0f} in float32"
        if self.choice == "bf16":
            self._changes.append(PlanChange("precision", "float32", "bf16", reason))

    def taken_changes(self) -> tuple[PlanChange, ...]:
        """Return a change to bf16 once."""
        found, self._changes = tuple(self._changes), []
        return found
