"""The states of all random number generators of a training, as plain values and tensors."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def random_states() -> dict[str, Any]:
    """Return the states of Python's, PyTorch's and, where it is imported, NumPy's generators."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, position, has_gauss, gauss = numpy.random.get_state()
        # Python's own numbers: `weights_only` loads no array.
        states["numpy"] = (str(name), keys.tolist(), int(position), int(has_gauss), float(gauss))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    """Restore what `random_states` returned. GPUs are restored where there are as many as then."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "numpy" in states and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(states["numpy"])
    if "cuda" in states and torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


def loader_generators(loader: object) -> list[torch.Generator]:
    """Return the generators that a loader and its samplers have of their own, each once."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    owners = (
        loader,
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
    )
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())
