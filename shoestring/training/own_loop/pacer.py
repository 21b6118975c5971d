"""The pace of a training: when to look at its budget, and what follows, the same on all ranks."""

from __future__ import annotations

from enum import IntEnum

from shoestring.training.own_loop.loop_state import SIGTERM, LoopState
from shoestring.training.own_loop.pace import CHECKPOINT_COST_SHARE, CHECKPOINT_INTERVAL_SHARE
from shoestring.training.own_loop.ranks import Ranks
from shoestring.training.own_loop.rates.end_rate import follow_to_exit
from shoestring.training.own_loop.rates.rate_hook import RateHook

# Between two looks at the clock of the budget, at most this many seconds and steps pass.
LOOK_INTERVAL_S, MAX_STEPS_BETWEEN_LOOKS = 0.2, 1000
# The schedule begins at the first batch, unless more of the budget was gone by then.
LATEST_SHARE = 0.9


class NextStep(IntEnum):
    TRAIN, SAVE, STOP = 0, 1, 2


class Pacer:
    """The pace of one training. The first rank decides on rate, checkpoints and stop for all ranks.

    `saved_at`: the batches of the newest checkpoint; -1: there is none. `pass_length`: the batches of a pass,
    where they are known.
    """

    def __init__(self, loop: LoopState, ranks: Ranks, hooks: list[RateHook], is_resumed: bool) -> None:
        self.loop, self.ranks = loop, ranks
        self.hooks = hooks
        self.saved_at = loop.position.batches if is_resumed else -1
        self.saves_work = loop.folder is not None
        self.pass_length: int | None = None
        loop.skip = self.skip
        if hooks:
            loop.end_rate = hooks[0].end_rate
            if ranks.rank == 0:
                follow_to_exit(loop.end_rate)
        self._is_alone = ranks.world_size == 1
        self._saved_s = self._looked_s = loop.monotonic_s()
        self._looked_at = self._next_look = loop.position.batches
        loop.share = self._share_per_step = 0.0
        self._is_first, self._is_warm = True, False
        left_s = loop.source.read(self._saved_s).seconds_left
        self._interval_s = min(loop.checkpoint_interval_s, CHECKPOINT_INTERVAL_SHARE * left_s)
        if loop.folder is None:
            loop.say(
                "no folder for checkpoints is named, so none is written: Budget(..., checkpoints=PATH) names "
                "one"
            )

    def begin_pass(self, length: int | None) -> None:
        """Begin to count the steps of a pass. The time since the last one is none of a step."""
        self.pass_length = length
        self._looked_s = self.loop.monotonic_s()
        self.loop.begin_pass(self._looked_s)
        self._looked_at = self._next_look = self.loop.position.batches

    def is_look_due(self) -> bool:
        loop = self.loop
        return loop.position.batches >= self._next_look or (
            self._is_alone and loop.monotonic_s() >= self._looked_s + LOOK_INTERVAL_S
        )

    def advance(self) -> None:
        """Set the share of the next step without a look at the clock."""
        self._set_share(self.loop.share + self._share_per_step)

    def look(self, batches_left: int | None) -> NextStep:
        """Look at the budget, set the share of the next step, and return what to do, on all ranks.

        `batches_left`: those until the next validation, where they are known.
        """
        decision = (*self._decision(batches_left), self.loop.decay_start.share)
        share, per_step, action, steps, decay_start = self.ranks.from_first(decision)
        self._share_per_step, self.loop.decay_start.share = per_step, decay_start
        for hook in self.hooks:
            hook.decay_start = decay_start
        self._set_share(max(share, self.loop.share))
        self._next_look = self.loop.position.batches + int(steps)
        if action == NextStep.STOP:
            self.loop.stop_reason = self.loop.stop_reason or "the first rank stops"
        return NextStep(int(action))

    def skip(self, seconds: float) -> None:
        """Leave out seconds that are not of a step, such as those of a checkpoint."""
        self._looked_s += seconds

    def note_saved(self, seconds: float) -> None:
        """Measure a checkpoint that was written just now, in this time."""
        self.saved_at, self._saved_s = self.loop.position.batches, self.loop.monotonic_s()
        self.loop.reserve.checkpoints_s.append(seconds)
        self.skip(seconds)

    def is_save_cheap(self, now_s: float) -> bool:
        """Return whether a checkpoint now keeps the cost of all checkpoints low."""
        return now_s - self._saved_s > self._least_interval_s

    def remove(self) -> None:
        """Leave the optimizers to the script."""
        for hook in self.hooks:
            hook.remove()

    @property
    def _least_interval_s(self) -> float:
        return self.loop.reserve.checkpoint_s / CHECKPOINT_COST_SHARE

    def _set_share(self, share: float) -> None:
        self.loop.share = min(1.0, share)
        for hook in self.hooks:
            hook.share = self.loop.share

    def _decision(self, batches_left: int | None) -> tuple[float, ...]:
        """Return share, share of each step, what to do, and the steps until the next look."""
        loop = self.loop
        if self.ranks.rank:
            return (0.0, 0.0, NextStep.TRAIN, 1)
        now_s = loop.monotonic_s()
        if loop.began_share is None:
            loop.began_share = min(LATEST_SHARE, loop.source.read(now_s).share_gone)
        self._measure_steps(now_s)
        ramp = loop.ramp(now_s, batches_left)
        share = max(ramp.share, loop.steps_share(self.pass_length))
        loop.write_files(now_s)
        is_first, self._is_first = self._is_first, False
        if reason := loop.why_stop(now_s):
            loop.stop_reason = reason
            # A phase may be done, and another one follows.
            if is_first and reason != SIGTERM and loop is loop.parts[0]:
                loop.say(
                    f"no batch is trained ({reason}): name a larger budget to continue, or another folder "
                    "for checkpoints to start over"
                )
            return (1.0, 0.0, NextStep.STOP, 1)
        interval_s = max(self._interval_s, self._least_interval_s)
        is_due = self.saves_work and now_s - self._saved_s >= interval_s
        action = NextStep.SAVE if is_due else NextStep.TRAIN
        return (share, self._per_step(ramp.per_s), action, self._steps_to_look(ramp.stop_in_s))

    def _measure_steps(self, now_s: float) -> None:
        at = self.loop.position
        if (steps := at.batches - self._looked_at) > 0:
            # The first step of an attempt also loads libraries and compiles, and is none to expect again.
            if self._is_warm:
                self.loop.reserve.steps_s.append((now_s - self._looked_s) / steps)
            self._is_warm = True
        self._looked_at, self._looked_s = at.batches, now_s

    def _per_step(self, share_per_s: float) -> float:
        loop = self.loop
        of_steps = 1 / loop.steps if loop.steps else 0.0
        if loop.epochs and self.pass_length:
            of_steps = max(of_steps, 1 / (loop.epochs * self.pass_length))
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
