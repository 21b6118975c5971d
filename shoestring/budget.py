"""The budget in a training loop of your own.

    from shoestring.budget import Budget, budgeted

    budget = Budget.here()
    for epoch in budget.epochs():
        for batch in budgeted(loader, model, optimizer, budget):
            ...
        budget.report(loss=validate(model))

With Hugging Face's Trainer or with Lightning, a callback is the one change:

    Trainer(..., callbacks=[huggingface_callback(budget)])
    lightning.Trainer(..., callbacks=[lightning_callback(budget)])

LightGBM and XGBoost have one, too: `lightgbm_callback`, `xgboost_callback`.

PyTorch is imported when `budgeted` or a callback is first called. docs/own-training.md describes all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.budget import Budget as Budget

if TYPE_CHECKING:
    from shoestring.training.own_loop.budgeted_loader import BudgetedLoader
    from shoestring.training.own_loop.callbacks.huggingface import HuggingFaceBudget
    from shoestring.training.own_loop.callbacks.lightgbm import LightGBMBudget
    from shoestring.training.own_loop.callbacks.lightning import LightningBudget
    from shoestring.training.own_loop.callbacks.xgboost import XGBoostBudget
    from shoestring.training.own_loop.trained import Models, Optimizers

Batch = TypeVar("Batch")


def budgeted(
    loader: Iterable[Batch],
    model: Models,
    optimizer: Optimizers,
    budget: Budget,
    *,
    steps: int | None = None,
) -> BudgetedLoader[Batch]:
    """Return a loader of the same batches. Each pass over it ends where the loader or the budget ends.

    The budget sets the learning rate of each step of the optimizers: warm-up, plateau, and a decay to zero at
    the end. The first pass continues from the checkpoint of an earlier attempt, where there is one.

    `model`, `optimizer`: one, or a list of several. `steps`: the number of batches of the whole training,
    which ends there if its budget does not end first.

    Raises:
        UsageError: a model or an optimizer is none of PyTorch's.
    """
    from shoestring.training.own_loop.budgeted_loader import BudgetedLoader
    from shoestring.training.own_loop.trained import Trained

    return BudgetedLoader(loader, Trained(model, optimizer), budget.loop, steps)


def lightgbm_callback(budget: Budget) -> LightGBMBudget:
    """Return the callback that ends a training of LightGBM inside its budget, with its model in a checkpoint.

    The training continues with `lightgbm.train(..., init_model=budget.checkpoint)`.

    Raises:
        UsageError: the budget has a training, or the extra `lightgbm` is not installed.
    """
    with needs_extra("lightgbm", "lightgbm"):
        from shoestring.training.own_loop.callbacks.lightgbm import LightGBMBudget
    return LightGBMBudget(budget)


def xgboost_callback(budget: Budget) -> XGBoostBudget:
    """Return the callback that ends a training of XGBoost inside its budget, with its model in a checkpoint.

    The training continues with `xgboost.train(..., xgb_model=budget.checkpoint)`.

    Raises:
        UsageError: the budget has a training, or the extra `xgboost` is not installed.
    """
    with needs_extra("xgboost", "xgboost"):
        from shoestring.training.own_loop.callbacks.xgboost import XGBoostBudget
    return XGBoostBudget(budget)


def huggingface_callback(budget: Budget) -> HuggingFaceBudget:
    """Return the callback that keeps a training of Hugging Face's Trainer inside its budget.

    The training continues with `trainer.train(resume_from_checkpoint=budget.checkpoint)`.

    Raises:
        UsageError: the budget has a training, or the extra `huggingface` is not installed.
    """
    with needs_extra("huggingface", "transformers", "accelerate"):
        from shoestring.training.own_loop.callbacks.huggingface import HuggingFaceBudget
    return HuggingFaceBudget(budget)


def lightning_callback(budget: Budget) -> LightningBudget:
    """Return the callback that keeps a training of Lightning's Trainer inside its budget.

    The training continues with `trainer.fit(..., ckpt_path=budget.checkpoint)`.

    Raises:
        UsageError: the budget has a training, or the extra `lightning` is not installed.
    """
    with needs_extra("lightning", "lightning"):
        from shoestring.training.own_loop.callbacks.lightning import LightningBudget
    return LightningBudget(budget)


@contextmanager
def needs_extra(extra: str, *modules: str) -> Iterator[None]:
    """Raise UsageError, with the command that installs an extra, where one of its modules is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in modules:
            raise
        raise UsageError(f"{error.name} is not installed: pip install 'shoestring[{extra}]'") from None
