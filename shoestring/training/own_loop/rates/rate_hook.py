"""The one place that sets the learning rate: a hook of the optimizer, before each of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from shoestring.training.own_loop.pace import rate_factor
from shoestring.training.own_loop.rates.end_rate import EndRate


def peak_rate(group: dict[str, Any]) -> float:
    """Return the rate that a script named for a group of parameters.

    A scheduler that has begun keeps it in `initial_lr`; one that cycles, in `max_lr`. The current `lr` may be
    0 in a warm-up.
    """
    return float(group.get("max_lr", group.get("initial_lr", group["lr"])))


class RateHook:
    """Sets the rate of each group to its peak x the schedule's factor at `share`.

    `say` is called when another part of the script has changed a rate.
    """

    def __init__(self, optimizer: Optimizer, say: Callable[[str], None]) -> None:
        self.share, self._say, self._is_said, self.end_rate = 0.0, say, False, EndRate()
        self._peaks = [peak_rate(group) for group in optimizer.param_groups]
        self._written: list[float | None] = [None] * len(self._peaks)
        self._handle = optimizer.register_step_pre_hook(self._before_step)

    @property
    def rates(self) -> list[float | None]:
        """The rates of the last step, by group; None where it is not known without waiting for a GPU."""
        return list(self._written)

    def remove(self) -> None:
        """Leave the rate to the script."""
        self._handle.remove()

    def _before_step(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        factor = rate_factor(self.share)
        for index, group in enumerate(optimizer.param_groups):
            if index == len(self._peaks):  # a group that was added during the training
                self._peaks.append(peak_rate(group))
                self._written.append(None)
            if not self._is_said and self._written[index] not in (None, group["lr"]):
                self._is_said = True
                self._say(
                    "the script's learning rate scheduler is overwritten: the budget sets the rate, from the "
                    "peak that the script names"
                )
            self._set(group, index, self._peaks[index] * factor)
        self.end_rate.share, self.end_rate.is_said = factor, False
        if (first := self._written[0]) is not None:
            self.end_rate.rate = first

    def _set(self, group: dict[str, Any], index: int, rate: float) -> None:
        if isinstance(group["lr"], Tensor):
            # Optimizers that are compiled or captured read it in place. To compare it, a step would wait for
            # the GPU: such a rate is overwritten in silence.
            group["lr"].fill_(rate)
        else:
            group["lr"] = self._written[index] = rate
