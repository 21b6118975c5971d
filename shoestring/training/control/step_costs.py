"""Estimate how long validations, checkpoints and the exit take, from recent ones. The guard reserves
these seconds."""

from __future__ import annotations

from collections import deque

# The number of recent validations and checkpoints that are remembered. The slowest of them predicts the next.
REMEMBERED = 8
# The next validation or checkpoint takes at most this many times the slowest remembered one.
VALIDATION_MARGIN, CHECKPOINT_MARGIN = 1.5, 2.0
# Writing the model and ending the process took 0.2-0.4 s on a local disk. On a slower store, the duration
# of a checkpoint is added.
SHUTDOWN_S = 0.6
# The assumed duration of a checkpoint before the first.
FIRST_CHECKPOINT_S = 0.5


class StepCosts:
    """Expected seconds of everything that is not a training step.

    `validation_s` is for the validation rows in use, `checkpoint_s` for a checkpoint: the slowest of the
    recent ones.
    """

    def __init__(self, validation_s: float, fit_s: float = 0.0, predictions: float = 0.0) -> None:
        """Start with an estimate of `validation_s`, which the first real validation replaces.

        Where time is reserved for them, predictions of the whole validation split follow the loop, which
        take as long as `predictions` validations of it, and then a fit of `fit_s`.
        """
        self._estimated_validation_s, self._share = validation_s, 1.0
        self._fit_s, self._predictions = fit_s, predictions
        self._validations: deque[float] = deque(maxlen=REMEMBERED)
        self._checkpoints: deque[float] = deque(maxlen=REMEMBERED)

    def record_validation(self, seconds: float) -> None:
        self._validations.append(seconds)

    def scale_validation(self, factor: float) -> None:
        """Expect validations to read `factor` times as many rows; the next one replaces the estimate."""
        self._estimated_validation_s = self.validation_s * factor
        self._share *= factor
        self._validations.clear()

    def record_checkpoint(self, seconds: float) -> None:
        self._checkpoints.append(seconds)

    @property
    def validation_s(self) -> float:
        return max(self._validations, default=self._estimated_validation_s)

    @property
    def checkpoint_s(self) -> float:
        return max(self._checkpoints, default=0.0)

    @property
    def whole_validation_s(self) -> float:
        """Seconds of a validation of the whole split."""
        return self.validation_s / self._share

    @property
    def validation_reserve_s(self) -> float:
        """Seconds that must be left beyond `exit_s` before a validation.

        They cover its longest duration, and what that duration would add to the last validation.
        """
        return VALIDATION_MARGIN**2 * self.validation_s

    @property
    def checkpoint_reserve_s(self) -> float:
        """Seconds that must be left beyond `exit_s` before a checkpoint.

        They cover its longest duration, and what that duration would add to the exit.
        """
        return CHECKPOINT_MARGIN**2 * max(self._checkpoints, default=FIRST_CHECKPOINT_S)

    @property
    def exit_s(self) -> float:
        """Seconds of the exit: last validation, writing the model (as slow as a checkpoint), ending the
        process."""
        return VALIDATION_MARGIN * self.validation_s + self.writing_s

    @property
    def writing_s(self) -> float:
        """Seconds of writing the model and ending the process."""
        return SHUTDOWN_S + CHECKPOINT_MARGIN * self.checkpoint_s

    @property
    def fitting_s(self) -> float:
        """Seconds of the predictions and the fit that follow the loop."""
        return self._fit_s + self._predictions * self.whole_validation_s

    @property
    def reserved_s(self) -> float:
        """Seconds that must be left after a step."""
        return self.exit_s + self.fitting_s
