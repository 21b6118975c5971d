"""What looks, checkpoints and leaving take, learned from those that were: the seconds that the guard keeps back."""

from __future__ import annotations

from collections import deque

# Looks and saves that are remembered; the slowest of them stands for the next.
RING = 8
# The next look or save takes no more than so many times the slowest that is remembered.
LOOK_TIMES, SAVE_TIMES = 1.5, 2.0
# Writing the model and ending the process took 0.2-0.4 s on a local disk; on a slower store a checkpoint says how much more.
LEAVING_S = 0.6
# Stands in for a checkpoint before the first.
FIRST_SAVE_S = 0.5


class Outlay:
    """Seconds. `look_s` of a look at all of signal validation, `save_s` of a checkpoint: the slowest of the recent ones."""

    def __init__(self, look_s: float) -> None:
        """`look_s`: an estimate, which the first real look replaces."""
        self._guessed_look_s = look_s
        self._looks: deque[float] = deque(maxlen=RING)
        self._saves: deque[float] = deque(maxlen=RING)

    def looked(self, seconds: float) -> None:
        self._looks.append(seconds)

    def thinned(self, times: float) -> None:
        """Looks will read so much of what they read before; the next one says what that takes."""
        self._guessed_look_s = self.look_s * times
        self._looks.clear()

    def saved(self, seconds: float) -> None:
        self._saves.append(seconds)

    @property
    def look_s(self) -> float:
        return max(self._looks, default=self._guessed_look_s)

    @property
    def save_s(self) -> float:
        return max(self._saves, default=0.0)

    @property
    def look_more_s(self) -> float:
        """What has to be left beyond `exit_s` before a look: its longest time, and what that would add to the last look's."""
        return LOOK_TIMES**2 * self.look_s

    @property
    def save_more_s(self) -> float:
        """What has to be left beyond `exit_s` before a checkpoint: its longest time, and what that would add to leaving."""
        return SAVE_TIMES**2 * max(self._saves, default=FIRST_SAVE_S)

    @property
    def exit_s(self) -> float:
        """The last look, writing the model (as slow as a checkpoint), and ending the process."""
        return LOOK_TIMES * self.look_s + LEAVING_S + SAVE_TIMES * self.save_s
