"""A local world with a fixed disk speed, clocks that tests control, and a started attempt."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from clocks import FastClock, StillClock

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import LocalCluster, open_local_world
from shoestring.config.engines import assumed_times
from shoestring.config.policy import Policy
from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded
from shoestring.core.interfaces import PodLifetime, Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import record_bytes
from shoestring.core.types import Format, Need, Pool
from shoestring.data.formats.volume_probe import volume_id
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.data.run_records import Run
from shoestring.pricing.format_speeds import FormatSpeed, VolumeProbe
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import RunRequest, recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.run_setup import StartTerms
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import background_io
from shoestring.runtime.supervisor.migration_check import make_monitor
from shoestring.runtime.supervisor.supervisor import watch_child
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages import evaluate, ingest, preprocess, train

CHAIN = (ingest.NEED, preprocess.NEED, train.NEED, evaluate.NEED)
INGEST = (ingest.NEED,)
TRAIN = (train.NEED,)
MONEY = Decimal("0.01")


class SetClock(StillClock):
    """A clock that starts at the time of its creation and moves only when it sleeps."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))


def with_probed_speeds(folder: Path, world: World) -> World:
    """Store the speeds of an ordinary disk as the probe would, so that tests decide from the same numbers."""
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


def world_in_other_region(laptop: Path, folder: Path, tariffs: dict[str, Any]) -> Path:
    """Write a world file whose only pool is in another region than its store."""
    content = yaml.safe_load(laptop.read_text())
    content["pools"] = [content["pools"][0] | {"region": "away"}]
    content["prices"] = content["prices"][:1]
    content["tariffs"] |= {"store_region": "here"} | tariffs
    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def small_world(world_file: Path, folder: Path, clock: SetClock | FastClock | None = None) -> World:
    return with_probed_speeds(
        folder / "store", open_local_world(world_file, store=folder / "store", clock=clock)
    )


def on(world: World, store: Store) -> World:
    return replace(world, store=store)


def run_request(
    recipe: Path | Recipe, run_id: str = "r", needs: tuple[Need, ...] = CHAIN, budget_usd: Decimal = MONEY
) -> RunRequest:
    found = read_recipe(recipe) if isinstance(recipe, Path) else recipe
    return recipe_request(run_id, found, needs, budget_usd, None, 7).with_terms(deadline_s=None)


def start_terms(budget_usd: Decimal) -> StartTerms:
    """Return the terms of a start without a launcher and without a deadline, on a laptop."""
    return StartTerms(
        budget_usd=budget_usd,
        deadline_s=None,
        launcher=None,
        engine=assumed_times("local", pod_s=3.0),
        overhead_usd=Decimal(0),
        elastic_stage="",
    )


def concurrent_refusals(count: int, act: Callable[[int], object]) -> list[str]:
    """Run `act` in `count` threads at once; return the ledger's refusals."""
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
class StartedAttempt:
    world: World
    run: Run
    attempt: Attempt
    ledger: Ledger

    @property
    def account(self) -> str:
        return self.run.start.account

    def reserve_all_but(self, left_usd: Decimal) -> None:
        """Reserve all free money of the account except this amount, as another stage would."""
        free_usd = self.ledger.state(self.account).left_usd
        assert free_usd is not None
        self.ledger.reserve(self.account, "rival-1", "rival", 1, free_usd - left_usd)


def begin(world: World, request: RunRequest) -> StartedAttempt:
    """Admit a run and route its first stage; the attempt starts now."""
    run = admit(world, request)
    decision, key = decide_and_reserve(world, run, request, StageInputs())
    assert decision.choice is not None
    attempt = Attempt(world, run, decision, key, {}, world.clock.monotonic_s(), decision.choice.p95_usd)
    return StartedAttempt(world, run, attempt, Ledger(world.store, world.clock))


def pod_environment(world_file: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a pod of this run."""
    return os.environ | {"SHOESTRING_WORLD": str(world_file), "SHOESTRING_STORE": str(folder / "store")}


class FakeCluster(LocalCluster):
    """A cluster that reports the given lifetimes and pools; all other pods are alive."""

    def __init__(self, pools: tuple[Pool, ...], lifetimes: dict[str, PodLifetime] | None = None) -> None:
        super().__init__(pools)
        self.lifetimes = lifetimes or {}
        self.workflows = dict[str, str | None]()

    def phase(self, workflow: str, node: str = "") -> str | None:
        return self.workflows[f"{workflow}/{node}" if node else workflow]

    def lifetime(self, pod: PodRef) -> PodLifetime:
        return self.lifetimes.get(str(pod), PodLifetime(alive=True))


def on_cluster(
    world: World, pools: tuple[Pool, ...] | None = None, rules: Policy | None = None
) -> tuple[World, FakeCluster]:
    """Return the world with a fake cluster, and the cluster."""
    cluster = FakeCluster(pools or world.cluster.pools())
    return replace(
        world, cluster=cluster, policy=rules or world.policy, pod=PodRef.parse("ns.0.router")
    ), cluster


def attempt_in_pod(began: StartedAttempt, pod: str) -> Attempt:
    """Return the attempt as the pod of this name would run it."""
    return replace(began.attempt, world=replace(began.world, pod=PodRef.parse(pod)))


def check_sample_ranges(ranges: list[dict[str, int]]) -> None:
    """Check that each epoch's samples were trained in order, none left out and none twice."""
    epoch, position = 0, 0
    for each in ranges:
        if each["epoch"] != epoch:
            assert each["epoch"] == epoch + 1
            epoch, position = each["epoch"], 0
        assert each["start"] == position
        position = each["stop"]


class UnreachableStore(FolderStore):
    """A folder whose writes block until `back` is set.

    With `what`, only writes to keys that contain it block.
    """

    def __init__(self, root: Path, what: str = "") -> None:
        super().__init__(root)
        self.back, self._what = threading.Event(), what

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if self._what in key:
            self.back.wait()
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def start_process(text: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def watch_until_end(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path) -> None:
    with background_io() as writer:
        watch_child(attempt, child, scratch, writer, make_monitor(attempt))
