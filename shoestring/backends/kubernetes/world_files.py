"""The world of a cluster as files: one folder with NAME/NAME.yaml for each NAME of FILES, as ConfigMaps are mounted into a pod.

A folder a name, because a ConfigMap that is mounted as a single file is never seen to change. `world.yaml` names the store, so it has
to be right; of the others the store keeps the last good copy, which takes the place of a file that somebody broke.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from shoestring.backends.s3.wire import S3Place
from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import NotInStore, WorldError
from shoestring.core.interfaces import Store
from shoestring.core.record import SCHEMA_VERSION, Record, StoredRecord, digest, record_bytes
from shoestring.core.types import Market
from shoestring.pricing.catalogues import Catalogue, default_catalogue, open_catalogue
from shoestring.pricing.price_book import PriceListing, read_listing
from shoestring.pricing.price_list import DEFAULT_CATALOGUE, CatalogueFile, PriceList
from shoestring.pricing.rows import parse_rows

FILES = ("world", "pools", "prices", "policy", "budgets")

# Spot machines of which AWS' spot advisor (2025-06-28) says that over 20% are interrupted in a month: -ln(1 - 0.2) / 730 an hour.
SPOT_PREEMPTIONS_PER_HOUR = 0.0003

Good = TypeVar("Good")


class ClusterWorldFile(StoredRecord):
    """`world.yaml` of a cluster."""

    name: str = Field("cluster", min_length=1)
    store: S3Place
    images: dict[str, str] = Field(
        {}, description="full names of images, by the names that stages use; else the published ones"
    )
    tariffs: Tariffs = Tariffs()


class Taint(Record):
    """A taint of a node; the names are Kubernetes' own."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] = "NoSchedule"


class Machine(Record):
    """What one node gives to stages: what is allocatable, less what daemonsets and an engine's own containers ask for."""

    name: str = Field(
        "", description="in price lists: n2-standard-4, p5.48xlarge, ...; empty: by the nodes' labels"
    )
    cores: int = Field(ge=1)
    memory_gb: float = Field(gt=0)
    gpu: str | None = None
    gpu_count: int = Field(0, ge=0)
    gpu_memory_gb: float = Field(0.0, ge=0, description="of one GPU; 0: by the GPU's name")
    gpu_tflops: float = Field(
        0.0, ge=0, description="peak dense bf16/fp16 TFLOP/s of one GPU; 0: by its name"
    )
    core_speed: float = Field(
        1.0, gt=0, description="1e9 useful operations a second of one core; 1 = the reference core"
    )


class NodePool(Record):
    """A group of like nodes, sold on one market: a group that is bought on two is two of these, told apart by their labels."""

    name: str = Field(min_length=1, pattern="^[^/]*$")
    labels: dict[str, str] = Field(
        min_length=1,
        description="a node that carries all of them belongs here, and a pod is sent here by them",
    )
    taints: tuple[Taint, ...] = Field(
        (), description="what its nodes are tainted with: its pods tolerate this and nothing else"
    )
    market: Market = Market.ON_DEMAND
    machine: Machine | None = Field(
        None, description="needed of a pool that may have no node yet, or whose nodes may not be read"
    )
    max_nodes: int = Field(
        0, ge=0, description="nodes that an autoscaler may grow it to; 0: nothing grows it"
    )
    startup_s: float = Field(
        120.0,
        ge=0,
        description="seconds from asking to the first line when a node has to be made for it, billed",
    )
    ready_s: float = Field(5.0, ge=0, description="the same on a node that is there")
    preemptions_per_hour: float | None = Field(
        None, ge=0, description=f"None: {SPOT_PREEMPTIONS_PER_HOUR} on spot, else 0"
    )
    region: str = "local"

    @model_validator(mode="after")
    def _can_be_made(self) -> NodePool:
        if self.max_nodes and not self.machine:
            raise ValueError("a pool that can grow (max_nodes) has to say what its machine is")
        return self


class PoolsFile(StoredRecord):
    """`pools.yaml`: node pools that the nodes alone do not tell of, or not all: those that grow from none, speeds, start-up times."""

    pools: tuple[NodePool, ...] = ()

    @model_validator(mode="after")
    def _named_once(self) -> PoolsFile:
        names = [pool.name for pool in self.pools]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"pools named twice: {', '.join(doubled)}")
        return self


