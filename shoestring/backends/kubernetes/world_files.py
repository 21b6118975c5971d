"""The files that describe a cluster's world: NAME/NAME.yaml for each NAME of WORLD_FILES, as ConfigMaps are
mounted into a pod.

Each file has its own folder, because a pod never sees a change of a ConfigMap that is mounted as a single
file. `world.yaml` names the store and must be valid. Of each other file, the store keeps the last good copy,
which replaces the file while it is malformed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from shoestring.backends.s3.location import S3Location
from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import WORLD_FILES
from shoestring.config.yaml_files import parse, read_text
from shoestring.core import store_layout
from shoestring.core.errors import NotInStore, WorldError
from shoestring.core.interfaces import Store
from shoestring.core.record import SCHEMA_VERSION, Record, SchemaVersion, StoredRecord, digest, record_bytes
from shoestring.core.types import Market
from shoestring.pricing.catalogues import (
    Catalogue,
    PriceListing,
    default_catalogue,
    open_catalogue,
    read_listing,
)
from shoestring.pricing.price_list import DEFAULT_CATALOGUE, CatalogueFile, PriceList
from shoestring.pricing.rows import parse_rows

SPOT_PREEMPTIONS_PER_HOUR = 0.0003
"""-ln(1 - 0.2) / 730: AWS' spot advisor (2025-06-28) reports "over 20%" interruptions in a month for the most
interrupted machines.
"""

Parsed = TypeVar("Parsed")


class ClusterWorldFile(StoredRecord):
    """`world.yaml` of a cluster."""

    name: str = Field("cluster", min_length=1)
    store: S3Location
    images: dict[str, str] = Field(
        {}, description="full names of images, by the names that stages use; default: the published images"
    )
    tariffs: Tariffs = Tariffs()


class Taint(Record):
    """A taint of a node; the names are Kubernetes' own."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] = "NoSchedule"


class Machine(Record):
    """The resources of one node that stages can use: allocatable resources less those of daemonsets and
    engine containers.
    """

    name: str = Field(
        "", description="name in price lists: n2-standard-4, p5.48xlarge, ...; empty: from the nodes' labels"
    )
    cores: int = Field(ge=1)
    memory_gb: float = Field(gt=0)
    gpu: str | None = None
    gpu_count: int = Field(0, ge=0)
    gpu_memory_gb: float = Field(0.0, ge=0, description="memory of one GPU; 0: from the GPU's name")
    gpu_tflops: float = Field(
        0.0, ge=0, description="peak dense bf16/fp16 TFLOP/s of one GPU; 0: from the GPU's name"
    )
    core_speed: float = Field(
        1.0, gt=0, description="speed of one core; 1: the reference core, 1e9 useful operations/s"
    )


class NodePool(Record):
    """A group of like nodes on one market.

    A group that is bought on two markets is two pools, which differ by a label.
    """

    name: str = Field(min_length=1, pattern="^[^/]*$")
    labels: dict[str, str] = Field(
        min_length=1,
        description="a node that carries all of these labels belongs to the pool; pods are placed by them",
    )
    taints: tuple[Taint, ...] = Field(
        (), description="taints of the pool's nodes; pods on the pool tolerate these and no others"
    )
    market: Market = Market.ON_DEMAND
    machine: Machine | None = Field(
        None, description="required for a pool that may have no node, or whose nodes may not be read"
    )
    max_nodes: int = Field(
        0, ge=0, description="number of nodes to which an autoscaler may grow the pool; 0: no autoscaler"
    )
    startup_s: float = Field(
        120.0,
        ge=0,
        description="billed seconds from a pod's creation to its first output when a node must be created",
    )
    warm_startup_s: float = Field(5.0, ge=0, description="the same on an existing node")
    preemptions_per_hour: float | None = Field(
        None, ge=0, description=f"null: {SPOT_PREEMPTIONS_PER_HOUR} on spot, else 0"
    )
    region: str = "local"

    @model_validator(mode="after")
    def _growing_pool_has_machine(self) -> NodePool:
        if self.max_nodes and not self.machine:
            raise ValueError("a pool that can grow (max_nodes) must describe its machine")
        return self


class PoolsFile(StoredRecord):
    """`pools.yaml`: what existing nodes do not show of node pools, such as pools with no node yet, speeds and
    start-up times.
    """

    pools: tuple[NodePool, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> PoolsFile:
        names = [pool.name for pool in self.pools]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"pools named twice: {', '.join(doubled)}")
        return self


