"""A run whose launcher has ended is interrupted, not running; of a launcher elsewhere nothing is known."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import shoestring
from recorded_run import RUN_ID
from run_stories import running

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import LocalCluster, this_process
from shoestring.core import store_layout
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.record import record_bytes
from shoestring.data.run_records import RunStart, read_record
from shoestring.reporting.runs.run_list import RunOverview, list_runs
from shoestring.reporting.runs.run_text import runs_text


def ended_process() -> LocalProcess:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return replace(this_process(), pid=process.pid)


def launched_by(launcher: LocalProcess | None, folder: Path) -> tuple[FolderStore, RunOverview]:
    """Return the store of a running run that this process launched, and the run in the list."""
    store, key = running(folder).store, store_layout.start(RUN_ID, 1)
    start = read_record(store, key, RunStart).model_copy(update={"launcher": launcher})
    store.put(key, record_bytes(start))
    (found,), _ = list_runs(store, LocalCluster(()))
    return store, found


def test_a_run_whose_launcher_has_ended_is_interrupted(tmp_path: Path) -> None:
    store, found = launched_by(ended_process(), tmp_path)
    assert found.status == "interrupted"
    assert f"shoestring run --resume {RUN_ID}" in found.reason
    assert runs_text([found]).endswith(f"{RUN_ID}: {found.reason}")
    assert list_runs(store, LocalCluster(()), status="interrupted")[0] == (found,)
    assert list_runs(store, LocalCluster(()), status="running")[0] == ()


@pytest.mark.parametrize(
    "launcher",
    [None, this_process(), replace(this_process(), pid=1, host="elsewhere")],
    ids=["an engine", "alive", "elsewhere"],
)
def test_a_run_whose_launcher_lives_or_is_not_known_is_running(
    launcher: LocalProcess | None, tmp_path: Path
) -> None:
    _, found = launched_by(launcher, tmp_path)
    assert (found.status, found.reason) == ("running", "")


def test_watching_an_interrupted_run_ends_with_1_and_without_its_end(laptop: Path, tmp_path: Path) -> None:
    launched_by(ended_process(), tmp_path)
    ran = shoestring("watch", RUN_ID, "--world", laptop, "--store", tmp_path)
    assert (ran.code, ran.err.startswith(f"{RUN_ID} is interrupted: the process")) == (1, True)
    assert "spent" not in ran.out
