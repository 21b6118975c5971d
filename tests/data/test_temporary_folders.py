"""The temporary folder of a killed process is removed by the next one, and no folder that may be in use."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from shoestring.core.pod_ref import this_place
from shoestring.core.record import digest
from shoestring.data.scratch.temporary_folders import (
    NEW_S,
    NO_BOOT,
    make_folder,
    remove_left_over,
    temporary_folder,
)

BOOT, HOST = this_place()[0] or NO_BOOT, digest(socket.gethostname().encode())[:8]
OWNER = """
import subprocess, sys
from shoestring.data.scratch.temporary_folders import make_folder
folder = make_folder()
(folder.path / "data").write_bytes(bytes(1 << 20))
hang = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
children = [
    subprocess.Popen(hang, stdout=subprocess.DEVNULL, pass_fds=[folder.handle]) for _ in sys.argv[1:]
]
print(folder.path, *(child.pid for child in children), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty TMPDIR."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    before, tempfile.tempdir = tempfile.tempdir, None
    yield folder
    tempfile.tempdir = before


def start_owner(*children: str) -> tuple[subprocess.Popen[str], Path, list[int]]:
    """Start a process with a temporary folder; return it, the folder and the processes that it started."""
    command = [sys.executable, "-c", OWNER, *children]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    path, *pids = owner.stdout.readline().split()
    return owner, Path(path), [*map(int, pids)]


def left_in(parent: Path, boot: str, host: str, changed_s: float | None = None, file: str = "data") -> Path:
    """Make a folder that no process holds. `file`: in it; empty: there is none."""
    folder = parent / f"shoestring-{boot}-{host}-abcdefgh"
    folder.mkdir()
    if file:
        (folder / file).write_text("data")
    if changed_s is not None:
        os.utime(folder, (changed_s, changed_s))
    return folder


def test_a_folder_is_removed_once_its_process_is_killed_and_not_before(parent: Path) -> None:
    owner, folder, _ = start_owner()
    assert folder.parent == parent
    remove_left_over()
    assert (folder / "data").exists()
    owner.kill()
    owner.communicate()
    assert (folder / "data").exists()
    remove_left_over()
    assert not folder.exists()


def test_a_folder_stays_while_a_process_lives_that_the_killed_one_had_started() -> None:
    owner, folder, (child,) = start_owner("child")
    owner.kill()
    owner.communicate()
    remove_left_over()
    assert (folder / "data").exists()
    psutil.Process(child).kill()
    due_s = time.monotonic() + 10
    while folder.exists() and time.monotonic() < due_s:
        remove_left_over()
    assert not folder.exists()


def test_what_lies_behind_a_link_of_such_a_name_stays(parent: Path, tmp_path: Path) -> None:
    other, link = tmp_path / "other", parent / f"shoestring-{BOOT}-{HOST}-abcdefgh"
    other.mkdir()
    (other / "data").write_text("data")
    link.symlink_to(other)
    (left := left_in(parent, BOOT, digest(b"another container")[:8])).joinpath("link").symlink_to(other)
    remove_left_over()
    assert link.is_symlink() and (other / "data").exists() and not left.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_stays(parent: Path) -> None:
    folder = left_in(parent, BOOT, HOST)
    os.chown(folder, 12345, -1)
    remove_left_over()
    assert (folder / "data").exists()


@pytest.mark.skipif(BOOT == NO_BOOT, reason="this system does not name its boots")
@pytest.mark.parametrize(
    ("boot", "host", "since_boot_s", "stays"),
    [
        ("fedcba98", HOST, -60.0, False),
        ("fedcba98", HOST, 1.0, True),
        ("fedcba98", "fedcba98", -60.0, True),
        (NO_BOOT, "fedcba98", -60.0, True),
        (BOOT, "fedcba98", 1.0, False),
    ],
)
def test_a_folder_stays_that_a_process_of_another_machine_may_hold(
    boot: str, host: str, since_boot_s: float, stays: bool, parent: Path
) -> None:
    """A shared volume does not show the locks of another machine."""
    folder = left_in(parent, boot, host, psutil.boot_time() + since_boot_s)
    remove_left_over()
    assert folder.exists() == stays


def test_an_empty_folder_stays_while_its_process_may_be_about_to_lock_it(parent: Path) -> None:
    folder = left_in(parent, BOOT, HOST, file="")
    remove_left_over()
    assert folder.exists()
    os.utime(folder, (time.time() - 2 * NEW_S,) * 2)
    remove_left_over()
    assert not folder.exists()


def test_other_names_stay(parent: Path) -> None:
    names = [f"shoestring-fetch-{os.getuid()}", "shoestring-abcdefgh", f"x-shoestring-{BOOT}-{HOST}-abcdefgh"]
    for name in names:
        (parent / name).mkdir()
        (parent / name / "data").write_text("data")
        os.utime(parent / name, (1.0, 1.0))
    remove_left_over()
    assert sorted(each.name for each in parent.iterdir()) == sorted(names)


def test_removers_and_makers_at_once_leave_each_other_alone(parent: Path) -> None:
    def make_or_remove(number: int) -> bool:
        if number % 2:
            with temporary_folder() as folder:
                (folder / "data").write_text("data")
                remove_left_over()
                return (folder / "data").exists()
        left = parent / f"shoestring-{BOOT}-{HOST}-{number:08}"
        left.mkdir()
        (left / "data").write_text("data")
        remove_left_over()
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(make_or_remove, range(400)))
    remove_left_over()
    assert not [*parent.iterdir()]


def test_a_folder_that_was_made_within_another_is_hidden_and_found_there(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    assert folder.path.parent == tmp_path and folder.path.name.startswith(".")
    (folder.path / "data").write_text("data")
    os.close(folder.handle)
    remove_left_over()
    assert folder.path.exists()
    remove_left_over(tmp_path)
    assert not folder.path.exists()


def test_nothing_fails_without_a_temporary_folder(tmp_path: Path) -> None:
    remove_left_over(tmp_path / "missing")
