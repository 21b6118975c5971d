"""The cases of `stopwatch.py`: stages that misbehave, and prices that move."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from misbehaving_stages import MISBEHAVIOURS, obey

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
    """A body in place of a stage, with a price that moves or stays."""

    name: str
    body: str
    price: PriceCase | None = None


CASES = (
    *(Case(body.__name__.replace("_", " "), body.__name__) for body in MISBEHAVIOURS),
    *(Case(price.name, obey.__name__, price) for price in PRICES),
)
