"""The one place that sets the learning rate: a hook of the optimizer, before each of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.utils.hooks import RemovableHandle

from shoestring.training.own_loop.rates.decay import LATEST_START, rate_factor
from shoestring.training.own_loop.rates.end_rate import EndRate
from shoestring.training.own_loop.rates.schedulers import (
    ShareCounter,
    is_kept,
    peak_rate,
    peak_rates,
    schedulers_of,
)


class RateHook:
    """Sets the rate of each group to its peak x the schedule's factor at `share`, which decays from
    `decay_start` on.

    The peak is the rate that the script has named, for this training or for an earlier one of the same
    optimizer. `say` is called when another part of the script has changed a rate. `schedulers`: of any
    optimizer. `kept`: objects with a state in the checkpoints. A scheduler among them that raises after its
    steps counts the training's shares.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        say: Callable[[str], None],
        schedulers: Sequence[LRScheduler],
        kept: Sequence[object] = (),
    ) -> None:
        self.share, self.decay_start = 0.0, LATEST_START
        self._say, self.end_rate = say, EndRate()
        self.optimizer, self.optimizer_class = optimizer, type(optimizer).__name__
        schedulers = schedulers_of(optimizer, schedulers)
        peaks = _peaks(optimizer, peak_rates(schedulers, optimizer), bool(schedulers))
        of_kept = [each for each in schedulers if is_kept(each, kept)]
        self._counters = [ShareCounter(each) for each in of_kept if isinstance(each, OneCycleLR)]
        self._written: list[float | None] = [None] * len(peaks)
        # What is kept is meant to stay.
        self._is_said = bool(of_kept)
        self._set_rates = SetRates(peaks, optimizer.register_step_pre_hook(self._before_step))
        _newest[optimizer] = self._set_rates

    @property
    def rates(self) -> list[float | None]:
        """The rates of the last step, by group; None where it is not known without waiting for a GPU."""
        return list(self._written)

    def remove(self) -> None:
        """Leave the rate to the script."""
        self._set_rates.hook.remove()

    def reset(self, optimizer: Optimizer) -> None:
        """Set the peaks, after a state was loaded into the optimizer: its rates are of another moment."""
        self._set_rates.factor = 1.0
        for index, group in enumerate(optimizer.param_groups[: len(self._written)]):
            self._set(group, index, self._set_rates.peaks[index])

    def _before_step(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        factor = self._set_rates.factor = rate_factor(self.share, self.decay_start)
        peaks = self._set_rates.peaks
        for index, group in enumerate(optimizer.param_groups):
            if index == len(peaks):  # a group that was added during the training
                peaks.append(peak_rate(group))
                self._written.append(None)
            if not self._is_said and self._written[index] not in (None, group["lr"]):
                self._is_said = True
                self._say(
                    "the script's learning rate scheduler is overwritten: the budget sets the rate, from the "
                    "peak that the script names"
                )
            self._set(group, index, peaks[index] * factor)
        for counter in self._counters:
            counter.set(self.share)
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


@dataclass(slots=True)
class SetRates:
    """The rates that a hook has set: `peaks`, by group, x `factor`."""

    peaks: list[float]
    hook: RemovableHandle
    factor: float = 1.0

    def peak_or(self, index: int, rate: float) -> float:
        """Return a group's peak if `rate` is what was last set, else `rate`."""
        if index >= len(self.peaks):
            return rate
        # A rate in a tensor has 24 bits.
        is_set = math.isclose(rate, self.peaks[index] * self.factor, rel_tol=1e-6)
        return self.peaks[index] if is_set else rate


_newest = WeakKeyDictionary[Optimizer, SetRates]()
"""What was set last, by optimizer. A hook can hold its optimizer, which would then never be deleted."""


def _peaks(optimizer: Optimizer, named: list[float], has_schedulers: bool) -> list[float]:
    """Return the peaks of a training. An earlier one of this optimizer has left its rates near zero.

    `named`: the rates that the script's groups and schedulers name now.
    """
    if (earlier := _newest.get(optimizer)) is None:
        return named
    earlier.hook.remove()
    # Without a scheduler, the rate itself is what a script sets for its next training.
    rates = named if has_schedulers else [float(group["lr"]) for group in optimizer.param_groups]
    return [earlier.peak_or(index, rate) for index, rate in enumerate(rates)]
