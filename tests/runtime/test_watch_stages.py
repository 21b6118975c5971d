"""The launcher ends silent stages of its own machine, in real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from runtime_world import SetClock, small_world
from unadmitted_runs import unadmitted_run

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import this_process
from shoestring.backends.processes import is_running
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import StoreError
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.record import record_bytes
from shoestring.runtime.launch.watch_stages import StageWatch
from shoestring.runtime.supervisor.child_process import STAGE_PROCESS
from shoestring.spending.heartbeat import LOST, SILENT, Heartbeat, last_heartbeat

KEY = store_layout.heartbeat("r", "train-1")


@pytest.fixture
def silent_stage() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def running(laptop: Path, folder: Path, pod: LocalProcess) -> World:
    """Return a world in which a stage of this pod has written one heartbeat."""
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
    return world


def watched(laptop: Path, folder: Path, pod: LocalProcess, looks_s: Sequence[float] = (1.0,) * 11) -> World:
    """Return a world after looks at a stage of this pod that writes one heartbeat; each took so long."""
    world = running(laptop, folder, pod)
    watch = StageWatch(world, unadmitted_run())
    watch.look()
    for look_s in looks_s:
        world.clock.sleep(look_s)
        watch.look()
    return world


def pod_of(process: subprocess.Popen[bytes]) -> LocalProcess:
    created_ms = int(psutil.Process(process.pid).create_time() * 1000)
    return replace(this_process(), pid=process.pid, created_ms=created_ms)


@pytest.mark.parametrize("looks_s", [(1.0,) * 11, (4.0,) * 6, (7.0,) * 6, (60.0,) * 6])
def test_a_silent_stage_of_this_machine_is_ended_however_slow_the_looks_are(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes], looks_s: Sequence[float]
) -> None:
    world = watched(laptop, tmp_path, pod_of(silent_stage), looks_s)
    assert silent_stage.wait(timeout=10) < 0
    ended = last_heartbeat(world.store, "r", "train-1")
    assert ended is not None and ended.state == SILENT


@pytest.mark.parametrize("looks_s", [(1.0,) * 9, (60.0,) * 4, (600.0, *(1.0,) * 7)])
def test_a_look_that_took_long_counts_little_since_the_store_may_have_been_away(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes], looks_s: Sequence[float]
) -> None:
    watched(laptop, tmp_path, pod_of(silent_stage), looks_s)
    assert silent_stage.poll() is None


class FailingStore(FolderStore):
    """A folder to which nothing can be written while `is_away`."""

    is_away = False

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if self.is_away:
            raise StoreError("away")
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def test_silence_counts_anew_after_a_look_without_the_store(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes]
) -> None:
    world = running(laptop, tmp_path, pod_of(silent_stage))
    store = FailingStore(world.store.root)
    watch = StageWatch(replace(world, store=store), unadmitted_run())

    def look(count: int) -> None:
        for _ in range(count):
            world.clock.sleep(1.0)
            watch.look()

    look(10)
    store.is_away = True
    for _ in range(60):
        with pytest.raises(StoreError):
            look(1)
    store.is_away = False
    look(10)
    assert silent_stage.poll() is None
    look(1)
    assert silent_stage.wait(timeout=10) < 0


def test_a_killed_supervisor_pays_up_to_its_end_where_the_launcher_saw_it_while_the_store_was_away(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes]
) -> None:
    world = running(laptop, tmp_path, pod_of(silent_stage))
    watch = StageWatch(world, unadmitted_run())
    watch.look()
    world.clock.sleep(60.0)
    watch.clock.look()
    silent_stage.kill()
    silent_stage.wait()
    ended_at = world.clock.now()
    watch.clock.look()
    world.clock.sleep(60.0)
    watch.clock.look()
    watch.look()
    ended = last_heartbeat(world.store, "r", "train-1")
    assert ended is not None and ended.state == LOST
    assert ended.at == ended_at, "neither one interval after its last heartbeat, nor when the store was back"


def test_a_process_of_the_same_id_as_a_stage_of_another_machine_is_left_alone(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes]
) -> None:
    watched(laptop, tmp_path, replace(pod_of(silent_stage), host="elsewhere"))
    assert silent_stage.poll() is None


def test_what_a_killed_supervisor_leaves_is_ended_and_paid_for_until_then(
    laptop: Path, tmp_path: Path
) -> None:
    code = "import subprocess as s, time; print(s.Popen(['sleep', '300']).pid, flush=True); time.sleep(300)"
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    left = psutil.Process(int(supervisor.stdout.readline()))
    world = running(laptop, tmp_path, pod_of(supervisor))
    watch = StageWatch(world, unadmitted_run())
    watch.look()
    supervisor.kill()
    supervisor.wait()
    world.clock.sleep(4.0)
    watch.look()
    assert not is_running(left)
    ended = last_heartbeat(world.store, "r", "train-1")
    assert ended is not None and ended.state == LOST
    assert ended.at == world.clock.now(), "not one interval after its last heartbeat"


def test_a_killed_supervisor_that_left_nothing_pays_for_one_interval_more(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes]
) -> None:
    world = running(laptop, tmp_path, pod_of(silent_stage))
    began = world.clock.now()
    silent_stage.kill()
    silent_stage.wait()
    world.clock.sleep(4.0)
    StageWatch(world, unadmitted_run()).look()
    ended = last_heartbeat(world.store, "r", "train-1")
    assert ended is not None and ended.state == LOST
    assert (ended.at - began).total_seconds() == ended.interval_s


def test_a_stages_process_that_was_never_seen_below_its_supervisor_is_ended(
    laptop: Path, tmp_path: Path, silent_stage: subprocess.Popen[bytes]
) -> None:
    world = running(laptop, tmp_path, pod_of(silent_stage))
    silent_stage.kill()
    silent_stage.wait()
    adopted = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(300)", STAGE_PROCESS], stdin=subprocess.DEVNULL
    )
    StageWatch(world, unadmitted_run()).look()
    assert adopted.wait(timeout=10) < 0
