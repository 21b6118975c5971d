"""What those who run the cluster and those who pay for it have set, as data, and the stock-outs that one of the rules remembers."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from shoestring.model import Market, Noun
from shoestring.money import Usd

REGISTRY = "ghcr.io/shoestring-ml"
IMAGES = {name: f"{REGISTRY}/shoestring-{name}:0.1.0" for name in ("base", "train", "train-gpu")}
"""The published images, by the names that a Need uses. A world may have others under these names; any other name is a full one already."""


class Rules(Noun):
    """What a platform team lets a run do by itself (`policy.yaml`)."""

    queue_delay_s: float = Field(300.0, gt=0, description="seconds that a stage's pod may wait for a node; then it is routed again")
    stockout_s: float = Field(900.0, ge=0, description="seconds that a node pool which took no pod in time is left out")
    memory_growth: float = Field(1.5, ge=1, description="how much more memory a stage is given after it ran out of it")
    leaving_s: float = Field(0.0, ge=0, description="seconds from a pod's last entry in the books to its end, for which it is paid")
    heartbeat_s: float = Field(1.0, gt=0, description="seconds between a stage's signs of life, each of which the store may charge for")
    moving_markets: tuple[Market, ...] = Field(
        (Market.SPOT,),
        description="markets where a pod pays the price of the moment; elsewhere that of its decision holds",
    )
    abandoned_s: float = Field(3600.0, gt=0, description="seconds without a pod and without a word after which a run is held to be over")


class Budgets(Noun):
    """Caps that whoever pays has set (`budgets.yaml`), beside those of a recipe or a command line. None: no cap."""

    month_usd: Usd | None = Field(None, description="all runs of a calendar month (UTC) together")
    run_usd: Usd | None = Field(None, description="the most that one run may be given")
    stages: dict[str, Usd] = Field({}, description="the most that one stage of a run may take")


class StockOut(Noun):
    """A node pool that took no pod within the queue delay, and until when that is remembered."""

    schema_version: Literal[1] = 1
    node_pool: str
    market: Market
    at: AwareDatetime
    until: AwareDatetime
    why: str
