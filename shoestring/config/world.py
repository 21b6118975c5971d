"""The world that a run sees: its policy, budgets and images, and the interfaces to its prices, cluster and
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from pydantic import Field

from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.core.interfaces import Clock, Cluster, RemoteSources, Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import Record
from shoestring.core.types import Market, Pool, Quote, RejectedPrice

REGISTRY = "ghcr.io/shoestring-ml"
IMAGES = {name: f"{REGISTRY}/shoestring-{name}:0.3.0" for name in ("base", "train", "train-gpu")}
"""The published images, by the names that a Need uses.

A world may map these names to other images; any other name is a full image name.
"""

WORLD_FILES = ("world", "pools", "prices", "policy", "budgets")
"""The files that describe a cluster's world. Each comes from a ConfigMap `shoestring-NAME` with one key,
NAME.yaml.
"""


class CommittedHours(Record):
    """Prepaid machine-hours of a month, as they apply to one pool and market.

    `hours_per_hour`: committed hours that one hour of the pool uses. `used_hours`: hours that attempts have
    claimed.
    """

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
        """Return for how many milliseconds the pool is prepaid."""
        return int(self.left_hours / self.hours_per_hour * 3_600_000)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The validated prices: accepted quotes, rejected rows, tariffs and commitments.

    `steps`: what the pod of a route or exit step pays, by node pool, for pools whose nodes may take it; empty
    where it is a process on this machine.
    """

    quotes: tuple[Quote, ...]
    rejected: tuple[RejectedPrice, ...]
    tariffs: Tariffs
    committed: tuple[CommittedHours, ...] = ()
    steps: tuple[Quote, ...] = ()


class Prices(Protocol):
    def book(self) -> PriceBook: ...

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        """Return the current price of a quote from the world's own files; None if no valid price is found."""
        ...

    def charged_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        """Return the price that a running attempt pays now, also where no stage would be placed at it.

        None: the world's own files name none now. They may be half written, or the row may be gone, doubled
        or impossible.
        """
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a run depends on outside itself: the settings of its owners, and one of each interface.

    `images`: full image names, by the names that a Need uses. `notes`: sentences on world files and nodes
    that could not be used, and their replacement; those on nodes appear after the first read of pools or
    prices. `trains_on_gpus`: networks may be trained on its GPUs.
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
    remote: RemoteSources
    clock: Clock
    pod: PodRef
    trains_on_gpus: bool = True
