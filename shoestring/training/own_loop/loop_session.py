"""A model and its optimizer in a loop with a budget: passes over the loader, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, TypeVar

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.checkpoints.saved_state import (
    find_checkpoint,
    read_state,
    state_of_loop,
    write_state,
)
from shoestring.training.own_loop.loading.loader_pass import (
    END,
    LoaderPass,
    batches_per_pass,
    no_batches,
    rows_per_batch,
    rows_per_pass,
)
from shoestring.training.own_loop.loading.loader_workers import separate_workers
from shoestring.training.own_loop.loop_state import LoopState
from shoestring.training.own_loop.pacer import NextStep, Pacer
from shoestring.training.own_loop.rates.rate_hook import RateHook
from shoestring.training.own_loop.trained import Trained, load_all, measure_noise, profiled_training

Batch = TypeVar("Batch")
# A script that counts its own epochs goes through the rest of them without a batch. One that counts steps, in
# `while step < 1000:`, never ends.
MAX_LATE_PASSES = 1_000_000


def batches_in_budget(
    loader: Iterable[Batch], trained: Trained, loop: LoopState, steps: int | None
) -> Iterator[Batch]:
    """Yield the batches of a pass over the loader until the pass, the named steps or the budget ends.

    The first call loads the newest checkpoint into models and optimizers.
    """
    loop.steps = steps
    session = loop.session
    if session is None:
        epochs = loop.epochs * (batches_per_pass(loader) or 1) if loop.epochs else inf
        hooks = trained.rate_hooks(loop.say, steps or epochs, loop.epochs, loop.kept)
        session = loop.session = LoopSession(loop, trained, hooks)
    if not isinstance(session, LoopSession) or not session.trained.is_same(trained):
        raise UsageError(
            "a budget trains the optimizers that it has begun with: make another Budget for another training"
        )
    if loop.stop_reason:
        loop.late_passes += 1
        if loop.late_passes == MAX_LATE_PASSES:
            raise UsageError(
                f"the budget has ended, and {MAX_LATE_PASSES:,} passes without a batch followed: the script "
                "does not end by itself; `for epoch in budget.epochs():` ends with the budget, or ask "
                "budget.should_stop"
            )
        if not loop.has_epochs:
            loop.say(
                f"the budget has ended ({loop.stop_reason}), so a further pass has no batches: with "
                "`for epoch in budget.epochs():` the script's epochs end with it"
            )
        return
    with loop.termination:
        yield from session.batches(loader)
        loop.expect_termination(loop.stop_reason)


class StepNumbers:
    """A loader of the numbers of the steps, without an end. Its position is that of the training."""

    def __init__(self, loop: LoopState) -> None:
        self._loop = loop

    def __iter__(self) -> Iterator[int]:
        while True:
            yield self._loop.position.batches

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Do nothing: the training has restored its position."""


