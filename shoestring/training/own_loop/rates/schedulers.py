"""Schedulers of a script beside a budget: the budget sets the rate, and they go on counting."""

from __future__ import annotations

import gc

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from shoestring.core.errors import UsageError


def refuse_counting_schedulers(optimizer: Optimizer, steps: float, epochs: int | None = None) -> None:
    """Raise UsageError where a scheduler of this optimizer raises an error before the training ends.

    `steps`: those that the scheduler can count until then; infinite where only the budget ends it. `epochs`:
    their number, if it is named: a scheduler may count these.
    """
    for each in schedulers_of(optimizer):
        if isinstance(each, OneCycleLR) and steps > each.total_steps and each.total_steps != epochs:
            raise UsageError(
                f"OneCycleLR(total_steps={each.total_steps}) raises an error after {each.total_steps} steps, "
                "and this training may have more: leave out the scheduler and its step(), since the budget "
                "warms up to its max_lr and anneals; or name no more steps than that, as in "
                f"budgeted(..., steps={each.total_steps})"
            )


def schedulers_of(optimizer: Optimizer) -> list[LRScheduler]:
    """Return the schedulers of an optimizer. It has no list of them, and they hold it."""
    found = (each for each in gc.get_objects() if issubclass(type(each), LRScheduler))
    return [each for each in found if getattr(each, "optimizer", None) is optimizer]
