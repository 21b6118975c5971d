"""A training in the loop of a framework: what the callbacks of all frameworks share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.budget import Budget
from shoestring.training.own_loop.checkpoints.saved_state import ranks_of, restore_loop, state_of_loop
from shoestring.training.own_loop.loading.loader_workers import separate_workers
from shoestring.training.own_loop.pacer import NextStep, Pacer
from shoestring.training.own_loop.rates.rate_hook import RateHook
from shoestring.training.own_loop.trained import check_optimizers, measure_noise, profiled_training
from shoestring.training.profiling.profiled_loop import ProfiledLoop


class FrameworkSession:
    """The budget of a training whose loop belongs to a framework.

    Its clock has marks: the end of a step, of a validation, of a checkpoint. `ending`: that of the names of
    its checkpoints.
    """

    def __init__(self, budget: Budget, ending: str) -> None:
        self.loop = budget.loop
        self.loop.belong_to(self, ending)
        separate_workers()
        self.pacer: Pacer | None = None
        self._fingerprint, self._optimizer_classes = "", list[str]()
        self._marked_s = self.loop.monotonic_s()
        self._model: nn.Module | None = None
        self._profiled: ProfiledLoop | None = None

    @property
    def is_running(self) -> bool:
        return self.pacer is not None

    def begin(self, model: nn.Module, hooks: list[RateHook], saved: Mapping[str, Any] | None) -> None:
        """Begin or continue the training. `saved`: the facts of its checkpoint.

        Raises:
            UsageError: the budget has trained another model, or the checkpoint is of another optimizer.
        """
        if self._model is not None and self._model is not model:
            raise UsageError("a budget belongs to one training: make another Budget for another one")
        classes = [hook.optimizer_class for hook in hooks]
        if saved:
            check_optimizers(saved.get("optimizer_classes"), classes, str(self.loop.resumes_from))
        self._model, self._fingerprint, self._optimizer_classes = model, fingerprint(model), classes
        self.close()
        loop = self.loop
        ranks = ranks_of(loop)
        if saved:
            restore_loop(loop, saved)
        self.pacer = Pacer(loop, ranks, hooks, bool(saved))
        self.pacer.begin_pass(None)
        measure_noise(loop, hooks[0].optimizer)
        if not ranks.rank:
            self._profiled = profiled_training([model], [hook.optimizer for hook in hooks])
        self._marked_s = loop.monotonic_s()
        loop.termination.__enter__()

    def facts(self) -> dict[str, Any]:
        """Return what a later attempt needs, as plain values."""
        of_others = {"model": self._fingerprint, "optimizer_classes": self._optimizer_classes}
        return {**state_of_loop(self.loop), **of_others}

    def check_model(self, model: nn.Module, saved: Mapping[str, Any], where: object) -> None:
        """Raise UsageError where a checkpoint is of another model."""
        if saved.get("model") not in (None, fingerprint(model)):
            raise UsageError(
                f"the checkpoint {where} is of another model: name another folder for checkpoints, or "
                "delete it"
            )

    def begin_step(self, rows: int) -> None:
        """Begin a step for the profile. Its rows were loaded since the last mark."""
        if self._profiled is not None:
            self._profiled.begin_step(rows, self.loop.monotonic_s() - self._marked_s)
            self._profiled = self._profiled.until_done

    def end_step(self) -> None:
        """End a step for the profile."""
        if self._profiled is not None:
            self._profiled.end_step()
            self.mark()

    def after_step(self, batches: int, samples: int, batches_left: int | None, validates: bool) -> NextStep:
        """Note a step, and return what follows. `validates`: the training has validations."""
        assert self.pacer is not None
        loop = self.loop
        loop.position.batches, loop.position.samples = batches, loop.position.samples + samples
        if not self.pacer.is_look_due():
            self.pacer.advance()
            return NextStep.TRAIN
        return self.look(batches_left, validates)

    def look(self, batches_left: int | None, validates: bool) -> NextStep:
        """Look at the budget, and return what follows."""
        assert self.pacer is not None
        if not validates:
            # No validation is reserved for.
            self.loop.pass_began_s = self.loop.monotonic_s()
        return self.pacer.look(batches_left)

    def mark(self) -> None:
        """Begin to measure a validation or a checkpoint."""
        self._marked_s = self.loop.monotonic_s()

    def since_mark(self) -> float:
        """Return the seconds since the last mark, which is now here."""
        began_s, self._marked_s = self._marked_s, self.loop.monotonic_s()
        return self._marked_s - began_s

    def note_validation(self, seconds: float, loss: float | None, is_more: bool = False) -> None:
        """Measure a validation that has ended now, and report its loss. `is_more`: of the last validation."""
        assert self.pacer is not None
        loop = self.loop
        of_last = loop.reserve.validations_s.pop() if is_more and loop.reserve.validations_s else 0.0
        loop.reserve.validations_s.append(of_last + seconds)
        loop.pass_began_s = loop.monotonic_s()
        self.pacer.skip(seconds)
        if loss is not None:
            loop.progress.loss = loss
            loop.note_loss(loss)
        loop.write_files(loop.monotonic_s(), at_once=True)

    def finish(self, limit: str, advice: str) -> None:
        """Report the end of the training. `limit`: what has ended it; empty: its budget."""
        loop = self.loop
        now_s = loop.monotonic_s()
        if limit:
            loop.say_unused_budget(limit, now_s, advice)
        loop.write_files(now_s, at_once=True)
        loop.say_end_rate(loop.stop_reason or limit or "the script or another callback has stopped it")
        loop.expect_termination(loop.stop_reason)
        self.close()

    def close(self) -> None:
        """Leave signal and optimizers to the script."""
        if self.pacer is None:
            return
        self.pacer.remove()
        self.pacer = None
        self.loop.termination.__exit__()


def fingerprint(model: nn.Module) -> str:
    """Return a digest of the names and shapes of a model's parameters."""
    shapes = sorted((name, list(each.shape)) for name, each in model.named_parameters())
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]
