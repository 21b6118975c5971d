"""The budget of a training that adds trees in rounds, without PyTorch: what its callbacks share."""

from __future__ import annotations

import os
from collections.abc import Callable

from shoestring.training.own_loop.budget import Budget
from shoestring.training.own_loop.checkpoints.checkpoint_folder import delete_old
from shoestring.training.own_loop.pace import CHECKPOINT_COST_SHARE, CHECKPOINT_INTERVAL_SHARE
from shoestring.training.own_loop.termination import within_caller

ADVICE = "name more rounds"


class BoostingSession:
    """A training in rounds. It ends in time, with its model in a checkpoint. A tree has no rate to anneal.

    `ending`: that of the names of its checkpoints. `module`: of the framework's `train`.

    Raises:
        UsageError: the budget has a training.
    """

    def __init__(self, budget: Budget, ending: str, module: str) -> None:
        self.loop, self._ending, self._module = budget.loop, ending, module
        self.loop.belong_to(self, ending)
        self._round_began_s = self._saved_s = self.loop.monotonic_s()
        self._saved_at, self._is_running, self._is_warm = -1, False, False
        left_s = self.loop.source.read(self._saved_s).seconds_left
        self._interval_s = min(self.loop.checkpoint_interval_s, CHECKPOINT_INTERVAL_SHARE * left_s)

    def begin(self) -> None:
        """Begin the training, unless it is running."""
        if not self._is_running:
            self._is_running = True
            self.loop.termination.__enter__()
            # Another callback may end the training, and an error ends it without a callback.
            self.loop.termination.is_within = within_caller(self._module, "train")
            self._round_began_s, self._is_warm = self.loop.monotonic_s(), False

    def after_round(self, rounds: int, loss: float | None, model: Callable[[], bytes]) -> bool:
        """Note a round, and return whether the training ends here.

        `rounds`: of all attempts. `model`: returns the content of a file with the model.
        """
        loop = self.loop
        self._measure(rounds)
        if loss is not None:
            loop.progress.loss = loss
        loop.stop_reason = loop.why_stop(now_s := loop.monotonic_s())
        least_s = loop.reserve.checkpoint_s / CHECKPOINT_COST_SHARE
        if loop.stop_reason or now_s - self._saved_s >= max(self._interval_s, least_s):
            self.save(model)
        loop.write_files(loop.monotonic_s(), at_once=bool(loop.stop_reason))
        self._round_began_s = loop.monotonic_s()
        if loop.stop_reason:
            self._close()
        return bool(loop.stop_reason)

    def finish(self, rounds: int, limit: str, model: Callable[[], bytes]) -> None:
        """Keep the model of a training that something else than its budget has ended. `limit`: what."""
        if self._is_running:
            self.loop.position.batches = self.loop.position.samples = rounds
            self.save(model)
            self.loop.say_unused_budget(limit, self.loop.monotonic_s(), ADVICE)
            self.loop.write_files(self.loop.monotonic_s(), at_once=True)
            self._close()

    def save(self, model: Callable[[], bytes]) -> None:
        """Write a checkpoint, unless there is no round since the last one."""
        loop, began_s = self.loop, self.loop.monotonic_s()
        rounds = loop.position.batches
        if loop.folder is None or rounds == self._saved_at:
            return
        path = loop.folder / f"checkpoint-{rounds:012d}{self._ending}"
        temporary = loop.folder / "checkpoint.new"
        try:
            with temporary.open("wb") as file:
                file.write(model())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            loop.say(f"a checkpoint cannot be written ({error}): the training continues without it")
            temporary.unlink(missing_ok=True)
        delete_old(loop.folder, self._ending)
        self._saved_at, self._saved_s = rounds, loop.monotonic_s()
        loop.reserve.checkpoints_s.append(self._saved_s - began_s)

    def _measure(self, rounds: int) -> None:
        now_s = self.loop.monotonic_s()
        # The first round of an attempt also builds what all others use.
        if self._is_warm:
            self.loop.reserve.steps_s.append(now_s - self._round_began_s)
        self._is_warm = True
        self.loop.position.batches = self.loop.position.samples = rounds

    def _close(self) -> None:
        self._is_running = False
        self.loop.expect_termination(self.loop.stop_reason)
        self.loop.termination.__exit__()
