"""A real store that goes away silences every stage, and ends none. A stage that is silent alone is ended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import beating_stage
import pytest
from s3_server import STAGE, S3Server, start_server
from unadmitted_runs import unadmitted_run

from shoestring.backends.local import WallClock, open_local_world
from shoestring.backends.s3.store import open_s3_store
from shoestring.config.world import World
from shoestring.core.errors import StoreError
from shoestring.runtime.launch.watch_stages import StageWatch
from shoestring.spending.heartbeat import SILENT, last_heartbeat, silence_limit_s

RUNS = ("r1", "r2", "r3", "r4")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", STAGE[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", STAGE[1])
    started = start_server(tmp_path / "s3")
    yield started
    started.kill()


@pytest.fixture
def world(laptop: Path, tmp_path: Path, server: S3Server) -> World:
    store = open_s3_store(server.location(), tmp_path / "scratch", WallClock())
    return replace(open_local_world(laptop, store=tmp_path / "store"), store=store)


@pytest.fixture
def stages(tmp_path: Path, server: S3Server) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Four runs with a running stage each."""
    location = server.location().model_dump_json()
    started = {
        run_id: subprocess.Popen(
            [sys.executable, beating_stage.__file__, run_id, location, tmp_path / run_id]
        )
        for run_id in RUNS
    }
    yield started
    for process in started.values():
        process.kill()
        process.wait()


@contextlib.contextmanager
def watching(world: World) -> Iterator[None]:
    """Look at all runs each second, each in a thread of its own, as their launchers do."""
    stopped = threading.Event()

    def keep_looking(watch: StageWatch) -> None:
        while not stopped.wait(1):
            with contextlib.suppress(StoreError):
                watch.look()

    threads = [
        threading.Thread(target=keep_looking, args=(StageWatch(world, unadmitted_run(run_id)),))
        for run_id in RUNS
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def wait_until(is_so: Callable[[], bool], most_s: float = 60) -> None:
    due_s = time.monotonic() + most_s
    while not is_so():
        assert time.monotonic() < due_s
        time.sleep(0.5)


@pytest.mark.slow
def test_a_store_that_was_away_ends_no_stage_and_a_stopped_supervisor_ends_its_own(
    world: World, server: S3Server, stages: dict[str, subprocess.Popen[bytes]]
) -> None:
    limit_s = silence_limit_s(beating_stage.INTERVAL_S, world.policy.silent_intervals)

    def beats() -> dict[str, object]:
        found = {run_id: last_heartbeat(world.store, run_id, "train-1") for run_id in RUNS}
        return {run_id: heartbeat.at for run_id, heartbeat in found.items() if heartbeat}

    wait_until(lambda: len(beats()) == len(RUNS))
    with watching(world):
        before = beats()
        server.kill()
        time.sleep(1.5 * limit_s)
        server.start()
        wait_until(lambda: all(at != before[run_id] for run_id, at in beats().items()))
        time.sleep(1.2 * limit_s)
        assert all(process.poll() is None for process in stages.values())

        stages["r2"].send_signal(signal.SIGSTOP)
        wait_until(lambda: stages["r2"].poll() is not None)
    assert [run_id for run_id, process in stages.items() if process.poll() is not None] == ["r2"]
    silent = last_heartbeat(world.store, "r2", "train-1")
    assert silent is not None and silent.state == SILENT
