"""A store that runs out of space: the command fails with a sentence, and the next run settles
the open reservations.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from commands import Finished, Ran, command, shoestring
from exec_runs import Exec

MEGABYTE = 1 << 20


def mount(folder: Path, options: str) -> bool:
    return (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True
        ).returncode
        == 0
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a separate disk of 48 MB."""
    if not shutil.which("mount") or os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount(folder, "size=48m"):
        pytest.skip("this system does not let root mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, left_bytes: int) -> None:
    space = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(space.f_bavail * space.f_frsize - left_bytes))
    space = os.statvfs(disk)
    assert abs(space.f_bavail * space.f_frsize - left_bytes) < 64 * 1024


def check_reports_full_disk(ran: Ran) -> None:
    assert ran.code == 1
    assert "Traceback" not in ran.err
    assert "no space left" in ran.err.lower(), ran.err


def test_a_disk_too_full_to_probe_or_to_record_a_run_is_reported(
    small_disk: Path, finished: Finished, tmp_path: Path
) -> None:
    fill(small_disk, 2 * MEGABYTE)
    check_reports_full_disk(
        finished.again("run", finished.recipe, "--out", tmp_path / "out", store=small_disk / "store")
    )
    (small_disk / "ballast").unlink()
    assert finished.again("plan", finished.recipe, store=small_disk / "store").code == 0
    fill(small_disk, 0)
    check_reports_full_disk(
        finished.again("run", finished.recipe, "--out", tmp_path / "out", store=small_disk / "store")
    )
    assert not (small_disk / "store" / "ledger").exists()


def held_usd(finished: Finished, store: Path) -> Decimal:
    return sum(
        (
            Decimal(account["held_usd"])
            for account in finished.again("ledger", "show", "--json", store=store).json
        ),
        Decimal(0),
    )


@pytest.mark.parametrize("left_kib", [40, 56, 96], ids="{}KiB".format)
def test_a_run_fails_when_the_disk_fills_up_and_the_next_run_settles_it(
    small_disk: Path, finished: Finished, tmp_path: Path, left_kib: int
) -> None:
    store = small_disk / "store"
    assert finished.again("plan", finished.recipe, store=store).code == 0
    fill(small_disk, left_kib * 1024)
    check_reports_full_disk(finished.again("run", finished.recipe, "--out", tmp_path / "full", store=store))
    assert held_usd(finished, store) > 0, "it was meant to run out of space after money was held"
    assert mount(small_disk, "remount,size=64m")
    refused = finished.again(
        "run", finished.recipe, "--out", tmp_path / "again", "--budget", "0.000001", store=store
    )
    assert refused.code == 1
    assert "is too small" in refused.err
    assert held_usd(finished, store) == 0
    assert finished.again("ledger", "verify", store=store).code == 0


def test_a_command_that_fills_its_disk_ends_by_itself_and_is_settled(
    small_disk: Path, laptop: Path, tmp_path: Path
) -> None:
    run = Exec(tmp_path, laptop)
    fill = 'cat /dev/zero > "$SHOESTRING_CHECKPOINTS/big"; echo full >&2; sleep 2; exit 9'
    process = run.start("--budget", "0.05", "--", "bash", "-c", fill, TMPDIR=str(small_disk))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 9, err
    assert "full" in err and "Traceback" not in err
    (receipt,) = run.receipts()
    assert (receipt.status, receipt.exit_code) == ("failed", 9)
    assert receipt.seconds > 2 and receipt.spent_usd > 0


def test_a_full_disk_of_temporary_files_is_not_taken_for_damaged_data(
    small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n" + "1234567890,1\n2345678901,0\n" * 2_000_000)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: large\nsource: {rows: {path: rows.csv}}\ntarget: {column: y}\nbudget_usd: 0.002\n"
    )
    fill(small_disk, MEGABYTE)  # Python takes another folder for temporary files if this one is full.
    command = [sys.executable, "-m", "shoestring", "data", str(recipe)]
    ended = subprocess.run(
        command, env=os.environ | {"TMPDIR": str(small_disk)}, capture_output=True, text=True, timeout=60
    )
    ran = Ran(ended.returncode, ended.stdout, ended.stderr)
    check_reports_full_disk(ran)
    assert str(small_disk) in ran.err and "damaged" not in ran.err


def run_line(finished: Finished, tmp_path: Path) -> list[str]:
    paths = ("--world", finished.world, "--store", tmp_path / "store", "--out", tmp_path / "out")
    return [str(word) for word in ("run", finished.recipe, *paths)]


def test_a_run_without_space_for_temporary_files_is_not_begun(
    small_disk: Path, finished: Finished, tmp_path: Path
) -> None:
    fill(small_disk, 0)
    ran = shoestring(*run_line(finished, tmp_path), env={"TMPDIR": str(small_disk)})
    check_reports_full_disk(ran)
    assert f"no space left for temporary files in {small_disk}: 0 bytes are free" in ran.err
    assert "free some space, or set TMPDIR to a folder on a larger disk" in ran.err
    assert not (tmp_path / "store").exists() and not (tmp_path / "out").exists()


def test_what_a_killed_process_left_is_removed_before_a_run_looks_for_space(
    small_disk: Path, finished: Finished, tmp_path: Path
) -> None:
    make = "import os; from shoestring.data.scratch.temporary_folders import make_folder; make_folder()"
    place = {"TMPDIR": str(small_disk)}
    subprocess.run([sys.executable, "-c", f"{make}; os._exit(0)"], env=os.environ | place, check=True)
    (left,) = small_disk.iterdir()
    fill(small_disk, 0)
    (small_disk / "ballast").rename(left / "ballast")
    ran = shoestring(*run_line(finished, tmp_path), "--budget", "0.000001", env=place)
    assert "no space left" not in ran.err and "smallest" in ran.err + ran.out
    assert not [*small_disk.iterdir()]


@pytest.mark.parametrize("since", ["ingest: done", "preprocess: running"])
def test_a_run_whose_temporary_files_fill_the_disk_names_the_disk(
    small_disk: Path, finished: Finished, tmp_path: Path, since: str
) -> None:
    process = subprocess.Popen(
        command(*run_line(finished, tmp_path)),
        env=os.environ | {"TMPDIR": str(small_disk)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told = ""
    while since not in told and (line := process.stderr.readline()):
        told += line
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while process.poll() is None:
            with contextlib.suppress(OSError):
                ballast.write(bytes(MEGABYTE))
    told += process.stderr.read()
    check_reports_full_disk(Ran(process.returncode, "", told))
    last = next(line for line in reversed(told.splitlines()) if line.startswith("shoestring: "))
    assert "no space left" in last.lower() and str(small_disk) in last, told


def test_a_folder_of_temporary_files_that_does_not_exist_is_bad_usage(
    finished: Finished, tmp_path: Path
) -> None:
    ran = shoestring(*run_line(finished, tmp_path), env={"TMPDIR": str(tmp_path / "absent")})
    assert ran.code == 2, ran.err
    assert f"cannot write temporary files to {tmp_path / 'absent'}: no such file or folder" in ran.err
