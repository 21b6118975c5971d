"""The learning rate at which a training ends: a model whose rate has not decayed could be better."""

from __future__ import annotations

import atexit
import math
import warnings
from dataclasses import dataclass

# A budget that is used up ends at a rate of zero, or at one step before it.
LOW_SHARE = 0.05


@dataclass(slots=True)
class EndRate:
    """The rate of the last step. `rate`: of the first group of parameters; NaN: not known without waiting for
    a GPU. `share`: of the peak; None: there was no step yet.
    """

    rate: float = math.nan
    share: float | None = None
    is_said: bool = False

    def message(self, reason: str) -> str:
        """Return what is wrong with the rate, once; empty: nothing, or it was returned before."""
        if self.is_said or self.share is None or self.share <= LOW_SHARE:
            return ""
        self.is_said = True
        rate = "a learning rate" if math.isnan(self.rate) else f"a learning rate of {self.rate:.3g},"
        return (
            f"the training ended at {rate} {self.share:.0%} of its peak ({reason}): its last steps were not "
            "annealed"
        )


_newest: list[EndRate] = []


def follow_to_exit(end_rate: EndRate) -> None:
    """Warn at the exit of the process if nobody has seen the end of this training, the newest."""
    if not _newest:
        atexit.register(_warn_at_exit)
    _newest[:] = [end_rate]


def _warn_at_exit() -> None:
    if message := _newest[0].message("the script has ended"):
        warnings.warn(message, stacklevel=1)
