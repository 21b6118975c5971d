"""Schedulers of a script whose rate a budget sets: they continue to count."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR

from shoestring.core.errors import UsageError

# A scheduler that raises after its steps stays this share of them below its end: a script may call its step()
# more often than the optimizer's.
KEPT_BACK = 0.05


def refuse_counting(
    schedulers: Sequence[LRScheduler], steps: float, epochs: int | None = None, kept: Sequence[object] = ()
) -> None:
    """Raise UsageError where a scheduler raises an error before the training ends.

    `steps`: those that the scheduler can count until then; infinite where only the budget ends it. `epochs`:
    their number, if it is named: a scheduler may count these. `kept`: those that count the budget's shares.
    """
    for each in schedulers:
        if not isinstance(each, OneCycleLR) or is_kept(each, kept):
            continue
        if steps > each.total_steps and each.total_steps != epochs:
            raise UsageError(
                f"OneCycleLR(total_steps={each.total_steps}) raises an error after {each.total_steps} steps, "
                "and this training may have more: leave out the scheduler and its step(), since the budget "
                "warms up to its max_lr and anneals; or name no more steps than that, as in "
                f"budgeted(..., steps={each.total_steps}); or, with budgeted() and budget.steps(), let it "
                "count the budget instead: budget.keep(scheduler)"
            )


def all_schedulers() -> list[LRScheduler]:
    """Return the schedulers of this process. An optimizer has no list of its own. Takes up to 0.1 s."""
    return [each for each in gc.get_objects() if issubclass(type(each), LRScheduler)]


def schedulers_of(optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> list[LRScheduler]:
    return [each for each in schedulers if inner_optimizer(getattr(each, "optimizer", None)) is optimizer]


def inner_optimizer(optimizer: object) -> object:
    """Return the optimizer that accelerate has wrapped, or else the object itself."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer


def is_kept(scheduler: LRScheduler, kept: Sequence[object]) -> bool:
    return any(scheduler is part for each in kept for part in parts_of(each))


def parts_of(kept: object) -> Iterator[object]:
    """Yield what is kept, and the schedulers inside it: accelerate and `SequentialLR` wrap others."""
    yield kept
    for inner in (getattr(kept, "scheduler", None), *getattr(kept, "_schedulers", ())):
        if isinstance(inner, LRScheduler):
            yield from parts_of(inner)


def peak_rates(schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> list[float]:
    """Return the rate that a script named for each group of parameters.

    A scheduler that has begun keeps it in `initial_lr`; one that cycles between two rates, in `max_lr` or
    `max_lrs`. The current `lr` may be 0 in a warm-up.
    """
    cycled = [each for each in schedulers if isinstance(each, CyclicLR)]
    if cycled:
        return [float(rate) for rate in cycled[-1].max_lrs]
    return [peak_rate(group) for group in optimizer.param_groups]


def peak_rate(group: dict[str, object]) -> float:
    return float(group.get("max_lr", group.get("initial_lr", group["lr"])))  # type: ignore[arg-type]


class ShareCounter:
    """Lets a scheduler that raises after its steps count the share of the training instead.

    What else it sets, such as the momentum, follows that share.
    """

    def __init__(self, scheduler: OneCycleLR) -> None:
        self._scheduler = scheduler
        self._set_to: int | None = None
        self._kept_back = 1 + int(KEPT_BACK * scheduler.total_steps)

    def set(self, share: float) -> None:
        scheduler = self._scheduler
        if self._set_to is not None:
            self._kept_back = max(self._kept_back, scheduler.last_epoch - self._set_to)
        last = max(0, scheduler.total_steps - 1 - self._kept_back)
        self._set_to = scheduler.last_epoch = min(round(share * scheduler.total_steps), last)
        # accelerate calls no step() beyond the last of this number.
        scheduler._step_count = self._set_to + 1
