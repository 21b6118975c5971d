"""Steps of a network for its profile: with its rows, its optimizer and its average, without validations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from shoestring.core.errors import StageFailed
from shoestring.data.loading.loader import Loader
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.frameworks.torch_.profiling.operators import TorchTools
from shoestring.training.profiling.loop_profile import Setting
from shoestring.training.profiling.profiled_loop import profiled_loop, thread_settings
from shoestring.training.task import TrainingTask

BATCH_FACTORS = (2, 4)


class ProfiledNet:
    """The steps of a network until its profile is written, with the learning rate and the batch of its
    recipe."""

    def __init__(self, learner: NetLearner, task: TrainingTask, cores: int) -> None:
        """`cores`: of the machine."""
        self._learner, self._task, self._cores = learner, task, cores
        self._rows = learner.batch_rows
        # What is tried below.
        learner.precision.choice = "float32"

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Make steps, and write the profile, if the budget is enough for it.

        Raises StageFailed: no profile is asked for."""
        learner, task = self._learner, self._task
        # Its whole budget is for the profile.
        loop = profiled_loop(self._tools, self._settings, share=1.0)
        if loop is None:
            raise StageFailed("the budget of the profile is not known: start it with `shoestring profile`")
        rate = learner.kind.settings.learning_rate
        with Loader(task.train, task.first_cursor(), gather=learner.gather, threads=task.cores) as loader:
            while True:
                batch = loop.loaded(partial(loader.next_batch, self._rows)).samples
                loop.begin_step(len(batch))
                if loop.is_done or should_stop():
                    return
                learner.step(batch, rate)
                loop.end_step()

    def _tools(self) -> TorchTools:
        return TorchTools([self._learner.net], [self._learner.optimizer])

    def _settings(self) -> list[Setting]:
        learner, precision = self._learner, self._learner.precision
        found = [
            Setting(
                "batch",
                f"{factor * self._rows:,} rows instead of {self._rows:,}",
                partial(self._set_rows, factor * self._rows),
                partial(self._set_rows, self._rows),
            )
            for factor in BATCH_FACTORS
            if factor * self._rows <= len(self._task.train)
        ]
        if learner.device.has_bf16:
            found.append(
                Setting(
                    "precision",
                    "bf16 instead of float32",
                    partial(setattr, precision, "choice", "bf16"),
                    partial(setattr, precision, "choice", "float32"),
                )
            )
        if any(isinstance(each, nn.Conv2d) for each in learner.net.modules()):
            found.append(
                Setting(
                    "layout",
                    "channels last instead of first",
                    partial(self._set_layout, torch.channels_last),
                    partial(self._set_layout, torch.contiguous_format),
                )
            )
        if not learner.queues_steps:
            found += thread_settings(torch.get_num_threads, torch.set_num_threads, self._cores)
        return found

    def _set_rows(self, rows: int) -> None:
        self._rows = rows

    def _set_layout(self, layout: torch.memory_format) -> None:
        for each in self._learner.net.modules():
            if isinstance(each, nn.Conv2d):
                each.to(memory_format=layout)  # type: ignore[call-overload]