class PricesFile(PriceList):
    """`prices.yaml`: the prices of whole nodes. Price lists that it names are in the same folder."""

    schema_version: SchemaVersion = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The content of all files. `notes`: a sentence for each file that its last good copy replaced."""

    world: ClusterWorldFile
    pools: tuple[NodePool, ...]
    listing: PriceListing
    policy: Policy
    budgets: Budgets
    notes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The digest of what decisions depend on; they do not depend on the store's location."""
        files = (PoolsFile(pools=self.pools), self.policy, self.budgets)
        return digest(
            self.world.model_dump_json(exclude={"store"}).encode()
            + b"".join(record_bytes(file) for file in files)
            + self.listing.bytes
        )


def file_path(folder: Path, name: str) -> Path:
    return folder / name / f"{name}.yaml"


def read_world(folder: Path) -> ClusterWorldFile:
    """Parse `world.yaml` of a folder. Raises WorldError."""
    path = file_path(folder, "world")
    names = ", ".join(f"{name}/{name}.yaml" for name in WORLD_FILES)
    missing = f"there is no {path}: a cluster's world is a folder with {names}"
    return parse(read_text(path, missing, WorldError), ClusterWorldFile, str(path), WorldError)


def read_cluster_files(folder: Path, world: ClusterWorldFile, store: Store) -> ClusterFiles:
    """Parse the other files.

    A valid file is copied to the store, and the copy replaces a file that is malformed.

    Raises:
        WorldError: a file is missing or malformed, and the store has no copy of it.
    """
    notes: list[str] = []

    def read(name: str, parse_text: Callable[[str, str], Parsed]) -> Parsed:
        path = file_path(folder, name)
        missing = f"there is no {path}: mount the ConfigMap shoestring-{name} there"
        return _read_or_last_good(
            path, store_layout.world_file(f"{name}.yaml"), missing, parse_text, store, notes
        )

    def catalogue(file: CatalogueFile) -> Catalogue:
        if file.file == DEFAULT_CATALOGUE:
            return default_catalogue()
        path, key = folder / "prices" / file.file, store_layout.world_file(f"lists/{file.file}")
        missing = f"there is no {path}: put the file into the ConfigMap shoestring-prices"
        return _read_or_last_good(
            path, key, missing, lambda text, _: Catalogue(file, text).validated(), store, notes
        )

    pools = read("pools", lambda text, place: parse(text, PoolsFile, place, WorldError))
    prices = read("prices", _parse_prices)
    policy = read("policy", lambda text, place: parse(text, Policy, place, WorldError))
    budgets = read("budgets", lambda text, place: parse(text, Budgets, place, WorldError))
    return ClusterFiles(world, pools.pools, read_listing(prices, catalogue), policy, budgets, tuple(notes))


def read_prices(path: Path) -> PriceListing:
    """Return the current prices of whole nodes from `prices.yaml` and its price lists, not validated yet.

    Raises WorldError.
    """
    file = _parse_prices(read_text(path, f"there is no {path}", WorldError), str(path))
    return read_listing(file, lambda catalogue: open_catalogue(catalogue, path.parent).validated())


def _parse_prices(text: str, place: str) -> PricesFile:
    file = parse(text, PricesFile, place, WorldError)
    try:
        parse_rows(file.prices, file.rates)
    except WorldError as error:
        raise WorldError(f"{place}: {error}") from None
    return file


def _read_or_last_good(
    path: Path,
    key: str,
    missing: str,
    parse_text: Callable[[str, str], Parsed],
    store: Store,
    notes: list[str],
) -> Parsed:
    """Return a file's content; if it is malformed, return its last good copy and add a note.

    Raises WorldError.
    """
    last_good = _last_good(store, key)
    try:
        text = read_text(path, missing, WorldError)
        file = parse_text(text, str(path))
    except WorldError as error:
        if last_good is None:
            raise
        notes.append(f"{error}; the last good copy is used, {key} in the store")
        return parse_text(last_good.decode(), f"{key} in the store")
    if text.encode() != last_good:
        store.put(key, text.encode())
    return file


def _last_good(store: Store, key: str) -> bytes | None:
    try:
        return store.fetch(key).read_bytes()
    except NotInStore:
        return None
