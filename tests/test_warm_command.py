"""A forked command behaves exactly like `python -m shoestring`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from commands import command, shoestring
from warm_command import CommandTimeout, warm_server


@pytest.mark.parametrize(
    "line",
    [
        ("--help",),
        ("schema", "recipe"),
        ("schema", "nothing"),
        ("plan", "--nothing"),
        ("ledger", "verify", "--store", "nowhere", "--json"),
        ("compile", "--target", "airflow"),
    ],
    ids=" ".join,
)
def test_a_forked_command_exits_and_prints_as_the_module_does(line: tuple[str, ...]) -> None:
    module = subprocess.run(command(*line), capture_output=True, text=True, timeout=60)
    forked = shoestring(*line)
    assert (forked.code, forked.out, forked.err) == (module.returncode, module.stdout, module.stderr)


def test_a_forked_command_has_the_variables_and_the_folder_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = shoestring("world", "init", "--out", "world.yaml", "--store", tmp_path / "store")
    assert (ran.code, (tmp_path / "world.yaml").exists()) == (0, True), ran.err
    nowhere = {"SHOESTRING_WORLD": str(tmp_path / "none.yaml")}
    assert "none.yaml" in shoestring("plan", "flights", env=nowhere).err


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(CommandTimeout):
        warm_server().run(["compile", "--out", str(tmp_path / "out")], dict(os.environ), timeout_s=0.01)
