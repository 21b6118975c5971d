"""The world that a run sees: its policy, budgets and images, and the interfaces to its prices, cluster and store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from pydantic import Field

from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.core.interfaces import Clock, Cluster, Store, Telemetry
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import Record
from shoestring.core.types import Market, Pool, Quote, RejectedPrice

REGISTRY = "ghcr.io/shoestring-ml"
IMAGES = {name: f"{REGISTRY}/shoestring-{name}:0.2.0" for name in ("base", "train", "train-gpu")}
"""The published images, by the names that a Need uses. A world may have others under these names; any other name is a full one already."""


class CommittedHours(Record):
    """Machine-hours of a month that are paid for already, as they bear on one pool and market. `part`: how many of them an hour there
    takes; `used_hours`: those that attempts have claimed."""

    name: str
    pool: str
    market: Market
    month: str
    max_hours: float = Field(gt=0)
    hours_per_hour: float = Field(1.0, gt=0)
    used_hours: float = Field(0.0, ge=0)

    @property
    def left_hours(self) -> float:
        return max(0.0, self.max_hours - self.used_hours)

    @property
    def left_ms(self) -> int:
        """For how long the pool is free."""
        return int(self.left_hours / self.hours_per_hour * 3_600_000)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """What the provider's prices became at the door."""

    quotes: tuple[Quote, ...]
    rejected: tuple[RejectedPrice, ...]
    tariffs: Tariffs
    committed: tuple[CommittedHours, ...] = ()


class Prices(Protocol):
    def book(self) -> PriceBook: ...

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        """What an hour of what was quoted costs by now, as the world's own files say. None: nothing that can be believed."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """One of each.

    `images`: full names, by the names that a Need uses. `notes`: sentences on what of the world's own files and nodes could not be used,
    and what was used instead; those on nodes are there once pools or prices have been asked for.
    """

    name: str
    digest: str
    policy: Policy
    budgets: Budgets
    images: dict[str, str]
    notes: Sequence[str]
    prices: Prices
    cluster: Cluster
    store: Store
    telemetry: Telemetry
    clock: Clock
    pod: PodRef
