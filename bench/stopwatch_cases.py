"""The cases of `stopwatch.py`: stages that misbehave, and prices that move."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from misbehaving_stages import (
    MISBEHAVIOURS,
    kill_the_supervisor_when_told_to_stop,
    obey,
    stop_the_supervisor_when_told_to_stop,
)

from shoestring.runtime.launch.watch_stages import LOOK_EVERY_S
from shoestring.spending.heartbeat import MIN_SILENCE_S

ON_DEMAND, SPOT = Decimal("2.40"), Decimal("1.20")


@dataclass(frozen=True)
class PriceCase:
    """Prices by seconds after the stage began, or after its decision: None removes the price, in the way of
    `broken`.
    """

    name: str
    steps: tuple[tuple[float, Decimal | None], ...]
    broken: str = ""
    from_decision: bool = False


UP, FAR_UP = ON_DEMAND * Decimal("1.5"), ON_DEMAND * 3
SWINGS = tuple((0.5 * step, (ON_DEMAND, SPOT)[step % 2]) for step in range(1, 400))
CYCLES = tuple((5.0 * step, (SPOT, ON_DEMAND)[step % 2]) for step in range(1, 40))
PRICES = (
    PriceCase("rises below on-demand", ((5, Decimal("1.80")),)),
    PriceCase("rises to on-demand", ((5, ON_DEMAND),)),
    PriceCase("rises to 1.5 times on-demand", ((10, UP),)),
    PriceCase("rises to 3 times on-demand", ((10, FAR_UP),)),
    PriceCase("rises after the decision", ((0, ON_DEMAND),), from_decision=True),
    PriceCase("row is removed", ((5, None),), "removed"),
    PriceCase("row is missing at first", ((0, None), (8, SPOT)), "removed", from_decision=True),
    PriceCase("swings every 0.5 s", SWINGS),
    PriceCase("rises and falls every 5 s", CYCLES),
    PriceCase("row is doubled", ((5, None),), "doubled"),
    PriceCase("file is half written", ((5, None),), "half"),
    PriceCase("file is deleted", ((5, None),), "deleted"),
)


@dataclass(frozen=True)
class Case:
    """A body in place of a stage, with a price that moves or stays. `bound_s`: seconds at its price that it
    may cost above the cap.
    """

    name: str
    body: str
    price: PriceCase | None = None
    bound_s: float = 0.0


BOUNDS_S = {
    stop_the_supervisor_when_told_to_stop: MIN_SILENCE_S + LOOK_EVERY_S,
    kill_the_supervisor_when_told_to_stop: LOOK_EVERY_S,
}
CASES = (
    *(
        Case(body.__name__.replace("_", " "), body.__name__, None, BOUNDS_S.get(body, 0.0))
        for body in MISBEHAVIOURS
    ),
    *(Case(price.name, obey.__name__, price) for price in PRICES),
)
