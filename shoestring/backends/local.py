"""The interfaces on one machine: a world file, processes, psutil and the wall clock.

Tests use them as fakes of a cluster.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, Self

import psutil
import yaml
from pydantic import Field, model_validator

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local_tasks import task_lifetime
from shoestring.backends.nvml import pytorch_without_cuda
from shoestring.backends.processes import (
    boot_fraction_s,
    find_process,
    least_busy_cores,
    process_ref,
    thread_variables,
)
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import IMAGES, PriceBook, World
from shoestring.config.yaml_files import parse, read_text
from shoestring.config.yaml_loader import load
from shoestring.core.errors import WorldError
from shoestring.core.interfaces import Clock, PodLifetime
from shoestring.core.pod_ref import LabelledPod, LocalProcess, PodRef, this_place
from shoestring.core.record import SCHEMA_VERSION, SchemaVersion, digest
from shoestring.core.types import Placement, Pool, Quote
from shoestring.pricing.catalogues import ListingFile, PriceListing, open_catalogue, read_listing
from shoestring.pricing.price_book import build_price_book, charged_price
from shoestring.pricing.price_list import PriceList

ONE_STORAGE_CLASS = (
    "the store is a folder, which has one storage class: the storage_classes {} are not offered; a store on "
    "S3 may have them"
)

WORLD_MOUNT_PATH = Path("/etc/shoestring")
"""Where every pod on a cluster finds the world's files: one folder each, mounted from a ConfigMap."""


