"""A laptop whose disk was measured once and for all, a clock that goes as fast as it is told to, and a run on both."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from clocks import StillClock

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import LocalCluster, open_local_world
from shoestring.config.policy import Policy
from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded
from shoestring.core.interfaces import PodLifetime, Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.core.types import Format, FormatSpeed, Need, Pool, VolumeProbe
from shoestring.data.formats.volume_probe import volume_id
from shoestring.data.recipe import Recipe, read_recipe
from shoestring.data.run_records import Run
from shoestring.runtime.admission.admit import RunRequest, admit
from shoestring.runtime.admission.stage_results import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import background_io
from shoestring.runtime.supervisor.supervisor import watch_child
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages import evaluate, ingest, preprocess, train

CHAIN = (ingest.NEED, preprocess.NEED, train.NEED, evaluate.NEED)
INGEST = (ingest.NEED,)
TRAIN = (train.NEED,)
MONEY = Decimal("0.01")


class SetClock(StillClock):
    """Begins at the real time it was made."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))


class FastClock:
    """Real time, `times` as fast."""

    def __init__(self, times: float) -> None:
        self._times, self._began, self._began_s = times, datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic_s())

    def monotonic_s(self) -> float:
        return (time.monotonic() - self._began_s) * self._times

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._times)


def measured(folder: Path, world: World) -> World:
    """Put the speeds of an ordinary disk where the probe would, so that every test decides from the same numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    speeds = tuple(
        FormatSpeed(
            format=format,
            write_ns_per_row=900,
            write_bytes_per_s=10**9,
            scan_ns_per_row=300,
            scan_bytes_per_s=10**9,
            take_ns_per_row=3000,
            take_bytes_per_s=10**9,
            size_ratio=0.5,
        )
        for format in Format
    )
    probe = VolumeProbe(volume=volume_id(folder), as_of=world.clock.now(), speeds=speeds)
    world.store.put(f"learned/probes/{probe.volume}.json", record_bytes(probe))
    return world


def far_away(laptop: Path, folder: Path, tariffs: dict[str, Any]) -> Path:
    """A world file whose one pool is in another region than its store."""
    content = yaml.safe_load(laptop.read_text())
    content["pools"] = [content["pools"][0] | {"region": "away"}]
    content["prices"] = content["prices"][:1]
    content["tariffs"] |= {"store_region": "here"} | tariffs
    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def small_world(world_file: Path, folder: Path, clock: SetClock | FastClock | None = None) -> World:
    return measured(folder / "store", open_local_world(world_file, store=folder / "store", clock=clock))


def on(world: World, store: Store) -> World:
    return replace(world, store=store)


def wish(
    recipe: Path | Recipe, run_id: str = "r", needs: tuple[Need, ...] = CHAIN, budget_usd: Decimal = MONEY
) -> RunRequest:
    found = read_recipe(recipe) if isinstance(recipe, Path) else recipe
    return RunRequest(run_id, found, needs, budget_usd, None, 7)


def refused_at_once(count: int, act: Callable[[int], object]) -> list[str]:
    """What the ledger said to those who lost, of so many threads that act at the same moment."""
    gate, lost = threading.Barrier(count), list[str]()

    def race(number: int) -> None:
        gate.wait()
        try:
            act(number)
        except BudgetExceeded as error:
            lost.append(str(error))

    racers = [threading.Thread(target=race, args=(number,)) for number in range(count)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    return lost


@dataclass(frozen=True)
class Began:
    world: World
    run: Run
    attempt: Attempt
    ledger: Ledger

    @property
    def account(self) -> str:
        return self.run.start.account

    def hold_all_but(self, left_usd: Decimal) -> None:
        """Somebody else takes what is free, but for so much."""
        free_usd = self.ledger.state(self.account).left_usd
        assert free_usd is not None
        self.ledger.reserve(self.account, "rival-1", "rival", 1, free_usd - left_usd)


def begin(world: World, asked: RunRequest) -> Began:
    """Admit a run and route its first stage; the attempt starts now."""
    run = admit(world, asked)
    decision, key = decide_and_reserve(world, run, asked, StageInputs())
    assert decision.choice is not None
    attempt = Attempt(world, run, decision, key, {}, world.clock.monotonic_s(), decision.choice.p95_usd)
    return Began(world, run, attempt, Ledger(world.store, world.clock))


def variables(world_file: Path, folder: Path) -> dict[str, str]:
    """The environment of a pod of this run."""
    return os.environ | {"SHOESTRING_WORLD": str(world_file), "SHOESTRING_STORE": str(folder / "store")}


class TellingCluster(LocalCluster):
    """A cluster that says of pods, and of its pools, what it is told to; of all other pods that they live."""

    def __init__(self, pools: tuple[Pool, ...], lives: dict[str, PodLifetime] | None = None) -> None:
        super().__init__(pools)
        self.lives = lives or {}

    def lifetime(self, pod: PodRef) -> PodLifetime:
        return self.lives.get(str(pod), PodLifetime(alive=True))


def on_cluster(
    world: World, pools: tuple[Pool, ...] | None = None, rules: Policy | None = None
) -> tuple[World, TellingCluster]:
    """The same world where pods live and die elsewhere, and the cluster that tells of them."""
    cluster = TellingCluster(pools or world.cluster.pools())
    return replace(
        world, cluster=cluster, policy=rules or world.policy, pod=PodRef.parse("ns.0.router")
    ), cluster


def in_pod(began: Began, pod: str) -> Attempt:
    """The attempt, as a pod of this name makes it."""
    return replace(began.attempt, world=replace(began.world, pod=PodRef.parse(pod)))


def check_windows(windows: list[dict[str, int]]) -> None:
    """Every epoch's samples from its first on, none left out and none twice, across the kill."""
    epoch, position = 0, 0
    for window in windows:
        at_epoch, first, last = window["epoch"], window["first"], window["last"]
        if at_epoch != epoch:
            assert at_epoch == epoch + 1
            epoch, position = at_epoch, 0
        assert first == position
        position = last


class AwayStore(FolderStore):
    """A folder whose writes wait until it is back; `what`: only those of keys with this in them."""

    def __init__(self, root: Path, what: str = "") -> None:
        super().__init__(root)
        self.back, self._what = threading.Event(), what

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if self._what in key:
            self.back.wait()
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def a_child(text: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def watched(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path) -> None:
    with background_io() as writer:
        watch_child(attempt, child, scratch, writer)