class LoopSession:
    """The training of one model. The first rank decides on pace, checkpoints and stop for all ranks."""

    def __init__(self, loop: LoopState, trained: Trained, hooks: list[RateHook]) -> None:
        self.loop, self.trained = loop, trained
        resume = find_checkpoint(loop)
        self._ranks = resume.ranks
        self._saved_loader: dict[str, Any] | None = None
        separate_workers()
        if resume.state is not None:
            self._load(resume.state)
            resume.state = None
            for hook, optimizer in zip(hooks, trained.optimizers, strict=True):
                hook.reset(optimizer)
        loop.save = self._save_last
        self._pacer = Pacer(loop, resume.ranks, hooks, self._saved_loader is not None)
        self._profiled = None if resume.ranks.rank else profiled_training(trained.models, trained.optimizers)
        measure_noise(loop, trained.optimizers[0])
        self._pass: LoaderPass | None = None

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yield batches of one pass, until `_may_train` refuses the next."""
        loop, at = self.loop, self.loop.position
        found = self._begin_pass(loader)
        is_resumed, has_batches = at.batches_in_pass > 0, at.is_finished or at.batches_in_pass > 0
        rows, pacer = rows_per_batch(loader), self._pacer
        while True:
            if pacer.is_look_due():
                if not self._may_train():
                    break
            else:
                pacer.advance()
            batch = found.next() if self._profiled is None else self._profiled.loaded(found.next)
            if batch is END and not has_batches:
                self._save_last()
                raise UsageError(no_batches(loader))
            if batch is END and is_resumed and not at.is_finished:
                # The earlier attempt ended after the last batch, before it saw that there was no other one.
                found, is_resumed, has_batches = self._begin_pass(loader), False, False
                continue
            is_resumed, has_batches = False, True
            if batch is END:
                # The last batch of a pass may be a smaller one.
                at.samples -= max(0, rows * at.batches_in_pass - rows_per_pass(loader, rows))
                at.is_finished = True
                break
            self._begin_step(rows)
            try:
                yield batch
            except GeneratorExit:  # the script leaves the pass, which counts as its end
                at.is_finished = True
                found.end()
                loop.end_pass(loop.monotonic_s())
                raise
            finally:
                if self._profiled is not None:
                    self._profiled.end_step()
        self._end_pass()
        found.end()

    def _begin_step(self, rows: int) -> None:
        at = self.loop.position
        at.batches += 1
        at.batches_in_pass += 1
        at.samples += rows
        if self._profiled is not None:
            self._profiled.begin_step(rows)
            self._profiled = self._profiled.until_done
        self.loop.batch_began_s = self.loop.monotonic_s()

    def save(self) -> None:
        """Write a checkpoint, on all ranks together, unless nothing was trained since the last one."""
        loop = self.loop
        is_new = loop.position.batches != self._pacer.saved_at
        if loop.folder is None or self._pass is None or not is_new:
            return
        began_s = loop.monotonic_s()
        loaders = self._ranks.gathered(self._pass.state())
        if self._ranks.rank == 0:
            self._write(loaders)
        self._pacer.note_saved(loop.monotonic_s() - began_s)

    def _save_last(self) -> None:
        if self._ranks.agree(self._pacer.saves_work):
            self.save()

    def _begin_pass(self, loader: Any) -> LoaderPass:
        loop, at = self.loop, self.loop.position
        # A script with epochs of its own reports none.
        loop.note_validation(loop.monotonic_s())
        loop.end_validation()
        saved, self._saved_loader = self._saved_loader, None
        if saved is not None and loop.skips_finished_pass:
            # Restores the random states of its end.
            LoaderPass(loader, loop.say, saved, was_finished=True)
            saved = None
        if saved is None:
            at.batches_in_pass, at.is_finished = 0, False
        found = LoaderPass(loader, loop.say, saved, at.batches_in_pass, at.is_finished)
        self._pass = found
        self._pacer.begin_pass(batches_per_pass(loader))
        return found

    def _end_pass(self) -> None:
        loop = self.loop
        now_s = loop.monotonic_s()
        if loop.steps is not None and loop.position.batches >= loop.steps:
            loop.say_unused_budget(f"the {loop.steps} steps", now_s)
        # A validation may take long, and the script may be killed in it.
        is_cheap = self._pacer.is_save_cheap(now_s)
        if self._ranks.agree(self._pacer.saves_work and (bool(loop.stop_reason) or is_cheap)):
            self.save()
        if loop.stop_reason:
            loop.say_end_rate(loop.stop_reason)
        loop.end_pass(loop.monotonic_s())

    def _may_train(self) -> bool:
        """Look at the budget. Return False where the batches end here, on all ranks."""
        at, length = self.loop.position, self._pacer.pass_length
        # A pass whose last batch was trained is not resumed.
        if length is not None and at.batches_in_pass >= length:
            at.is_finished = True
        left = None if length is None else max(0, length - at.batches_in_pass)
        action = self._pacer.look(left)
        if action == NextStep.SAVE:
            self.save()
        return action != NextStep.STOP

    def _write(self, loaders: list[Any]) -> None:
        loop = self.loop
        assert loop.folder is not None
        state = {**self.trained.state(), "kept": [each.state_dict() for each in loop.kept]}
        is_first = self._pacer.saved_at < 0
        try:
            path = write_state(
                loop.folder, loop.position.batches, {**state, **state_of_loop(loop), "loaders": loaders}
            )
        except OSError as error:
            loop.say(f"a checkpoint cannot be written ({error}): the training continues without it")
            return
        if is_first and read_state(path) is None:
            path.unlink()
            self._pacer.saves_work = False
            loop.say(
                "the state of a model, of an optimizer or of what budget.keep names holds objects that a "
                "checkpoint cannot: none is written"
            )

    def _load(self, state: dict[str, Any]) -> None:
        try:
            self.trained.load(state, f"in {self.loop.folder}")
            # One of an earlier version has none.
            load_all(self.loop.kept, state.get("kept", []), "kept")
        except (RuntimeError, ValueError, KeyError) as error:
            raise UsageError(
                f"the checkpoint in {self.loop.folder} is of another model or optimizer, or keeps other "
                f"objects: name another folder, or delete it ({error})"
            ) from None
        loaders = state["loaders"]
        # With another number of ranks, a rank continues as the first one did.
        rank = self._ranks.rank if len(loaders) == self._ranks.world_size else 0
        self._saved_loader = loaders[rank]
