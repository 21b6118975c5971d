"""The budget of a training script: what its loop asks, without PyTorch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

from shoestring.core.errors import DataError, UsageError
from shoestring.spending.budget_file import BUDGET_VARIABLE, CHECKPOINTS_VARIABLE, PROGRESS_VARIABLE
from shoestring.training.own_loop.checkpoints.checkpoint_folder import newest_whole
from shoestring.training.own_loop.files import LoopProgressFile
from shoestring.training.own_loop.loop_state import LoopState
from shoestring.training.own_loop.pace import BudgetReading
from shoestring.training.own_loop.reader_mark import leave_mark
from shoestring.training.own_loop.sources import (
    BudgetSource,
    MeteredBudget,
    PhaseBudget,
    TimeBudget,
    named_seconds,
)

if TYPE_CHECKING:
    from shoestring.training.curve import NoiseScale


class Budget:
    """A budget of seconds, or of dollars at the price of this machine. It runs from here on.

    `checkpoints`: a folder for checkpoints, where `$SHOESTRING_CHECKPOINTS` names none. Attempts with the
    same folder share one budget. `monotonic_s`: the clock.
    """

    def __init__(
        self,
        *,
        seconds: float | None = None,
        usd: str | int | Decimal | None = None,
        usd_per_hour: str | int | Decimal | None = None,
        checkpoints: str | Path | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        total_s = named_seconds(seconds, usd, usd_per_hour)
        folder = checkpoint_folder(checkpoints)
        source = TimeBudget(total_s, monotonic_s(), folder)
        self.loop = new_loop(source, folder, monotonic_s)

    @classmethod
    def here(
        cls,
        *,
        seconds: float | None = None,
        usd: str | int | Decimal | None = None,
        usd_per_hour: str | int | Decimal | None = None,
        checkpoints: str | Path | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Return the budget that `shoestring exec` gave this command, else the one that is named here.

        Raises:
            UsageError: there is neither, or the file of the budget cannot be read.
        """
        if not (path := os.environ.get(BUDGET_VARIABLE)):
            if seconds is None and usd is None:
                raise UsageError(
                    f"${BUDGET_VARIABLE} is not set, so no budget applies here: start the script with "
                    "`shoestring exec --budget 0.50 -- python ...`, or name a budget: "
                    'Budget(seconds=600), or Budget(usd="0.50", usd_per_hour="0.08")'
                )
            return cls(
                seconds=seconds,
                usd=usd,
                usd_per_hour=usd_per_hour,
                checkpoints=checkpoints,
                monotonic_s=monotonic_s,
            )
        budget = cls.__new__(cls)
        try:
            source = MeteredBudget(Path(path), monotonic_s())
        except DataError as error:
            raise UsageError(f"${BUDGET_VARIABLE}: {error}") from None
        budget.loop = new_loop(source, checkpoint_folder(checkpoints), monotonic_s)
        leave_mark(Path(path))
        return budget

    @property
    def share_gone(self) -> float:
        """The share of the budget that is gone, over all attempts, in [0, 1]."""
        return self._reading().share_gone

    @property
    def seconds_left(self) -> float:
        """The seconds until the budget ends, at the current price."""
        return self._reading().seconds_left

    @property
    def should_stop(self) -> bool:
        """True where only the time of a clean end is left, or a stop was requested."""
        reason = self.loop.stop_reason or self.loop.why_stop(self.loop.monotonic_s())
        # A loop that has asked ends now, and writes its results.
        self.loop.expect_termination(reason)
        return bool(reason)

    @property
    def noise_scale(self) -> NoiseScale | None:
        """The noise scale of the gradient in rows, with its interval of 95%; None: too few steps so far, or a
        loop whose gradient is not measured. A batch as large as this learns half from each row of what it
        learns from one in a small batch."""
        return None if self.loop.noise is None else self.loop.noise.scale

    @property
    def checkpoint(self) -> Path | None:
        """The newest whole checkpoint, or None: what a Trainer of Hugging Face or Lightning resumes from."""
        loop = self.loop
        if loop.folder is not None:
            loop.resumes_from = newest_whole(loop.folder, loop.checkpoint_ending)
        return loop.resumes_from

    @property
    def checkpoints(self) -> Path | None:
        """The folder of the checkpoints, or None."""
        return self.loop.folder

    def phase(self, until: float) -> Budget:
        """Return the part of this budget until a share of it is gone, with a schedule of its own.

        What is left is for another phase, or for this budget itself. `until`: that share, in (0, 1). Its
        checkpoints have a folder of their own in that of this budget.

        Raises:
            UsageError: the share is none.
        """
        if not 0 < until < 1:
            raise UsageError(f"a phase ends at a share of its budget, like 0.7, and not at {until}")
        whole, part = self.loop, Budget.__new__(Budget)
        folder = None if whole.folder is None else checkpoint_folder_in(whole.folder / f"phase-{until:g}")
        part.loop = new_loop(PhaseBudget(whole.source, until), folder, whole.monotonic_s)
        part.loop.parts = whole.parts
        whole.parts.append(part.loop)
        return part

    def keep(self, *objects: object) -> None:
        """Keep the state of more objects in the checkpoints: schedulers, a gradient scaler, averaged weights.

        Each has `state_dict` and `load_state_dict`. Call it before the first batch, and with the same objects
        after a restart.

        Raises:
            UsageError: an object has no state, or the training has begun.
        """
        if self.loop.session is not None:
            raise UsageError("budget.keep(...) comes before the first batch, which loads the checkpoint")
        for each in objects:
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise UsageError(f"a {type(each).__name__} has no state_dict, so budget.keep cannot keep it")
            self.loop.kept.append(each)

    def epochs(self, n: int | None = None) -> Iterator[int]:
        """Yield the number of each epoch until the budget ends, or until `n` epochs are done.

        A training that is resumed starts with the epoch of its checkpoint, or with the next one if that
        epoch's batches had ended. At least one epoch is yielded, so
        that `budgeted` loads the checkpoint also when the budget has ended.
        """
        loop = self.loop
        loop.epochs, loop.has_epochs = n, True
        if loop.folder is not None:
            # Here the script has imported PyTorch; `import shoestring.budget` does not.
            from shoestring.training.own_loop.checkpoints.saved_state import find_checkpoint

            find_checkpoint(loop)
            at = loop.position
            if at.is_finished and (n is None or at.epoch + 1 < n):
                at.epoch += 1
                loop.skips_finished_pass = True
        with loop.termination:
            while True:
                try:
                    yield loop.position.epoch
                except GeneratorExit:
                    loop.say_end_rate("the script has left its epochs")
                    raise
                loop.note_validation(loop.monotonic_s())
                loop.end_validation()
                if self._is_over():
                    break
                if n is not None and loop.position.epoch + 1 >= n:
                    loop.say_unused_budget(f"the {n} epochs", loop.monotonic_s())
                    break
                loop.position.epoch += 1
            self._close()
            loop.say_end_rate(loop.stop_reason or f"its {n} epochs are done")
            loop.expect_termination(loop.stop_reason)

    def steps(self, model: Any, optimizer: Any, n: int | None = None) -> Iterator[int]:
        """Yield the number of each step until the budget ends, or until `n` steps are done.

        For a loop that draws its batches itself: a step is what a batch is to `budgeted`. `model`,
        `optimizer`: PyTorch's, one each or lists of several.

        Raises:
            UsageError: a model or an optimizer is none of PyTorch's.
        """
        from shoestring.training.own_loop.loop_session import StepNumbers, batches_in_budget
        from shoestring.training.own_loop.trained import Trained

        return batches_in_budget(StepNumbers(self.loop), Trained(model, optimizer), self.loop, n)

    def report(self, *, loss: SupportsFloat | None = None, **metrics: object) -> None:
        """Report a validation's loss. Other metrics are accepted, and not written.

        If no loss is a new best over a fifth of the training, the learning rate begins to decay.

        The time since the last batch counts as the time of a validation, which is reserved for the last one;
        between two batches of a pass, only what is beyond a usual step.
        """
        now_s = self.loop.monotonic_s()
        if loss is not None:
            # PyTorch warns where a loss that still has its gradient becomes a number.
            self.loop.progress.loss = number = float(getattr(loss, "detach", lambda: loss)())
            self.loop.note_loss(number)
        self.loop.note_validation(now_s)
        self.loop.write_files(now_s, at_once=True)

    def _reading(self) -> BudgetReading:
        found = self.loop.source.read(self.loop.monotonic_s())
        if found.should_stop:
            # Who has seen the end writes its results now.
            self.loop.expect_termination(found.stop_reason)
        elif self.loop.source.has_meter:
            self.loop.termination.ignore_after(lambda: self._reading().should_stop)
        return found

    def _is_over(self) -> bool:
        """Return whether no epoch begins any more, the same on all ranks."""
        loop = self.loop
        if not loop.stop_reason and loop.agree(bool(reason := loop.why_stop(loop.monotonic_s()))):
            loop.stop_reason = reason or "the first rank stops"
        return bool(loop.stop_reason)

    def _close(self) -> None:
        """Save what was trained since the last checkpoint, and report the end."""
        if self.loop.save is not None:
            self.loop.save()
        self.loop.write_files(self.loop.monotonic_s(), at_once=True)


def new_loop(source: BudgetSource, folder: Path | None, monotonic_s: Callable[[], float]) -> LoopState:
    progress = os.environ.get(PROGRESS_VARIABLE)
    loop = LoopState(source, folder, LoopProgressFile(Path(progress) if progress else None), monotonic_s)
    loop.parts.append(loop)
    return loop


def checkpoint_folder(named: str | Path | None) -> Path | None:
    """Return the folder of the checkpoints, which exists then. Raises UsageError."""
    if not (found := os.environ.get(CHECKPOINTS_VARIABLE) or named):
        return None
    return checkpoint_folder_in(Path(found))


def checkpoint_folder_in(folder: Path) -> Path:
    """Make a folder for checkpoints, if it is not there. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the checkpoints' folder {folder}: {error.strerror or error}") from None
    return folder
