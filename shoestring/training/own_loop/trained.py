"""The models and the optimizers that a budget trains, without the wrappers of other libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from shoestring.core.errors import UsageError
from shoestring.core.text import join_names
from shoestring.spending.budget_file import PROFILE_VARIABLE
from shoestring.training.frameworks.torch_.gradients.step_pairs import StepPairs
from shoestring.training.own_loop.loop_state import LoopState
from shoestring.training.own_loop.rates.rate_hook import RateHook
from shoestring.training.own_loop.rates.schedulers import (
    all_schedulers,
    inner_optimizer,
    refuse_counting,
    schedulers_of,
)
from shoestring.training.profiling.profiled_loop import ProfiledLoop, profiled_loop, thread_settings

Models: TypeAlias = nn.Module | Sequence[nn.Module]
Optimizers: TypeAlias = Optimizer | Sequence[Optimizer]


class Stateful(Protocol):
    """A model, an optimizer, or another object that a checkpoint keeps."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


class Trained:
    """The models and the optimizers of one training, one each or several.

    Raises:
        UsageError: a model or an optimizer is none of PyTorch's.
    """

    def __init__(self, models: Models, optimizers: Optimizers) -> None:
        # A Sequential and a ModuleList can be iterated, too.
        self.models = [models] if isinstance(models, nn.Module) else listed(models)
        self.optimizers = [torch_optimizer(each) for each in listed(optimizers)]
        for each in self.models:
            if not isinstance(each, nn.Module):
                raise UsageError(
                    f"{type(each).__name__} is not a model of PyTorch: no checkpoint can keep it"
                )
        if not self.models or not self.optimizers:
            raise UsageError("a budget trains at least one model with one optimizer")

    def is_same(self, other: Trained) -> bool:
        mine, theirs = self.optimizers, other.optimizers
        return len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True))

    def rate_hooks(
        self, say: Callable[[str], None], steps: float, epochs: int | None, kept: Sequence[object]
    ) -> list[RateHook]:
        """Return a hook for each optimizer. The peaks are those of the script, before a checkpoint is loaded.

        Raises:
            UsageError: a scheduler counts its steps, and is not kept.
        """
        schedulers = all_schedulers()
        for each in self.optimizers:
            refuse_counting(schedulers_of(each, schedulers), steps, epochs, kept)
        return [RateHook(each, say, schedulers, kept) for each in self.optimizers]

    def state(self) -> dict[str, Any]:
        """Return the states, as a list only where there are several."""
        models = [each.state_dict() for each in self.models]
        optimizers = [each.state_dict() for each in self.optimizers]
        return {
            "model": models[0] if len(models) == 1 else models,
            "optimizer": optimizers[0] if len(optimizers) == 1 else optimizers,
            "optimizer_classes": self.optimizer_classes,
        }

    @property
    def optimizer_classes(self) -> list[str]:
        return [type(each).__name__ for each in self.optimizers]

    def load(self, state: Mapping[str, Any], where: str) -> None:
        """Restore what `state` returned. `where`: the place of the checkpoint.

        Raises:
            UsageError: it is of optimizers of other classes.
            RuntimeError, ValueError, KeyError: it is of others.
        """
        load_all(self.models, state["model"], "model")
        check_optimizers(state.get("optimizer_classes"), self.optimizer_classes, where)
        load_all(self.optimizers, state["optimizer"], "optimizer")


def check_optimizers(saved: Any, found: Sequence[str], where: str) -> None:
    """Check that a checkpoint has the states of such optimizers. `saved`: their classes; None: an earlier
    version wrote it. `found`: those of the script.

    Raises:
        UsageError: it has those of others, which PyTorch would load.
    """
    if saved is not None and saved != found:
        raise UsageError(
            f"the checkpoint {where} is of another optimizer: it has the state of {join_names(saved)}, and "
            f"the script trains with {join_names(found)}: name another folder for checkpoints, or delete it"
        )


def load_all(objects: Sequence[Stateful], saved: Any, name: str) -> None:
    """Load a list of states, or one state, into as many objects."""
    states = saved if isinstance(saved, list) else [saved]
    if len(states) != len(objects):
        raise ValueError(f"it has {len(states)} {name} states, and the script has {len(objects)}")
    for each, state in zip(objects, states, strict=True):
        each.load_state_dict(state)


def profiled_training(models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> ProfiledLoop | None:
    """Return what profiles the loop of a training; None: nothing asks for it."""
    if PROFILE_VARIABLE not in os.environ:
        return None
    from shoestring.training.frameworks.torch_.profiling.operators import TorchTools

    cores = len(os.sched_getaffinity(0))
    return profiled_loop(
        lambda: TorchTools(models, optimizers),
        lambda: thread_settings(torch.get_num_threads, torch.set_num_threads, cores),
    )


def measure_noise(loop: LoopState, optimizer: Optimizer) -> None:
    """Measure the noise of a training's gradient, on the first rank."""
    if not loop.rank:
        loop.noise = StepPairs(optimizer, lambda: loop.position.samples * loop.world_size)


def listed(one_or_several: Any) -> list[Any]:
    return list(one_or_several) if isinstance(one_or_several, list | tuple) else [one_or_several]


def torch_optimizer(optimizer: Any) -> Optimizer:
    """Return PyTorch's optimizer in accelerate's. Raises UsageError where there is none."""
    found = inner_optimizer(optimizer)
    if not isinstance(found, Optimizer):
        raise UsageError(
            f"{type(optimizer).__name__} is not an optimizer of PyTorch, so a budget cannot set its rate"
        )
    return found
