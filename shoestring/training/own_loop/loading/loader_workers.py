"""Workers of PyTorch's loaders, out of reach of a signal to the process group of their script.

A meter sends SIGTERM to the group. It is a request to the script, which trains its last step and validates
with these workers. PyTorch ends a training one of whose workers a signal has ended, with an error. In a group
of its own, a worker still ends by what its own loader sends it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

WORKER_LOOP = "_worker_loop"
STARTED_FROM = ("torch.utils.data._utils.worker", "torchdata.stateful_dataloader.stateful_dataloader")
"""The modules in which loaders look up the function that a worker runs."""


class InOwnGroup:
    """Runs a module's worker loop in a process group of its own. `module`: its name. It can be pickled."""

    originals: dict[str, Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(self, module: str) -> None:
        self.module = module

    def __call__(self, *arguments: Any) -> None:
        os.setpgid(0, 0)
        # A worker that was spawned has modules of its own, in which nothing is replaced.
        loop = self.originals.get(self.module) or getattr(import_module(self.module), WORKER_LOOP)
        loop(*arguments)


def separate_workers() -> None:
    """Start the workers of all loaders of this process in groups of their own from here on."""
    for name in STARTED_FROM:
        found = getattr(sys.modules.get(name), WORKER_LOOP, None)
        if found is not None and not isinstance(found, InOwnGroup):
            InOwnGroup.originals[name] = found
            setattr(sys.modules[name], WORKER_LOOP, InOwnGroup(name))
