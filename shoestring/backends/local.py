"""The five seams on one machine: a folder, a YAML file, processes, psutil, the wall clock. Also what the tests use."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, Self

import psutil
from pydantic import Field, model_validator

from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import IMAGES, PriceBook, World
from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import NotInStore, StoreError, StoreFull, WorldError
from shoestring.core.interfaces import Clock, PodLifetime, ProcessUsage
from shoestring.core.types import STANDARD_CLASS, Placement, Pool, Quote, digest
from shoestring.pricing.catalogues import open_catalogue
from shoestring.pricing.price_book import Listing, parse_book, read_listing
from shoestring.pricing.price_list import PriceList

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

ONE_SHELF = "the store is a folder, which has one storage class: those of storage_classes ({}) are not offered, a store on S3 may have them"

# Where every pod on a cluster has the world's files: a folder for each, from a ConfigMap.
MOUNTED_WORLD = Path("/etc/shoestring")


class WorldFile(PriceList):
    """`world.yaml`: what there is to run on, what it costs, and where the store is."""

    schema_version: Literal[1] = 1
    name: str = "laptop"
    purpose: Literal["run", "plan"] = Field(
        "run", description="'plan': a price list to think with; nothing runs on it"
    )
    store: str = Field(min_length=1, description="folder of the object store; ~ is the home directory")
    pools: tuple[Pool, ...] = Field(min_length=1)
    tariffs: Tariffs = Tariffs()
    policy: Policy = Policy()
    budgets: Budgets = Budgets()
    images: dict[str, str] = Field(
        {}, description="full names of images, by the names that stages use; else the published ones"
    )

    @model_validator(mode="after")
    def _can_be_run_on(self) -> Self:
        if self.purpose == "run" and (several := [pool.name for pool in self.pools if pool.nodes > 1]):
            raise ValueError(
                f"{', '.join(several)}: a stage's pod runs on one machine; say `purpose: plan`, or nodes: 1"
            )
        return self

    @property
    def usable_tariffs(self) -> Tariffs:
        """With the storage classes that can be used: a folder has one, and a price list to think with is of any store."""
        return (
            self.tariffs.model_copy(update={"storage_classes": {}}) if self.purpose == "run" else self.tariffs
        )


class FolderStore:
    """Objects as files. A write is a temporary file, flushed, then linked into place: whole or not there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fetch(self, key: str) -> Path:
        path = self.root / key
        if not path.is_file():
            raise NotInStore(key)
        return path

    def put(self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS) -> bool:
        path = self.root / key
        if if_absent and path.exists():
            return False
        temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
        try:
            self._make_folder(path.parent)
            self._write(temporary, data)
            if if_absent:
                try:
                    os.link(temporary, path)
                except FileExistsError:
                    return False
            else:
                temporary.replace(path)
            self._flush_folder(path.parent)
            return True
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StoreFull(
                    f"no space left for {key} in {self.root}: nothing of it was written; free some and run again"
                ) from error
            raise StoreError(f"cannot write {key} in {self.root}: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            self._flush_folder(folder.parent)

    @staticmethod
    def _flush_folder(folder: Path) -> None:
        """A file that is flushed is only there after a power cut when its name is, too."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @staticmethod
    def _write(path: Path, data: bytes | Path) -> None:
        with path.open("wb") as file:
            if isinstance(data, bytes):
                file.write(data)
            else:
                with data.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())

    def list(self, prefix: str) -> Iterator[str]:
        folder = self.root / (prefix if prefix.endswith("/") else prefix.rpartition("/")[0])
        found = (path.relative_to(self.root).as_posix() for path in folder.rglob("*") if path.is_file())
        # Hidden: what is being written, and what whoever died at it, or at a probe of the volume, left.
        yield from sorted(key for key in found if key.startswith(prefix) and "/." not in f"/{key}")


class FilePrices:
    """The price rows of the world file."""

    def __init__(self, world: WorldFile, source: Path | None = None, clock: Clock | None = None) -> None:
        """`source`: the file that the world was read from, to be read again; None: prices never move. Raises WorldError."""
        self._source, self._clock = source, clock or WallClock()
        self.listing = listing_of(world, source)
        self._book = self._parsed(world, self.listing)
        self._written, self._newest = written_at(source), self._book

    def _parsed(self, world: WorldFile, listing: Listing) -> PriceBook:
        return parse_book(listing, world.pools, world.usable_tariffs, self._clock.now().date())

    def book(self) -> PriceBook:
        return self._book

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        """By the newest file that can be read: one that is half written says nothing yet."""
        if self._source and (written := written_at(self._source)) != self._written:
            with contextlib.suppress(WorldError):
                file = read_world_file(self._source)
                self._newest, self._written = self._parsed(file, listing_of(file, self._source)), written
        return price_of(self._newest.quotes, quote)


def listing_of(world: WorldFile, source: Path | None) -> Listing:
    """A world file's prices, and the lists that it names, from where it lies. Raises WorldError."""
    return read_listing(world, lambda file: open_catalogue(file, source.parent if source else Path()))


def written_at(source: Path | None) -> tuple[int, int]:
    """When a file was written last, and how long it is: whether it may say something else by now. Zeros where there is none."""
    try:
        found = source.stat() if source else None
    except OSError:
        found = None
    return (found.st_mtime_ns, found.st_size) if found else (0, 0)


def price_of(quotes: Sequence[Quote], quote: Quote) -> Decimal | None:
    """What the newest quotes say of the same pool and market."""
    return next(
        (each.usd_per_hour for each in quotes if (each.pool, each.market) == (quote.pool, quote.market)), None
    )


class LocalCluster:
    """Pools that are so many cores of this machine. macOS has no CPU affinity: there the pools differ in threads only."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self._pools = pools

    def pools(self) -> tuple[Pool, ...]:
        return self._pools

    def apply_placement(self, placement: Placement) -> dict[str, str]:
        cores = max(1, int(float(placement.cpu)))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, idlest_cores(cores))
        return threads(cores)

    def lifetime(self, pod_uid: str) -> PodLifetime:
        if "?" in pod_uid:
            # Known by its labels alone, which processes do not have.
            return PodLifetime(alive=False)
        host, pid, created_ms = pod_uid.rsplit(".", 2)
        if host != socket.gethostname():
            # Nobody can tell from here; the run's own machine settles it.
            return PodLifetime(alive=True)
        started_at = datetime.fromtimestamp(int(created_ms) / 1000 + boot_fraction_s(), UTC)
        try:
            process = psutil.Process(int(pid))
            same = abs(int(process.create_time() * 1000) - int(created_ms)) < 1000
            return PodLifetime(alive=same and process.status() != psutil.STATUS_ZOMBIE, started_at=started_at)
        except psutil.NoSuchProcess:
            return PodLifetime(alive=False, started_at=started_at)


def boot_fraction_s() -> float:
    """What a process's creation time lacks: Linux counts it from a boot that it gives in whole seconds."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()


def threads(cores: int) -> dict[str, str]:
    """What tells numeric libraries how many threads to keep, read when they are loaded.

    A thread that spins for its next turn takes the core from whoever else needs it: with another process on one of two cores,
    training fell from 50,000 rows a second to 1,500.
    """
    return dict.fromkeys(THREAD_VARIABLES, str(cores)) | {"OMP_WAIT_POLICY": "PASSIVE"}


def idlest_cores(count: int) -> set[int]:
    """The cores of this process's affinity that were least busy over the last twentieth of a second."""
    allowed = sorted(os.sched_getaffinity(0))
    busy = dict(enumerate(psutil.cpu_percent(interval=0.05, percpu=True)))
    return set(sorted(allowed, key=lambda core: (busy.get(core, 0.0), core))[:count])


class PsutilTelemetry:
    def usage(self, pid: int) -> ProcessUsage:
        try:
            # Stages compute in threads; looking for children means reading all of /proc, every second.
            process = psutil.Process(pid)
            times = process.cpu_times()
            return ProcessUsage(times.user + times.system, process.memory_info().rss)
        except psutil.NoSuchProcess:
            return ProcessUsage(0.0, 0)


class WallClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def this_pod_uid() -> str:
    """Host, process id and creation time: no other process ever has all three."""
    process = psutil.Process()
    return f"{socket.gethostname()}.{process.pid}.{int(process.create_time() * 1000)}"


def default_world_path() -> Path:
    """What $SHOESTRING_WORLD names; else the files that a pod was given, where there are any; else the one in the home folder."""
    if named := os.environ.get("SHOESTRING_WORLD"):
        return Path(named)
    if MOUNTED_WORLD.is_dir():
        return MOUNTED_WORLD
    return Path(os.environ.get("XDG_CONFIG_HOME", "~/.config")).expanduser() / "shoestring" / "world.yaml"


def read_world_file(path: Path) -> WorldFile:
    """Parse a world file. Raises WorldError with the place and the mend."""
    missing = f"there is no world file at {path}: make one with `shoestring world init --out {path}`"
    return parse(read_text(path, missing, WorldError), WorldFile, str(path), WorldError)


def open_local_world(
    path: Path | None = None, *, store: Path | None = None, clock: Clock | None = None
) -> World:
    """The World that a world file names. `store` overrides its folder. Raises WorldError."""
    source = path or default_world_path()
    file = read_world_file(source)
    names = [pool.name for pool in file.pools]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise WorldError(f"{source}: pools named twice: {', '.join(doubled)}")
    cores = os.cpu_count() or 1
    if file.purpose == "run" and (
        large := [f"{pool.name} has {pool.cores}" for pool in file.pools if pool.cores > cores]
    ):
        raise WorldError(
            f"{source}: {', '.join(large)} cores, and this machine {cores}: mend it, or set `purpose: plan` to think with it"
        )
    prices = FilePrices(file, source, clock)
    return World(
        name=file.name,
        digest=digest(file.model_dump_json(exclude={"store"}).encode() + prices.listing.bytes),
        policy=file.policy,
        budgets=file.budgets,
        images=IMAGES | file.images,
        notes=()
        if file.usable_tariffs == file.tariffs
        else (ONE_SHELF.format(", ".join(file.tariffs.storage_classes)),),
        prices=prices,
        cluster=LocalCluster(file.pools),
        store=FolderStore((store or Path(file.store)).expanduser().absolute()),
        telemetry=PsutilTelemetry(),
        clock=clock or WallClock(),
        pod_uid=this_pod_uid(),
    )
