"""The launcher ends silent stages of its own machine, in real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from runtime_world import SetClock, small_world

from shoestring.backends.local import this_process
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.record import record_bytes
from shoestring.runtime.launch.watch_stages import StageWatch
from shoestring.spending.heartbeat import SILENT, Heartbeat, last_heartbeat

KEY = store_layout.heartbeat("r", "train-1")


@pytest.fixture
def silent_stage() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def watched(laptop: Path, folder: Path, pod: LocalProcess) -> World:
    """Return a world after 20 s of looks at a stage of this pod that writes one heartbeat."""
    world = small_world(laptop, folder, SetClock())
    now = world.clock.now()
    heartbeat = Heartbeat(
        run_id="r",
        stage="train",
        attempt=1,
        pod=pod,
        state="running",
        usd_per_hour=Decimal("1"),
        started_at=now,
        at=now,
        interval_s=1.0,
        spent_usd=Decimal(0),
    )
    world.store.put(KEY, record_bytes(heartbeat))
    watch = StageWatch(world, "r")
    for _ in range(5):
        watch.look()
        world.clock.sleep(4.0)
    watch.end_leftovers(KEY)
    return world


def pod_of(process: subprocess.Popen[bytes]) -> LocalProcess:
    created_ms = int(psutil.Process(process.pid).create_time() * 1000)
    return replace(this_process(), pid=process.pid, created_ms=created_ms)


def test_a_silent_stage_of_this_machine_is_ended(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes]
) -> None:
    world = watched(laptop, tmp_path, pod_of(silent_stage))
    assert silent_stage.wait(timeout=10) < 0
    ended = last_heartbeat(world.store, "r", "train-1")
    assert ended is not None and ended.state == SILENT


def test_a_process_of_the_same_id_as_a_stage_of_another_machine_is_left_alone(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes]
) -> None:
    watched(laptop, tmp_path, replace(pod_of(silent_stage), host="elsewhere"))
    assert silent_stage.poll() is None
