"""The budget in Lightning's Trainer: a callback that sets the rate, saves, and stops in time."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning

from shoestring.core.errors import UsageError
from shoestring.training.own_loop.budget import Budget
from shoestring.training.own_loop.callbacks.framework_session import FrameworkSession
from shoestring.training.own_loop.checkpoints.checkpoint_folder import LIGHTNING, delete_old
from shoestring.training.own_loop.loading.loader_pass import no_batches, rows_per_batch
from shoestring.training.own_loop.pacer import NextStep
from shoestring.training.own_loop.rates.rate_hook import RateHook
from shoestring.training.own_loop.rates.schedulers import all_schedulers, refuse_counting, schedulers_of
from shoestring.training.own_loop.termination import is_main_thread, live_handler

ADVICE = "name more epochs or steps"


class LightningBudget(lightning.Callback):  # type: ignore[misc]
    """A `Callback` that gives a training a budget, with automatic or manual optimisation."""

    def __init__(self, budget: Budget) -> None:
        self._session = FrameworkSession(budget, LIGHTNING)
        self._loop = budget.loop
        self._hooks = list[RateHook]()
        self._saved: dict[str, Any] | None = None
        self._handler: Any = signal.SIG_DFL
        self._rows, self._epoch_began_at = 1, -1

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        # Lightning puts its own handler before this one, and ends a training in the middle of it.
        self._handler = live_handler()

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        schedulers = all_schedulers()
        for config in trainer.lr_scheduler_configs:
            # Those that the script steps itself count what it wants.
            if pl_module.automatic_optimization:
                is_of_steps = config.interval == "step"
                limit = trainer.estimated_stepping_batches if is_of_steps else trainer.max_epochs
                steps = limit / config.frequency if limit is not None and limit >= 0 else math.inf
                refuse_counting(schedulers_of(config.scheduler.optimizer, schedulers), steps)
        # Here the rates are those of the script: the checkpoint's are loaded later.
        self._hooks = [RateHook(each, self._loop.say, schedulers) for each in trainer.optimizers]

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        session, loop = self._session, self._loop
        session.begin(pl_module, self._hooks, self._saved if trainer.global_step else None)
        loop.termination.passes_to(self._handler)
        self._rows = rows_per_batch(trainer.train_dataloader)
        self._set_steps(trainer)
        if session.look(self._batches_left(trainer), validates(trainer)) == NextStep.STOP:
            trainer.should_stop = True
        session.mark()

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._epoch_began_at = self._loop.position.batches

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if self._session.is_running and self._loop.position.batches == self._epoch_began_at:
            raise UsageError(no_batches(trainer.train_dataloader))

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._session.begin_step(self._rows)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        session, loop = self._session, self._loop
        if not session.is_running:
            return
        session.end_step()
        self._set_steps(trainer)
        batches, left = loop.position.batches + 1, self._batches_left(trainer)
        if (batch_idx + 1) % trainer.accumulate_grad_batches and left != 0:
            # Between two steps of the optimizer, nothing is decided.
            loop.position.batches = batches
            loop.position.samples += self._rows
            return
        action = session.after_step(batches, self._rows, left, validates(trainer))
        if action == NextStep.STOP:
            trainer.should_stop = True
        session.mark()
        if action != NextStep.TRAIN:
            self._save(trainer)

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        session = self._session
        if not session.is_running or trainer.sanity_checking:
            return
        session.note_validation(session.since_mark(), validation_loss(trainer.callback_metrics))
        if not self._loop.stop_reason and self._look_again(trainer) == NextStep.STOP:
            trainer.should_stop = True
        session.mark()

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if not self._session.is_running:
            return
        self._session.mark()
        self._save(trainer)
        limit, max_epochs = "", trainer.max_epochs or -1
        if trainer.max_steps > 0 and trainer.global_step >= trainer.max_steps:
            limit = f"max_steps={trainer.max_steps}"
        elif 0 < max_epochs <= trainer.fit_loop.epoch_progress.current.processed:
            limit = f"max_epochs={max_epochs}"
        self._session.finish(limit, ADVICE)

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if not self._session.is_running:
            self._leave_signal_to_script()
        elif not trainer.sanity_checking:
            self._session.mark()

    def on_test_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._leave_signal_to_script()

    def on_predict_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._leave_signal_to_script()

    def _leave_signal_to_script(self) -> None:
        """Put the handler from before Lightning's back where SIGTERM is awaited.

        With its own, Lightning ends the process in the middle of a test, with exit code 0.
        """
        if self._loop.termination.is_awaited and is_main_thread():
            signal.signal(signal.SIGTERM, self._handler)

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        # Lightning has restored the handler from before its training by now, unless that has failed.
        self._loop.termination.ignore_if_awaited()

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        has_begun = self._session.is_running
        self._session.close()
        asked = self._loop.resumes_from
        is_of_loading = isinstance(exception, (RuntimeError, ValueError, KeyError))
        if not has_begun and asked is not None and self._saved is None and is_of_loading:
            raise UsageError(
                f"the checkpoint {asked} is of another model: name another folder for checkpoints, or delete "
                f"it ({exception})"
            ) from exception

    def state_dict(self) -> dict[str, Any]:
        return self._session.facts() if self._session.is_running else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    def _look_again(self, trainer: lightning.Trainer) -> NextStep:
        return self._session.look(self._batches_left(trainer) or None, True)

    def _save(self, trainer: lightning.Trainer) -> None:
        """Write a checkpoint on all ranks together, unless nothing was trained since the last one."""
        pacer, loop = self._session.pacer, self._loop
        if pacer is None or not pacer.ranks.agree(pacer.saves_work):
            return
        batches = loop.position.batches
        if pacer.saved_at == batches:
            return
        assert loop.folder is not None
        path = loop.folder / f"checkpoint-{batches:012d}{LIGHTNING}"
        temporary = Path(f"{path}.new")
        try:
            trainer.save_checkpoint(temporary)
            if pacer.ranks.rank == 0:
                temporary.replace(path)
                delete_old(loop.folder, LIGHTNING)
        except OSError as error:
            loop.say(f"a checkpoint cannot be written ({error}): the training continues without it")
        pacer.note_saved(self._session.since_mark())

    def _set_steps(self, trainer: lightning.Trainer) -> None:
        """Set the batches of the whole training, where the script limits them."""
        limits = list[float]()
        batches = self._loop.position.batches + 1
        if trainer.max_epochs and trainer.max_epochs > 0:
            limits.append(trainer.max_epochs * trainer.num_training_batches)
        if trainer.max_steps > 0 and trainer.global_step > 0:
            # Lightning counts the steps of all optimizers.
            limits.append(math.ceil(batches * trainer.max_steps / trainer.global_step))
        total = min(limits, default=math.inf)
        # The last batches are the framework's to end.
        self._loop.steps = max(int(total), batches + 1) if math.isfinite(total) else None

    def _batches_left(self, trainer: lightning.Trainer) -> int | None:
        """Return the batches until the next validation, or None where that is not known."""
        every = trainer.val_check_batch if validates(trainer) else None
        if every is None or not math.isfinite(every) or every < 1:
            return None
        progress = trainer.fit_loop.epoch_loop.batch_progress
        done = progress.total if trainer.check_val_every_n_epoch is None else progress.current
        return int(-done.processed % every)


def validates(trainer: lightning.Trainer) -> bool:
    return bool(trainer.enable_validation)


def validation_loss(metrics: Mapping[str, Any]) -> float | None:
    """Return the validation's loss by its usual names, or None."""
    for name in ("val_loss", "val/loss", "valid_loss", "validation_loss"):
        if name in metrics:
            return float(metrics[name])
    return None
