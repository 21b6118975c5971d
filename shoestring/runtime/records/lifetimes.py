"""Whether the pods and the launcher of a run still live, as far as this process can see them.

A process of another PID namespace, or of the host's last boot, is not in this one's table: another container
with the same name and store, or a machine that was started again. Its signs of life in the store decide.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import UnknownName
from shoestring.core.interfaces import PodLifetime
from shoestring.data.run_records import Run, read_records
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.spending.heartbeat import Heartbeat, silence_limit_s
from shoestring.spending.ledger.account import Reservation
from shoestring.spending.ledger.entry import read_entry

IMAGE_PULL_S = 1800.0


def lifetime_of(world: World, heartbeat: Heartbeat) -> PodLifetime:
    """Return the lifetime of the pod of a heartbeat. One that this process cannot see is alive until its
    heartbeat is older than the silence limit.
    """
    life = world.cluster.lifetime(heartbeat.pod)
    return life if life.is_seen else replace(life, alive=is_recent(world, heartbeat.at, heartbeat.interval_s))


def launcher_is_alive(world: World, run: Run) -> bool:
    """Return whether the launcher of a run's last start lives; False without one.

    One that this process cannot see has no heartbeat: the newest one of its run, or its account's last entry,
    decides.
    """
    launcher = run.start.launcher
    if launcher is None:
        return False
    life = world.cluster.lifetime(launcher)
    return (
        life.alive if life.is_seen else is_recent(world, last_sign_at(world, run), world.policy.heartbeat_s)
    )


def last_sign_at(world: World, run: Run) -> datetime:
    """Return when a run's last start gave its last sign of life: a heartbeat, or an entry in its account."""
    found, _ = read_records(
        world.store, list(world.store.list(store_layout.heartbeats(run.run_id))), Heartbeat
    )
    signs = [run.start.started_at, *(each.at for each in found)]
    try:
        entries = world_ledger(world).state(run.start.account).entries
    except UnknownName:
        return max(signs)
    last = read_entry(world.store, run.start.account, entries)
    return max([*signs, *([last.entry.at] if last else [])])


def is_recent(world: World, at: datetime, interval_s: float) -> bool:
    limit_s = silence_limit_s(interval_s, world.policy.silent_intervals)
    return (world.clock.now() - at).total_seconds() < limit_s


def is_silent(world: World, reservation: Reservation, heartbeat: Heartbeat | None) -> bool:
    """Return whether a reservation's last sign of life is too old. A pod without a heartbeat may still be
    pulling its image.
    """
    limit_s = world.policy.queue_delay_s + (0.0 if heartbeat else IMAGE_PULL_S)
    since = heartbeat.at if heartbeat else reservation.reserved_at
    return (world.clock.now() - since).total_seconds() > limit_s
