"""The training loop's question before every step: is there still enough for the step and for leaving after it?"""

from __future__ import annotations

from collections import deque

from shoestring.spending.meter import Meter

# Recent steps that are remembered; their slowest stands for the 99th percentile, which a ring this small cannot tell from it.
RECENT_STEPS = 64
# A step never takes more than so many times the slowest of the ring. Training small networks on two cores that others kept busy too,
# none of 860 steps took more than 1.65 times; a longer one eats into `exit_s`, and then into what the frame keeps for its own exit.
SLOWEST_FACTOR = 2.0


class Guard:
    """Says no while a checkpoint and an exit are still affordable, so that the meter's limit and deadline are never overrun.

    That holds as long as no step takes more than `SLOWEST_TIMES` the slowest of the last `RING_STEPS`, and leaving no more than
    `exit_s`. `step_s` stands in for steps not seen yet. `exit_s` may be set anew whenever the caller knows better.
    """

    def __init__(self, meter: Meter, *, step_s: float, exit_s: float) -> None:
        """`step_s`: seconds that the first step should take. `exit_s`: seconds from the last step until out, checkpoint included."""
        self.exit_s = exit_s
        self._meter = meter
        self._ring = deque([step_s], maxlen=RECENT_STEPS)

    def record_step(self, step_s: float) -> None:
        """A step has taken so many seconds."""
        self._ring.append(step_s)

    def scale_steps(self, times: float) -> None:
        """Steps will be on so many times as many rows."""
        self._ring = deque((times * step_s for step_s in self._ring), maxlen=RECENT_STEPS)

    def may_step(self, now_s: float) -> bool:
        """False when another step might run past the limit or the deadline: stop, save, leave."""
        return now_s + SLOWEST_FACTOR * max(self._ring) + self.exit_s <= self._meter.ends_s
