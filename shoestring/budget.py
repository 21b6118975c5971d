"""The budget in a training loop of your own.

    from shoestring.budget import Budget, budgeted

    budget = Budget.here()
    for epoch in budget.epochs():
        for batch in budgeted(loader, model, optimizer, budget):
            ...
        budget.report(loss=validate(model))

PyTorch is imported when `budgeted` is first called. docs/own-training.md describes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from shoestring.training.own_loop.budget import Budget as Budget

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

Batch = TypeVar("Batch")


def budgeted(
    loader: Iterable[Batch],
    model: nn.Module,
    optimizer: Optimizer,
    budget: Budget,
    *,
    steps: int | None = None,
) -> Iterator[Batch]:
    """Yield the batches of a pass over the loader, until the pass or the budget ends.

    The budget sets the learning rate of each step of the optimizer: warm-up, plateau, and a decay to zero at
    the end. The first call continues from the checkpoint of an earlier attempt, where there is one.

    `steps`: the number of batches of the whole training, which ends there if its budget does not end first.
    """
    from shoestring.training.own_loop.loop_session import batches_in_budget

    return batches_in_budget(loader, model, optimizer, budget, steps)
