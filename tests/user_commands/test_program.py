"""A program that cannot be started is refused with what to do, and what its sentence names is accepted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoestring.commands.program import check_program
from shoestring.core.errors import UsageError


def script(folder: Path, text: str, mode: int = 0o755, name: str = "run.sh") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    path.chmod(mode)
    return path


def test_a_script_without_a_first_line_is_run_with_sh_or_gets_one(tmp_path: Path) -> None:
    script(tmp_path, "exit 7\n")
    with pytest.raises(OSError, match="Exec format error"):
        subprocess.run(["./run.sh"], cwd=tmp_path)
    with pytest.raises(UsageError, match=r"run it with one, as in `sh \./run\.sh`, or begin .* `#!/bin/sh`"):
        check_program(tmp_path, "./run.sh")
    check_program(tmp_path, "sh")
    assert subprocess.run(["sh", "./run.sh"], cwd=tmp_path).returncode == 7
    script(tmp_path, "#!/bin/sh\nexit 7\n")
    check_program(tmp_path, "./run.sh")


def test_a_file_that_is_not_executable_is_run_with_its_interpreter_or_made_so(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh\nexit 7\n", 0o644)
    with pytest.raises(
        UsageError, match=r"not executable: run `sh \./run\.sh`, or `chmod \+x \./run\.sh` first"
    ):
        check_program(tmp_path, "./run.sh")
    path.chmod(0o755)
    check_program(tmp_path, "./run.sh")
    script(tmp_path, "", 0o644, "train.py")
    with pytest.raises(UsageError, match=r"run `python \./train\.py`"):
        check_program(tmp_path, "./train.py")


@pytest.mark.parametrize(
    ("first", "missing"),
    [
        ("#!/no/such/sh", "/no/such/sh"),
        ("#! /usr/bin/env no-such-program", "no-such-program"),
        ("#!/bin/sh\r", r"/bin/sh\\r"),
        ("#!sh", "sh"),
    ],
)
def test_an_interpreter_that_does_not_exist_is_named(tmp_path: Path, first: str, missing: str) -> None:
    script(tmp_path, f"{first}\nexit 0\n")
    with pytest.raises(UsageError, match=f"names the interpreter '{missing}', and there is no such program"):
        check_program(tmp_path, "./run.sh")


@pytest.mark.parametrize("first", ["#!/bin/sh -e", "#!/usr/bin/env\tsh", "#!/usr/bin/env -S sh -e", "#!./sh"])
def test_a_script_whose_interpreter_exists_is_accepted(tmp_path: Path, first: str) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    path = script(tmp_path, f"{first}\nexit 7\n")
    assert subprocess.run(["./run.sh"], cwd=tmp_path).returncode == 7
    for program in ("./run.sh", str(path)):
        check_program(tmp_path, program)


def test_binaries_are_accepted_and_what_is_not_there_is_not(tmp_path: Path) -> None:
    check_program(tmp_path, "true")
    check_program(tmp_path, os.path.realpath(sys.executable))
    for program in ("./no-such-program", "no-such-program", "."):
        with pytest.raises(UsageError, match="there is no such program"):
            check_program(tmp_path, program)
    with pytest.raises(UsageError, match="is not there any longer"):
        check_program(tmp_path / "gone", "true")
