"""The state of a training in the loop of a script: its position, its budget, and what it measured."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.files import LoopProgressFile
from shoestring.training.own_loop.pace import ExitReserve, Ramp, last_batch_in_s, ramp_to_stop
from shoestring.training.own_loop.rates.decay import DecayStart
from shoestring.training.own_loop.rates.end_rate import EndRate
from shoestring.training.own_loop.sources import PHASE_DONE, BudgetSource
from shoestring.training.own_loop.termination import Termination

# Progress and spent time are written at most this often.
FILE_INTERVAL_S = 1.0
# A checkpoint is written this often, where it costs little.
CHECKPOINT_INTERVAL_S = 60.0
# A script that ends with more of its budget left than this share is told so.
UNUSED_SHARE = 0.05
# Time between two reports counts as a validation from this share of the longest one measured on.
LEAST_VALIDATION_SHARE = 0.25
SIGTERM, STEPS_DONE = "SIGTERM", "the named steps are done"
"""Why a training ends whose budget has not."""


@dataclass(slots=True)
class LoopPosition:
    """The position of a training, over all attempts.

    `batches_in_pass`: those of the loader's current pass, which is that of `epoch`. `is_finished`: that pass
    has ended.
    """

    epoch: int = 0
    batches: int = 0
    samples: int = 0
    batches_in_pass: int = 0
    is_finished: bool = False


@dataclass(slots=True)
class LoopState:
    """The state that `Budget` and `budgeted` share. `world_size`: the ranks that train together.

    `share`: that of the training that is done at the newest step. `began_share`: the share of the budget that
    was gone at the first batch of all, for which the schedule has no use; None: there was none yet.
    `skips_finished_pass`: the checkpoint is that of the end of a pass, and the script is in the next one.
    `stop_reason` is set when the batches have ended for good. `save` writes a checkpoint, once there is one
    to write. `agree` returns the first rank's answer on all ranks. `resume`, `session` and `noise` hold what
    needs PyTorch: the state of an earlier attempt, model and optimizer, and the noise of the gradient.
    `kept`: what else has a state in the checkpoints. `parts`: the trainings of one budget, which are its
    phases and this one. `checkpoint_ending`: that of the names of the checkpoints of the framework in use;
    None: not known. `resumes_from`: the checkpoint that the script has asked for. `end_rate`: the rate of the
    last step; None: no optimizer is known yet. `has_epochs`: the script's epochs are those of
    `Budget.epochs`. `late_passes`: those that began after the training had ended. `skip` leaves seconds out
    of the measured steps. `pass_began_s`, `batch_began_s`, `pass_ended_s`: when the pass and its newest batch
    began, and when the pass ended; None: no pass has, or none is running.
    """

    source: BudgetSource
    folder: Path | None
    progress: LoopProgressFile
    monotonic_s: Callable[[], float]
    reserve: ExitReserve = field(default_factory=ExitReserve)
    termination: Termination = field(default_factory=Termination)
    position: LoopPosition = field(default_factory=LoopPosition)
    decay_start: DecayStart = field(default_factory=DecayStart)
    share: float = 0.0
    steps: int | None = None
    epochs: int | None = None
    rank: int = 0
    world_size: int = 1
    stop_reason: str = ""
    began_share: float | None = None
    skips_finished_pass: bool = False
    save: Callable[[], None] | None = None
    resume: Any = None
    session: Any = None
    noise: Any = None
    kept: list[Any] = field(default_factory=list)
    parts: list[LoopState] = field(default_factory=list)
    end_rate: EndRate | None = None
    has_epochs: bool = False
    late_passes: int = 0
    checkpoint_ending: str | None = None
    resumes_from: Path | None = None
    agree: Callable[[bool], bool] = bool
    skip: Callable[[float], None] = lambda seconds: None
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S
    pass_began_s: float | None = None
    batch_began_s: float | None = None
    pass_ended_s: float | None = None
    _validation_s: float | None = None
    _written_s: float = float("-inf")
    _said: set[str] = field(default_factory=set)

    def belong_to(self, session: object, ending: str) -> None:
        """Note the training of a framework. `ending`: that of the names of its checkpoints.

        Raises:
            UsageError: there is another one, or objects to keep, which a framework's checkpoints cannot hold.
        """
        if self.session is not None:
            raise UsageError("a budget belongs to one training: make another Budget for another one")
        if self.kept:
            raise UsageError(
                "budget.keep(...) is for budgeted() and budget.steps(): a callback's training keeps what its "
                "framework saves, which has the schedulers and scalers that it knows"
            )
        self.session, self.checkpoint_ending = session, ending

    def say(self, message: str) -> None:
        """Warn once."""
        if self.rank == 0 and message not in self._said:
            self._said.add(message)
            warnings.warn(message, stacklevel=3)

    def ramp(self, now_s: float, batches_left: int | None = None) -> Ramp:
        """Return the share of the training that is done, and when its batches end.

        `batches_left`: those of the current pass, where its length is known.
        """
        reading = self.source.read(now_s)
        began = self.began_share or 0.0
        reading = reading._replace(share_gone=max(0.0, reading.share_gone - began) / (1 - began))
        pass_s = 0.0 if self.pass_began_s is None else now_s - self.pass_began_s
        stop_in_s = reading.seconds_left - self.reserve.seconds(pass_s)
        if batches_left is not None and self.reserve.validations_s:
            validation_s = self.reserve.validation_s(pass_s)
            stop_in_s = last_batch_in_s(stop_in_s, batches_left * self.reserve.step_s, validation_s)
        return ramp_to_stop(reading, stop_in_s)

    def steps_share(self, batches_per_pass: int | None) -> float:
        """Return the share of the named steps or epochs that is done, in the middle of the next step."""
        at = self.position
        share = (at.batches + 0.5) / self.steps if self.steps else 0.0
        if self.epochs:
            of_pass = (at.batches_in_pass + 0.5) / batches_per_pass if batches_per_pass else 0.0
            share = max(share, (at.epoch + min(1.0, of_pass)) / self.epochs)
        return min(1.0, share)

    def why_stop(self, now_s: float) -> str:
        """Return why no further batch is to be trained, by the budget; empty: there is time for one."""
        if any(each.termination.requested for each in self.parts):
            return SIGTERM
        if self.steps is not None and self.position.batches >= self.steps:
            return STEPS_DONE
        reading = self.source.read(now_s)
        is_over = reading.should_stop or self.ramp(now_s).stop_in_s <= 0
        return reading.stop_reason or "the budget ends" if is_over else ""

    def expect_termination(self, reason: str) -> None:
        """Expect SIGTERM after a training that a meter has ended. `reason`: why it ends."""
        self.termination.is_awaited = self.source.has_meter and reason not in ("", STEPS_DONE, PHASE_DONE)
        if self.termination.is_awaited:
            self.source.note_end()
            self.termination.ignore_if_awaited()

    def note_loss(self, loss: float) -> None:
        """Note a loss of the training, which may begin the decay. The first rank's count."""
        if self.began_share is not None:
            self.decay_start.note_loss(self.share, loss)

    def begin_pass(self, now_s: float) -> None:
        self.pass_began_s, self.batch_began_s = now_s, None

    def end_pass(self, now_s: float) -> None:
        self.pass_ended_s, self._validation_s, self.batch_began_s = now_s, None, None

    def note_validation(self, now_s: float) -> None:
        """Measure the time since the last batch: a validation, and what else the script does there."""
        if self.pass_ended_s is not None:
            self._validation_s = now_s - self.pass_ended_s
        elif self.batch_began_s is not None and self.reserve.steps_s:
            self._note_validation_in_pass(now_s, now_s - self.batch_began_s - self.reserve.step_s)

    def _note_validation_in_pass(self, now_s: float, seconds: float) -> None:
        """Measure a validation between two batches. `seconds`: beyond a usual step.

        A script may report each step, so that most reports follow none.
        """
        longest_s = max(self.reserve.validations_s, default=0.0)
        if seconds > max(self.reserve.step_s, LEAST_VALIDATION_SHARE * longest_s):
            self.reserve.validations_s.append(seconds)
            self.pass_began_s = self.batch_began_s = now_s
            self.skip(seconds)

    def end_validation(self) -> None:
        if self._validation_s is not None:
            self.reserve.validations_s.append(self._validation_s)
        self.pass_ended_s = self._validation_s = None

    def write_files(self, now_s: float, *, at_once: bool = False) -> None:
        """Write progress and spent time, where the last time is long enough ago."""
        if self.rank or (now_s - self._written_s < FILE_INTERVAL_S and not at_once):
            return
        self._written_s = now_s
        samples = sum(each.position.samples for each in self.parts)
        self.progress.write(samples * self.world_size, self._total_samples())
        self.source.write_spent(now_s)

    def _total_samples(self) -> int | None:
        """Return the samples of the named steps, or None where no number of steps is named for all parts."""
        if not self.steps or not self.position.batches or len(self.parts) > 1:
            return None
        return round(self.position.samples / self.position.batches * self.steps) * self.world_size

    def say_end_rate(self, reason: str) -> None:
        """Warn where the training ends at a rate that has not decayed. `reason`: why it ends."""
        if self.end_rate is not None and (message := self.end_rate.message(reason)):
            self.say(message)

    def say_unused_budget(self, what: str, now_s: float, advice: str = "name more, or none,") -> None:
        """Warn that a script ends before its budget does. `what`: what has ended it."""
        left = 1 - self.source.read(now_s).share_gone
        if left > UNUSED_SHARE and not self.termination.requested:
            self.say(
                f"{what} ended with {left:.0%} of the budget left: {advice} to train until the budget ends"
            )
