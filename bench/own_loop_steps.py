"""`own_loop_steps.py FORM STEPS SCRIPT [ARGUMENT ...]`: run a budgeted script over steps instead of a budget.

FORM: `0.2` for a linear decay over the last 20% of the steps, `0.2s` and `0.2q` for other curves, `-` for
Shoestring's own, which begins where the losses stall. For bench/own_loop_decay.py.
"""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Callable
from typing import Any

import shoestring.budget
from shoestring.training.own_loop.rates import rate_hook
from shoestring.training.own_loop.rates.decay import WARMUP_SHARE

CURVES: dict[str, Callable[[float], float]] = {
    "": lambda left: left,
    "s": lambda left: 1 - (1 - left) ** 0.5,
    "q": lambda left: left**2,
}
"""The rate as a share of its peak, from the share of the decay that is left."""


def factor_of(form: str) -> Callable[[float, float], float]:
    decay, curve = float(form.rstrip("sq")), CURVES[form.lstrip("0.123456789")]
    return lambda share, _: min(1.0, share / WARMUP_SHARE, curve(min(1.0, (1 - share) / decay)))


def main() -> None:
    form, steps = sys.argv[1], int(sys.argv[2])
    sys.argv = sys.argv[3:]
    if form != "-":
        rate_hook.rate_factor = factor_of(form)
    named = shoestring.budget.Budget

    class Endless(named):  # type: ignore[misc,valid-type]
        @classmethod
        def here(cls, **settings: object) -> Any:
            return cls(seconds=1e9)

        def steps(self, model: Any, optimizer: Any, n: int | None = None) -> Any:
            return super().steps(model, optimizer, steps)

    shoestring.budget.Budget = Endless  # type: ignore[misc]
    shoestring.budget.budgeted = functools.partial(shoestring.budget.budgeted, steps=steps)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
