"""What looks, checkpoints and leaving take, learned from those that were: the seconds that the guard keeps back."""

from __future__ import annotations

from collections import deque

# Looks and saves that are remembered; the slowest of them stands for the next.
REMEMBERED = 8
# The next look or save takes no more than so many times the slowest that is remembered.
VALIDATION_MARGIN, CHECKPOINT_MARGIN = 1.5, 2.0
# Writing the model and ending the process took 0.2-0.4 s on a local disk; on a slower store a checkpoint says how much more.
SHUTDOWN_S = 0.6
# Stands in for a checkpoint before the first.
FIRST_CHECKPOINT_S = 0.5


class StepCosts:
    """Seconds. `look_s` of a look at all of signal validation, `save_s` of a checkpoint: the slowest of the recent ones."""

    def __init__(self, look_s: float) -> None:
        """`look_s`: an estimate, which the first real look replaces."""
        self._guessed_look_s = look_s
        self._looks: deque[float] = deque(maxlen=REMEMBERED)
        self._saves: deque[float] = deque(maxlen=REMEMBERED)

    def record_validation(self, seconds: float) -> None:
        self._looks.append(seconds)

    def scale_validation(self, times: float) -> None:
        """Looks will read so much of what they read before; the next one says what that takes."""
        self._guessed_look_s = self.validation_s * times
        self._looks.clear()

    def record_checkpoint(self, seconds: float) -> None:
        self._saves.append(seconds)

    @property
    def validation_s(self) -> float:
        return max(self._looks, default=self._guessed_look_s)

    @property
    def checkpoint_s(self) -> float:
        return max(self._saves, default=0.0)

    @property
    def validation_reserve_s(self) -> float:
        """What has to be left beyond `exit_s` before a look: its longest time, and what that would add to the last look's."""
        return VALIDATION_MARGIN**2 * self.validation_s

    @property
    def checkpoint_reserve_s(self) -> float:
        """What has to be left beyond `exit_s` before a checkpoint: its longest time, and what that would add to leaving."""
        return CHECKPOINT_MARGIN**2 * max(self._saves, default=FIRST_CHECKPOINT_S)

    @property
    def exit_s(self) -> float:
        """The last look, writing the model (as slow as a checkpoint), and ending the process."""
        return VALIDATION_MARGIN * self.validation_s + SHUTDOWN_S + CHECKPOINT_MARGIN * self.checkpoint_s