class PricesFile(PriceList):
    """`prices.yaml`: what whole nodes cost. Price lists that it names lie beside it."""

    schema_version: Literal[3] = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Folder:
    """All that the files say. `notes`: a sentence for each that was replaced by its last good copy."""

    world: ClusterWorldFile
    pools: tuple[NodePool, ...]
    listing: PriceListing
    rules: Policy
    budgets: Budgets
    notes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of what decisions depend on: where the store is does not matter."""
        files = (PoolsFile(pools=self.pools), self.rules, self.budgets)
        return digest(
            self.world.model_dump_json(exclude={"store"}).encode()
            + b"".join(record_bytes(file) for file in files)
            + self.listing.bytes
        )


def file_path(folder: Path, name: str) -> Path:
    return folder / name / f"{name}.yaml"


def read_world(folder: Path) -> ClusterWorldFile:
    """`world.yaml` of a folder. Raises WorldError."""
    path = file_path(folder, "world")
    missing = f"there is no {path}: a cluster's world is a folder with {', '.join(f'{name}/{name}.yaml' for name in FILES)}"
    return parse(read_text(path, missing, WorldError), ClusterWorldFile, str(path), WorldError)


def read_folder(folder: Path, world: ClusterWorldFile, store: Store) -> Folder:
    """The other files, each kept in the store when it is good and new, and replaced by what was kept when it is not.

    Raises:
        WorldError: a file is missing or malformed, and no good copy of it was ever kept.
    """
    notes: list[str] = []

    def good(name: str, parsed: Callable[[str, str], Good]) -> Good:
        missing = f"there is no {file_path(folder, name)}: mount the ConfigMap shoestring-{name} there"
        return _good(file_path(folder, name), f"learned/world/{name}.yaml", missing, parsed, store, notes)

    def catalogue(file: CatalogueFile) -> Catalogue:
        if file.file == DEFAULT_CATALOGUE:
            return default_catalogue()
        path = folder / "prices" / file.file
        missing = f"there is no {path}: put the file into the ConfigMap shoestring-prices"
        return _good(
            path,
            f"learned/world/lists/{file.file}",
            missing,
            lambda text, _: Catalogue(file, text).validated(),
            store,
            notes,
        )

    pools = good("pools", lambda text, place: parse(text, PoolsFile, place, WorldError))
    prices = good("prices", _prices)
    rules = good("policy", lambda text, place: parse(text, Policy, place, WorldError))
    budgets = good("budgets", lambda text, place: parse(text, Budgets, place, WorldError))
    return Folder(world, pools.pools, read_listing(prices, catalogue), rules, budgets, tuple(notes))


def read_prices(path: Path) -> PriceListing:
    """The prices of whole nodes as `prices.yaml` and its lists have them now, not doubted yet. Raises WorldError."""
    file = _prices(read_text(path, f"there is no {path}", WorldError), str(path))
    return read_listing(file, lambda catalogue: open_catalogue(catalogue, path.parent))


def _prices(text: str, place: str) -> PricesFile:
    file = parse(text, PricesFile, place, WorldError)
    try:
        parse_rows(file.prices, file.rates)
    except WorldError as error:
        raise WorldError(f"{place}: {error}") from None
    return file


def _good(
    path: Path, key: str, missing: str, parsed: Callable[[str, str], Good], store: Store, notes: list[str]
) -> Good:
    """A file, or its last good copy, with a note that says so."""
    kept = _kept(store, key)
    try:
        text = read_text(path, missing, WorldError)
        file = parsed(text, str(path))
    except WorldError as error:
        if kept is None:
            raise
        notes.append(f"{error}; the last good copy is used, {key} in the store")
        return parsed(kept.decode(), f"{key} in the store")
    if text.encode() != kept:
        store.put(key, text.encode())
    return file


def _kept(store: Store, key: str) -> bytes | None:
    try:
        return store.fetch(key).read_bytes()
    except NotInStore:
        return None
