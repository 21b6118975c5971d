"""The budget in Hugging Face's Trainer: a callback that sets the rate, saves, and stops in time."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from shoestring.training.own_loop.budget import Budget
from shoestring.training.own_loop.callbacks.framework_session import FrameworkSession
from shoestring.training.own_loop.checkpoints.checkpoint_folder import HUGGINGFACE, place_folder
from shoestring.training.own_loop.pacer import NextStep
from shoestring.training.own_loop.rates.rate_hook import RateHook
from shoestring.training.own_loop.rates.schedulers import all_schedulers, refuse_counting, schedulers_of
from shoestring.training.own_loop.termination import within_caller
from shoestring.training.own_loop.trained import torch_optimizer

# The facts of the training are kept under this name in a checkpoint's trainer_state.json.
FACTS = "ShoestringBudget"
ADVICE = "name more epochs or steps"


class HuggingFaceBudget(TrainerCallback):  # type: ignore[misc]
    """A `TrainerCallback` that gives a training a budget."""

    def __init__(self, budget: Budget) -> None:
        self._session = FrameworkSession(budget, HUGGINGFACE)
        self._loop = budget.loop
        self._hook: RateHook | None = None
        self._is_own_save = False
        self._evaluated_at = -1

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        path = self._loop.resumes_from
        if path is not None and kwargs.get("model") is not None:
            # Trainer itself would load only the parameters whose names it finds.
            content = json.loads((path / "trainer_state.json").read_bytes())
            saved = content.get("stateful_callbacks", {}).get(FACTS, {})
            self._session.check_model(kwargs["model"], saved, path)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        loop, session = self._loop, self._session
        optimizer = torch_optimizer(kwargs["optimizer"])
        schedulers = schedulers_of(optimizer, all_schedulers())
        refuse_counting(schedulers, state.max_steps)
        self._hook = RateHook(optimizer, loop.say, schedulers)
        saved = state.stateful_callbacks.get(FACTS) if state.global_step else None
        loop.steps = state.max_steps
        session.begin(kwargs["model"], [self._hook], saved)
        loop.position.batches = state.global_step
        # A training that raises ends without a callback: its handler then passes the signal on.
        loop.termination.is_within = within_caller("transformers.trainer", "train")
        assert session.pacer is not None
        session.pacer.begin_pass(None)
        if args.save_only_model and loop.folder is not None:
            session.pacer.saves_work = False
            loop.say(
                "save_only_model=True: its checkpoints cannot be resumed, so none is kept for the budget"
            )
        if state.global_step < state.max_steps:
            session.look(self._steps_left(args, state, kwargs), validates(args))
        session.mark()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._session.begin_step(rows_of_step(args))

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Name the rate of this step to the scheduler, from which Trainer logs it."""
        scheduler: Any = kwargs.get("lr_scheduler")
        scheduler = getattr(scheduler, "scheduler", scheduler)
        if self._session.is_running and self._hook is not None and hasattr(scheduler, "_last_lr"):
            known = self._hook.rates
            if None not in known:
                scheduler._last_lr = known

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        if not self._session.is_running:
            return control
        self._session.end_step()
        left = self._steps_left(args, state, kwargs)
        action = self._session.after_step(state.global_step, rows_of_step(args), left, validates(args))
        self._is_own_save = action == NextStep.SAVE and not control.should_save
        self._follow(action, args, control)
        is_last = state.global_step >= state.max_steps or action == NextStep.STOP
        if is_last and not saves_at_epochs(args):
            control.should_save = control.should_save or self._can_save()
        # After its last epoch, Trainer evaluates by the script's own strategy.
        if action == NextStep.STOP and state.global_step < state.max_steps:
            control.should_evaluate = control.should_evaluate or args.eval_strategy == "steps"
        if control.should_save:
            self._keep_facts(state)
        self._session.mark()
        return control

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> TrainerControl:
        if not self._session.is_running:
            return control
        is_more = self._evaluated_at == state.global_step
        self._evaluated_at = state.global_step
        loss = (metrics or {}).get("eval_loss")
        self._session.note_validation(self._session.since_mark(), loss, is_more)
        if not self._loop.stop_reason and state.global_step < state.max_steps:
            left = self._steps_left(args, state, kwargs) or None
            self._follow(self._session.look(left, True), args, control)
        self._keep_facts(state)
        self._session.mark()
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        pacer = self._session.pacer
        if pacer is None:
            return control
        if self._loop.stop_reason and pacer.saved_at != state.global_step:
            control.should_save = control.should_save or self._can_save()
        self._keep_facts(state)
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        pacer = self._session.pacer
        if pacer is None:
            return
        # Each rank writes a part of the checkpoint, which is whole when all have.
        pacer.ranks.gathered(None)
        is_kept = self._can_save()
        if is_kept and pacer.ranks.rank == 0:
            self._place(args, state)
        pacer.note_saved(self._session.since_mark())
        self._is_own_save = False

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not self._session.is_running:
            return
        limit = ""
        if state.global_step >= state.max_steps:
            limit = "max_steps" if args.max_steps > 0 else "num_train_epochs"
            limit += f"={args.max_steps if args.max_steps > 0 else args.num_train_epochs:g}"
        self._session.finish(limit, ADVICE)

    def _follow(self, action: NextStep, args: TrainingArguments, control: TrainerControl) -> None:
        if action == NextStep.STOP:
            control.should_training_stop = True
        if action != NextStep.TRAIN and not (action == NextStep.STOP and saves_at_epochs(args)):
            control.should_save = control.should_save or self._can_save()

    def _can_save(self) -> bool:
        pacer = self._session.pacer
        return pacer is not None and pacer.ranks.agree(pacer.saves_work)

    def _keep_facts(self, state: TrainerState) -> None:
        state.stateful_callbacks[FACTS] = self._session.facts()

    def _place(self, args: TrainingArguments, state: TrainerState) -> None:
        loop = self._loop
        assert loop.folder is not None
        source = Path(args.output_dir, f"checkpoint-{state.global_step}")
        try:
            placed = place_folder(source, loop.folder)
        except OSError as error:
            loop.say(f"a checkpoint cannot be kept ({error}): the training continues without it")
            return
        is_named = args.save_total_limit is not None or state.best_model_checkpoint == str(source)
        if self._is_own_save and not is_named and placed != source:
            # The script has not asked for this one.
            shutil.rmtree(source, ignore_errors=True)

    def _steps_left(self, args: TrainingArguments, state: TrainerState, found: dict[str, Any]) -> int | None:
        """Return the steps until the next evaluation; None: there is none, or it is not known."""
        if args.eval_strategy == "steps":
            every = int(state.eval_steps or 0)
        elif args.eval_strategy == "epoch":
            try:
                every = math.ceil(len(found["train_dataloader"]) / args.gradient_accumulation_steps)
            except TypeError:
                return None
        else:
            return None
        return -state.global_step % every if every else None


def rows_of_step(args: TrainingArguments) -> int:
    return int(args.train_batch_size * args.gradient_accumulation_steps)


def validates(args: TrainingArguments) -> bool:
    return bool(args.eval_strategy != "no")


def saves_at_epochs(args: TrainingArguments) -> bool:
    """Return whether a training that ends is saved by its strategy."""
    return bool(args.save_strategy == "epoch")