class WorldFile(PriceList):
    """`world.yaml` of one machine: its pools, their prices, and the store."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    name: str = "laptop"
    purpose: Literal["run", "plan"] = Field(
        "run", description="'plan': the file is only planned with, and nothing can run on its pools"
    )
    store: str = Field(min_length=1, description="folder of the object store; ~ is the home directory")
    pools: tuple[Pool, ...] = Field(min_length=1)
    tariffs: Tariffs = Tariffs()
    policy: Policy = Policy()
    budgets: Budgets = Budgets()
    images: dict[str, str] = Field(
        {}, description="full names of images, by the names that stages use; default: the published images"
    )

    @model_validator(mode="after")
    def _check_runnable(self) -> Self:
        if self.purpose == "run" and (several := [pool.name for pool in self.pools if pool.nodes > 1]):
            raise ValueError(
                f"{', '.join(several)}: a stage's pod runs on one machine; set `purpose: plan`, or nodes: 1"
            )
        return self

    @property
    def usable_tariffs(self) -> Tariffs:
        """The tariffs, without storage classes where the store is a folder: a folder has one storage class.

        A file with `purpose: plan` keeps them, since its store may be of any kind.
        """
        if self.purpose == "plan":
            return self.tariffs
        return self.tariffs.model_copy(update={"storage_classes": {}})


WorldReader = Callable[[Path], WorldFile]


class FilePrices:
    """The price rows of a world file."""

    def __init__(
        self,
        world: WorldFile,
        source: Path | None = None,
        clock: Clock | None = None,
        read: WorldReader | None = None,
    ) -> None:
        """`source` is the file that the world was read from, which is read again, by `read` if that is given;
        None: prices never change.

        Raises WorldError.
        """
        self.world, self._clock, self._read_world = world, clock or WallClock(), read or read_world_file
        if read and source:
            with suppress(WorldError):
                world = read(source)
        self.listing = price_listing(world, source)
        self._book = self._newest = self._build(world, self.listing)
        self._file = ListingFile(self.listing, source, self._read)

    def _build(self, world: WorldFile, listing: PriceListing) -> PriceBook:
        return build_price_book(listing, world.pools, world.usable_tariffs, self._clock.now().date())

    def _read(self, source: Path) -> PriceListing:
        file = self._read_world(source)
        listing = price_listing(file, source)
        self._newest = self._build(file, listing)
        return listing

    def book(self) -> PriceBook:
        return self._book

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        """Return the price from the newest readable version of the file.

        A file that is half written is ignored.
        """
        self._file.look()
        return find_price(self._newest.quotes, quote)

    def charged_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        if (listing := self._file.look()) is None:
            return None
        return charged_price(listing, pool, quote.market, self._clock.now().date(), quote.usd_per_hour)


def price_listing(world: WorldFile, source: Path | None) -> PriceListing:
    """Return the prices of a world file, and the price lists that it names relative to its folder.

    Raises WorldError.
    """
    return read_listing(world, lambda file: open_catalogue(file, source.parent if source else Path()))


def find_price(quotes: Sequence[Quote], quote: Quote) -> Decimal | None:
    """Return the price of the same pool and market among newer quotes; None if there is none."""
    return next(
        (each.usd_per_hour for each in quotes if (each.pool, each.market) == (quote.pool, quote.market)), None
    )


class LocalCluster:
    """Pools that are numbers of cores of this machine.

    macOS has no CPU affinity: there, pools differ only in their number of threads.
    """

    def __init__(self, pools: tuple[Pool, ...], place: tuple[str, str] | None = None) -> None:
        """`place`: boot and PID namespace; None: those of this process."""
        self._pools, self._place = pools, this_place() if place is None else place

    def pools(self) -> tuple[Pool, ...]:
        return self._pools

    def apply_placement(self, placement: Placement) -> dict[str, str]:
        cores = max(1, int(float(placement.cpu)))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, least_busy_cores(cores))
        return thread_variables(cores)

    def lifetime(self, pod: PodRef) -> PodLifetime:
        if isinstance(pod, LabelledPod):
            return task_lifetime(pod)
        if not isinstance(pod, LocalProcess) or pod.host != socket.gethostname():
            # This machine cannot see the process. The run's own machine settles it.
            return PodLifetime(alive=True)
        if pod.boot and (pod.boot, pod.namespace) != self._place:
            return PodLifetime(alive=True, is_seen=False)
        started_at = datetime.fromtimestamp(pod.created_ms / 1000 + boot_fraction_s(), UTC)
        return PodLifetime(alive=find_process(pod) is not None, started_at=started_at)


class WallClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def this_process() -> LocalProcess:
    return process_ref(psutil.Process())


def default_world_path() -> Path:
    """Return $SHOESTRING_WORLD; else the folder that is mounted into pods, if it exists; else the file in the
    home folder.
    """
    if named := os.environ.get("SHOESTRING_WORLD"):
        return Path(named)
    if WORLD_MOUNT_PATH.is_dir():
        return WORLD_MOUNT_PATH
    return Path(os.environ.get("XDG_CONFIG_HOME", "~/.config")).expanduser() / "shoestring" / "world.yaml"


def read_world_file(path: Path) -> WorldFile:
    """Parse a world file. Raises WorldError, which names the field and the fix."""
    missing = f"there is no world file at {path}: make one with `shoestring world init --out {path}`"
    text = read_text(path, missing, WorldError)
    check_not_clusters(path, text)
    return parse(text, WorldFile, str(path), WorldError)


def check_not_clusters(path: Path, text: str) -> None:
    """Raises WorldError if a file is `world.yaml` of a cluster, of which the other files are missing."""
    try:
        content = load(text)
    except (yaml.YAMLError, ValueError):
        # The parser of world files reports it.
        return
    if not isinstance(content, dict) or not isinstance(content.get("store"), dict):
        return
    folder = path.absolute().parent.parent
    mounted = path.absolute().parent.name == "world" and (folder / "pools").is_dir()
    wanted = (
        f"give its folder, --world {folder}"
        if mounted
        else "--world takes a folder with world/world.yaml, pools/pools.yaml, prices/prices.yaml, "
        "policy/policy.yaml and budgets/budgets.yaml"
    )
    raise WorldError(
        f"{path} is the world.yaml of a cluster (its store is on S3), one of five files: {wanted}; or read "
        "them all from the cluster, with --on CONTEXT"
    )


def open_local_world(
    path: Path | None = None,
    *,
    store: Path | None = None,
    clock: Clock | None = None,
    admitted: WorldFile | None = None,
    read: WorldReader | None = None,
) -> World:
    """Open the World that a world file describes.

    `store` overrides the file's store folder. `admitted` counts in place of the file, and `read` reads its
    prices. Raises WorldError.
    """
    source = path or default_world_path()
    file = admitted or read_world_file(source)
    check_pools(file, source)
    prices = FilePrices(file, source, clock, read)
    unused = "" if file.usable_tariffs == file.tariffs else ", ".join(file.tariffs.storage_classes)
    has_gpus = file.purpose == "run" and any(pool.gpu_count for pool in file.pools)
    no_cuda = pytorch_without_cuda() if has_gpus else ""
    return World(
        name=file.name,
        digest=digest(file.model_dump_json(exclude={"store"}).encode() + prices.listing.bytes),
        policy=file.policy,
        budgets=file.budgets,
        images=IMAGES | file.images,
        notes=(*([ONE_STORAGE_CLASS.format(unused)] if unused else []), *([no_cuda] if no_cuda else [])),
        prices=prices,
        cluster=LocalCluster(file.pools),
        store=FolderStore((store or Path(file.store)).expanduser().absolute()),
        remote=ObstoreSources(),
        clock=clock or WallClock(),
        pod=this_process(),
        trains_on_gpus=not no_cuda,
    )


def check_pools(file: WorldFile, source: Path) -> None:
    """Check that pool names are unique and that this machine has the cores. Raises WorldError."""
    names = [pool.name for pool in file.pools]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise WorldError(f"{source}: pools named twice: {', '.join(doubled)}")
    cores = os.cpu_count() or 1
    if file.purpose == "run" and (
        large := [f"{pool.name} has {pool.cores}" for pool in file.pools if pool.cores > cores]
    ):
        raise WorldError(
            f"{source}: {', '.join(large)} cores, but this machine has {cores}: reduce them, or set "
            "`purpose: plan` to only plan"
        )
