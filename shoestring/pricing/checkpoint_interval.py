"""How often a training writes a checkpoint, by what a checkpoint takes and by how often its pod ends without
notice.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

CHECKPOINT_EVERY_S = 5.0
CHECKPOINT_SHARE = 0.02
"""Checkpoints take at most this share of the time, unless more of them save more than they take."""


def checkpoint_interval_s(checkpoint_s: float, ends_per_hour: float | Floats) -> Floats:
    """Return the seconds between two checkpoints that take `checkpoint_s` each. `ends_per_hour`: how often
    the pod ends without notice; 0: as far as is known, never.

    Each end loses half an interval on average. Checkpoints and losses together take the least time at the
    interval sqrt(2 x checkpoint_s x time between two ends): J. W. Young, "A first order approximation to the
    optimum checkpoint interval", Communications of the ACM 17 (1974). Both are paid at the same price.
    """
    often_s = np.full(np.shape(ends_per_hour), np.inf)
    np.divide(7200.0 * checkpoint_s, ends_per_hour, out=often_s, where=np.greater(ends_per_hour, 0))
    interval_s = np.minimum(checkpoint_s / CHECKPOINT_SHARE, np.sqrt(often_s))
    planned_s: Floats = np.maximum(CHECKPOINT_EVERY_S, interval_s)
    return planned_s
