"""A model and its optimizer in a loop with a budget: the pace of the steps, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.budget import Budget
from shoestring.training.own_loop.loader_pass import (
    END,
    LoaderPass,
    batches_per_pass,
    rows_per_batch,
    rows_per_pass,
)
from shoestring.training.own_loop.loop_state import LoopState
from shoestring.training.own_loop.rate_hook import RateHook
from shoestring.training.own_loop.saved_state import find_checkpoint, read_state, state_of_loop, write_state

# Between two looks at the clock of the budget, at most this many seconds and steps pass.
LOOK_INTERVAL_S, MAX_STEPS_BETWEEN_LOOKS = 0.2, 1000
# In a short budget, a checkpoint is written after this share of the seconds left ...
CHECKPOINT_INTERVAL_SHARE = 0.05
# ... but checkpoints take at most this share of the time.
CHECKPOINT_COST_SHARE = 0.05
# The schedule begins at the first batch, unless more of the budget was gone by then.
LATEST_SHARE = 0.9


Batch = TypeVar("Batch")


def batches_in_budget(
    loader: Iterable[Batch], model: nn.Module, optimizer: Optimizer, budget: Budget, steps: int | None
) -> Iterator[Batch]:
    """Yield the batches of a pass over the loader until the pass, the named steps or the budget ends.

    The first call loads the newest checkpoint into model and optimizer.
    """
    loop = budget.loop
    loop.steps = steps
    session = loop.session
    if session is None:
        session = loop.session = LoopSession(loop, model, optimizer)
    if not isinstance(session, LoopSession) or session.optimizer is not optimizer:
        raise UsageError("a budget trains one model with one optimizer: make another Budget for another one")
    with loop.termination:
        yield from session.batches(loader)


class NextStep(IntEnum):
    TRAIN, SAVE, STOP = 0, 1, 2


class LoopSession:
    """The training of one model. The first rank decides on pace, checkpoints and stop for all ranks."""

    def __init__(self, loop: LoopState, model: nn.Module, optimizer: Optimizer) -> None:
        self.loop, self.model, self.optimizer = loop, model, optimizer
        resume = find_checkpoint(loop)
        self._ranks = resume.ranks
        self._hook = RateHook(optimizer, loop.say)
        self._saved_loader: dict[str, Any] | None = None
        if resume.state is not None:
            self._load(resume.state)
            resume.state = None
        loop.save = self._save_last
        self._saved_at = loop.position.batches if self._saved_loader else -1
        self._saved_s = self._looked_s = loop.monotonic_s()
        self._looked_at = self._next_look = loop.position.batches
        self._share_per_step, self._is_first, self._is_warm = 0.0, True, False
        self._pass: LoaderPass | None = None
        self._pass_length: int | None = None
        left_s = loop.source.read(self._saved_s).seconds_left
        self._interval_s = min(loop.checkpoint_interval_s, CHECKPOINT_INTERVAL_SHARE * left_s)
        self._saves_work = loop.folder is not None
        if loop.folder is None:
            loop.say(
                "no folder for checkpoints is named, so none is written: Budget(..., checkpoints=PATH) names "
                "one"
            )

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yield batches of one pass, until `_may_train` refuses the next."""
        loop, at = self.loop, self.loop.position
        found = self._begin_pass(loader)
        is_resumed = at.batches_in_pass > 0
        rows, clock_s = rows_per_batch(loader), loop.monotonic_s
        is_alone, hook = self._ranks.world_size == 1, self._hook
        while True:
            if at.batches >= self._next_look or (is_alone and clock_s() >= self._looked_s + LOOK_INTERVAL_S):
                if not self._may_train():
                    break
            else:
                hook.share = min(1.0, hook.share + self._share_per_step)
            batch = found.next()
            if batch is END and is_resumed and not at.is_finished:
                # The earlier attempt ended after the last batch, before it saw that there was no other one.
                found, is_resumed = self._begin_pass(loader), False
                continue
            is_resumed = False
            if batch is END:
                # The last batch of a pass may be a smaller one.
                at.samples -= max(0, rows * at.batches_in_pass - rows_per_pass(loader, rows))
                at.is_finished = True
                break
            at.batches += 1
            at.batches_in_pass += 1
            at.samples += rows
            try:
                yield batch
            except GeneratorExit:  # the script leaves the pass, which counts as its end
                at.is_finished = True
                loop.end_pass(clock_s())
                raise
        self._end_pass()

    def save(self) -> None:
        """Write a checkpoint, on all ranks together, unless nothing was trained since the last one."""
        loop = self.loop
        is_new = loop.position.batches != self._saved_at
        if loop.folder is None or self._pass is None or not is_new:
            return
        began_s = loop.monotonic_s()
        loaders = self._ranks.gathered(self._pass.state())
        if self._ranks.rank == 0:
            self._write(loaders)
        self._saved_at, self._saved_s = loop.position.batches, loop.monotonic_s()
        loop.reserve.checkpoints_s.append(self._saved_s - began_s)

    def _save_last(self) -> None:
        if self._ranks.agree(self._saves_work):
            self.save()

    @property
    def _least_interval_s(self) -> float:
        """The seconds between two checkpoints that keep their cost low."""
        return self.loop.reserve.checkpoint_s / CHECKPOINT_COST_SHARE

    def _begin_pass(self, loader: Any) -> LoaderPass:
        loop, at = self.loop, self.loop.position
        loop.end_validation()
        saved, self._saved_loader = self._saved_loader, None
        if saved is not None and loop.skips_finished_pass:
            # Restores the random states of its end.
            LoaderPass(loader, loop.say, saved, was_finished=True)
            saved = None
        if saved is None:
            at.batches_in_pass, at.is_finished = 0, False
        found = LoaderPass(loader, loop.say, saved, at.batches_in_pass, at.is_finished)
        self._pass, self._pass_length = found, batches_per_pass(loader)
        # What happens between two passes is no step.
        loop.pass_began_s = self._looked_s = loop.monotonic_s()
        self._looked_at = self._next_look = at.batches
        return found

    def _end_pass(self) -> None:
        loop = self.loop
        now_s = loop.monotonic_s()
        if loop.steps is not None and loop.position.batches >= loop.steps:
            loop.say_unused_budget(f"the {loop.steps} steps", now_s)
        # A validation may take long, and the script may be killed in it.
        is_cheap = now_s - self._saved_s > self._least_interval_s
        if self._ranks.agree(self._saves_work and (bool(loop.stop_reason) or is_cheap)):
            self.save()
        loop.end_pass(loop.monotonic_s())

    def _may_train(self) -> bool:
        """Look at the budget. Return False where the batches end here, on all ranks."""
        at = self.loop.position
        # A pass whose last batch was trained is not resumed.
        if self._pass_length is not None and at.batches_in_pass >= self._pass_length:
            at.is_finished = True
        share, per_step, action, steps = self._ranks.from_first(self._decision())
        self._hook.share, self._share_per_step = max(share, self._hook.share), per_step
        self._next_look = at.batches + int(steps)
        if action == NextStep.SAVE:
            self.save()
            self._looked_s = self.loop.monotonic_s()
        if action == NextStep.STOP:
            self.loop.stop_reason = self.loop.stop_reason or "the first rank stops"
        return action != NextStep.STOP

    def _decision(self) -> tuple[float, ...]:
        """Return share, share of each step, what to do, and the steps until the next look."""
        loop, at = self.loop, self.loop.position
        if self._ranks.rank:
            return (0.0, 0.0, NextStep.TRAIN, 1)
        now_s = loop.monotonic_s()
        if loop.began_share is None:
            loop.began_share = min(LATEST_SHARE, loop.source.read(now_s).share_gone)
        if (steps := at.batches - self._looked_at) > 0:
            # The first step of an attempt also loads libraries and compiles, and is none to expect again.
            if self._is_warm:
                loop.reserve.steps_s.append((now_s - self._looked_s) / steps)
            self._is_warm = True
        self._looked_at, self._looked_s = at.batches, now_s
        length = self._pass_length
        ramp = loop.ramp(now_s, None if length is None else max(0, length - at.batches_in_pass))
        share = max(ramp.share, loop.steps_share(length))
        loop.write_files(now_s)
        is_first, self._is_first = self._is_first, False
        if reason := loop.why_stop(now_s):
            loop.stop_reason = reason
            if is_first:
                loop.say(
                    f"no batch is trained ({reason}): name a larger budget to continue, or another folder "
                    "for checkpoints to start over"
                )
            return (1.0, 0.0, NextStep.STOP, 1)
        interval_s = max(self._interval_s, self._least_interval_s)
        is_due = self._saves_work and now_s - self._saved_s >= interval_s
        action = NextStep.SAVE if is_due else NextStep.TRAIN
        return (share, self._per_step(ramp.per_s), action, self._steps_to_look(ramp.stop_in_s))

    def _per_step(self, share_per_s: float) -> float:
        loop = self.loop
        of_steps = 1 / loop.steps if loop.steps else 0.0
        if loop.epochs and self._pass_length:
            of_steps = max(of_steps, 1 / (loop.epochs * self._pass_length))
        return max(of_steps, share_per_s * loop.reserve.step_s)

    def _steps_to_look(self, stop_in_s: float) -> int:
        loop = self.loop
        step_s = loop.reserve.step_s
        if not step_s:
            return 1
        # Towards the stop, a look halves the way, so that steps that become slower do not run past it.
        steps = min(MAX_STEPS_BETWEEN_LOOKS, LOOK_INTERVAL_S / step_s, stop_in_s / step_s / 2)
        if loop.steps is not None:
            steps = min(steps, loop.steps - loop.position.batches)
        return max(1, int(steps))

    def _write(self, loaders: list[Any]) -> None:
        loop = self.loop
        assert loop.folder is not None
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        is_first = self._saved_at < 0
        try:
            path = write_state(
                loop.folder, loop.position.batches, {**state, **state_of_loop(loop), "loaders": loaders}
            )
        except OSError as error:
            loop.say(f"a checkpoint cannot be written ({error}): the training continues without it")
            return
        if is_first and read_state(path) is None:
            path.unlink()
            self._saves_work = False
            loop.say(
                "the state of this model or optimizer holds objects that a checkpoint cannot: none is written"
            )

    def _load(self, state: dict[str, Any]) -> None:
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise UsageError(
                f"the checkpoint in {self.loop.folder} is of another model or optimizer: name another "
                f"folder, or delete it ({error})"
            ) from None
        loaders = state["loaders"]
        # With another number of ranks, a rank continues as the first one did.
        rank = self._ranks.rank if len(loaders) == self._ranks.world_size else 0
        self._saved_loader = loaders[rank]
