"""Whether the program of a command can be started, before anything is paid."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from shoestring.core.errors import UsageError

HEAD_BYTES = 256
"""What Linux reads of a file to find out how to run it."""


def check_program(folder: Path, program: str) -> None:
    """Check that a program can be started in a folder. Raises UsageError: what is wrong, and what to do."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not there any longer, and the command runs in it")
    path = folder / program
    found = shutil.which(str(path) if "/" in program else program)
    if found is not None:
        check_head(folder, program, Path(found))
    elif "/" in program and path.is_file():
        example = with_interpreter(path, program)
        raise UsageError(f"{program} is not executable: run `{example}`, or `chmod +x {program}` first")
    else:
        raise UsageError(f"{program}: there is no such program")


def check_head(folder: Path, program: str, path: Path) -> None:
    """Check the first line of a script. Raises UsageError: it has none, or names no program."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        # Linux runs a program that it may not read.
        return
    if words := interpreters(head):
        # Linux looks for the first one in the folder, and `env` for its own in the PATH.
        places = [
            str(folder / words[0]),
            *(str(folder / each) if "/" in each else each for each in words[1:]),
        ]
        for name, place in zip(words, places, strict=True):
            if shutil.which(place) is None:
                raise UsageError(
                    f"{program} cannot be run: its first line names the interpreter {name!r}, and there is no"
                    " such program: install it, or correct the line"
                )
    elif b"\0" not in head:
        # All formats of binary programs have zero bytes in their heads.
        raise UsageError(
            f"{program} is a script whose first line names no interpreter: run it with one, as in "
            f"`{with_interpreter(path, program)}`, or begin it with a line like `#!/bin/sh`"
        )


def interpreters(head: bytes) -> list[str]:
    """Return the programs that the first line of a script names: with `env`, the one that it finds, too."""
    first, _, _ = head.partition(b"\n")
    if not first.startswith(b"#!"):
        return []
    # For Linux, a carriage return is a part of the name.
    words = [os.fsdecode(each) for each in first[2:].replace(b"\t", b" ").split(b" ") if each]
    is_env = bool(words) and Path(words[0]).name == "env"
    return words[:1] + [each for each in words[1:2] if is_env and not re.search("^-|=", each)]


def with_interpreter(path: Path, program: str) -> str:
    return f"{'python' if path.suffix == '.py' else 'sh'} {program}"
