"""Two containers may have one host name and one store, and a machine starts again with its old store. A
process that cannot be seen from here is judged by its signs of life, and is never signalled.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runtime_world import INGEST, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.backends.local import LocalCluster, this_process
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.runtime.launch.local_run import check_not_running
from shoestring.runtime.settlement.settle import settle_abandoned
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.meter import cost_usd

BOOT, NAMESPACE = "0a1b2c3d", "4026532000"


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


@pytest.fixture
def began(world: World, flights_slice: Path, monkeypatch: pytest.MonkeyPatch) -> StartedAttempt:
    """An attempt of this process, which is its own launcher, and lives throughout."""
    monkeypatch.setenv("SHOESTRING_LAUNCHER", str(this_process()))
    return begin(replace(world, pod=this_process()), run_request(flights_slice, needs=INGEST))


def seen_from(world: World, boot: str, namespace: str) -> World:
    pod = replace(this_process(), boot=boot, namespace=namespace)
    return replace(world, cluster=LocalCluster(world.cluster.pools(), (boot, namespace)), pod=pod)


@pytest.mark.parametrize("place", ["another container", "another boot", "both"])
def test_an_attempt_that_cannot_be_seen_runs_until_it_is_silent(
    place: str, world: World, began: StartedAttempt
) -> None:
    this = this_process()
    boot = this.boot if place == "another container" else BOOT
    other = seen_from(world, boot, this.namespace if place == "another boot" else NAMESPACE)
    world.clock.sleep(2)
    write_heartbeat(began.attempt, "running")
    world.clock.sleep(8)
    assert settle_abandoned(other) == []
    with pytest.raises(UsageError, match="is still running"):
        check_not_running(other, "r")
    world.clock.sleep(60)
    assert any("ingest-1 settled at" in sentence for sentence in settle_abandoned(other))
    receipt = read_record(world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert receipt.spent_usd == cost_usd(began.attempt.choice.usd_per_hour, 3.0)


def test_a_launcher_that_cannot_be_seen_lives_as_long_as_its_account_changes(
    world: World, began: StartedAttempt
) -> None:
    other = seen_from(world, BOOT, NAMESPACE)
    world.clock.sleep(8)
    began.ledger.reserve(began.account, "train-1", "train", 1, began.attempt.reserved_usd / 100)
    world.clock.sleep(8)
    assert settle_abandoned(other) == []
    world.clock.sleep(8)
    assert settle_abandoned(other) != []
    assert began.ledger.state(began.account).closed


def test_an_attempt_of_an_earlier_version_is_looked_for_in_this_table(
    world: World, began: StartedAttempt
) -> None:
    named = replace(this_process(), boot="", namespace="")
    write_heartbeat(replace(began.attempt, world=replace(world, pod=named)), "running")
    world.clock.sleep(60)
    assert LocalCluster(()).lifetime(named).alive
    gone = replace(named, created_ms=named.created_ms - 60_000)
    assert not LocalCluster(()).lifetime(gone).alive
