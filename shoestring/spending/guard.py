"""The guard of a training loop: before each step it checks that the step, a checkpoint and the exit are still
affordable.
"""

from __future__ import annotations

from collections import deque

from shoestring.spending.meter import Meter, MeterShare

RECENT_STEPS = 64
"""Steps that are remembered. The slowest of them stands for the 99th percentile, which so few steps cannot
tell from it.
"""
SLOWEST_FACTOR = 2.0
"""A step takes at most this many times the slowest remembered step.

When small networks were trained on two cores shared with other work, none of 860 steps took more than 1.65
times as long. A longer step uses up time of `exit_s`, and then of the supervisor's own exit.
"""


class Guard:
    """Stops training while a checkpoint and an exit are still affordable, so that limit and deadline are
    never exceeded.

    This holds while no step takes more than `SLOWEST_FACTOR` times the slowest of the last `RECENT_STEPS`,
    and the exit takes at most `exit_s`. The caller may change `exit_s` when it has a better estimate.
    """

    def __init__(self, meter: Meter | MeterShare, *, step_s: float, exit_s: float) -> None:
        """`step_s`: estimated seconds of the first step. `exit_s`: seconds from the last step to the exit,
        with checkpoint.
        """
        self.exit_s = exit_s
        self._meter = meter
        self._recent_s = deque([step_s], maxlen=RECENT_STEPS)

    def record_step(self, step_s: float) -> None:
        """Record that a step took `step_s` seconds."""
        self._recent_s.append(step_s)

    def scale_steps(self, factor: float) -> None:
        """Scale the remembered steps: from now on a step has `factor` times as many rows."""
        self._recent_s = deque((factor * step_s for step_s in self._recent_s), maxlen=RECENT_STEPS)

    def may_step(self, now_s: float) -> bool:
        """Return False if another step might exceed the limit or the deadline. Then stop, save and leave."""
        return now_s + SLOWEST_FACTOR * max(self._recent_s) + self.exit_s <= self._meter.ends_s
