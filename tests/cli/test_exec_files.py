"""What `shoestring exec` cannot keep is named, and the other files are kept; the exit code stays the
command's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from exec_runs import PYTHON, Exec

from shoestring.core import store_layout
from shoestring.data.scratch.scratch_files import remove_folder

IN_FOLDER = "import os, pathlib\nstarted = os.getcwd()\nos.chdir(os.environ['SHOESTRING_CHECKPOINTS'])\n"


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop)
    yield made
    made.close()
    # Where a test fails, pytest could not delete folders that are nested so deeply.
    remove_folder(tmp_path / "scratch")


def run_in_folder(on: Exec, text: str) -> int:
    """Run a script in its folder of checkpoints, with temporary files in a folder of the test."""
    (on.folder / "scratch").mkdir()
    words = ("--budget", "0.05", "--", PYTHON, on.script("leave.py", IN_FOLDER + text))
    process = on.start(*words, TMPDIR=str(on.folder / "scratch"))
    on.out, on.err = process.communicate(timeout=120)
    return process.wait()


def test_a_file_whose_name_is_not_utf8_is_kept_and_found_by_the_next_attempt(on: Exec) -> None:
    script = IN_FOLDER + (
        "name = b'\\xff.bin'\nif os.path.exists(name):\n"
        "    pathlib.Path(started, 'found').write_bytes(open(name, 'rb').read())\n"
        "open(name, 'wb').write(b'\\xfe\\n')\n"
    )
    words = ("--", PYTHON, on.script("odd.py", script))
    assert on.run("--budget", "0.05", *words) == 0, on.err
    assert "not kept" not in on.err
    assert on.run("--resume", on.run_id, "--budget", "0.1", *words) == 0, on.err
    assert (on.folder / "found").read_bytes() == b"\xfe\n"


def test_what_cannot_be_kept_is_named_at_the_end_of_a_command_that_is_done(on: Exec) -> None:
    text = (
        "open('a.pt', 'w').write('a')\nos.mkfifo('asked')\nos.symlink('/etc', 'etc')\n"
        "here = os.getcwd()\nfor place in (os.path.dirname(here), here):\n    os.chdir(place)\n"
        "    for _ in range(1200):\n        os.mkdir('d')\n        os.chdir('d')\n"
    )
    assert run_in_folder(on, text) == 0, on.err
    (receipt,) = on.receipts()
    assert receipt.status == "done" and receipt.outcome is not None
    assert "Traceback" not in on.err and on.err.count("not kept") == 1
    assert receipt.outcome.stop_reason in on.err
    assert "asked (a FIFO), d/d/d" in on.err and "(more than 100 folders deep), etc (a symbolic" in on.err
    assert on.store.fetch(f"{store_layout.checkpoints(on.run_id)}/command-1-0").read_text() == "a"
    assert not list((on.folder / "scratch").glob("shoestring-*"))


def test_a_folder_that_a_command_replaces_by_a_link_is_not_copied(on: Exec) -> None:
    text = "folder = os.getcwd()\nos.chdir(started)\nos.rmdir(folder)\nos.symlink(started, folder)\nexit(3)\n"
    assert run_in_folder(on, text) == 3, on.err
    assert "ended with exit code 3; not kept" in on.receipts()[-1].reason
    assert "the folder itself" in on.err and (on.folder / "leave.py").exists()
    assert not [key for key in on.store.list(store_layout.RUNS) if "/checkpoints/" in key]
