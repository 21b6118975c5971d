"""One option group opens the world of every command that reads one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from commands import Finished, shoestring
from typer.core import TyperCommand, TyperGroup

from shoestring.cli import COMMANDS, app

Command = TyperCommand | TyperGroup
GROUP = {"--world", "--store", "--on", "--namespace"}
ENGINES = set(COMMANDS["Called by engines"])
"""Their pods find the world where it is mounted."""
WITHOUT_WORLD = {
    *("simulate", "new", "init", "compile", "schema", "world init", "prices refresh"),
}


def commands(group: TyperGroup, prefix: str = "") -> Iterator[tuple[str, Command]]:
    for name, command in group.commands.items():
        assert isinstance(command, Command)
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{prefix}{name} ")
            if command.invoke_without_command:
                yield f"{prefix}{name}", command
        else:
            yield f"{prefix}{name}", command


THIS_MACHINE = {"exec", "profile"}
"""What it runs is on this machine, whatever cluster there is."""


def options_of(command: Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def all_commands() -> dict[str, Command]:
    found = typer.main.get_command(app)
    assert isinstance(found, TyperGroup)
    return dict(commands(found))


def test_every_command_that_reads_a_world_has_the_group() -> None:
    found = all_commands()
    lacking = {name for name, command in found.items() if not options_of(command) >= GROUP}
    assert lacking == WITHOUT_WORLD | ENGINES | THIS_MACHINE


def test_a_command_without_a_world_has_no_option_of_the_group() -> None:
    found = all_commands()
    assert {name for name in WITHOUT_WORLD if options_of(found[name]) & (GROUP - {"--store"})} == set()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("--on", "lab", "--world", "w"), "--on reads the world and the store of the cluster"),
        (("--on", "lab", "--store", "s"), "--on reads the world and the store of the cluster"),
        (("--namespace", "team"), "--namespace team is a namespace of a cluster"),
    ],
)
@pytest.mark.parametrize("command", [("runs",), ("ledger", "verify"), ("reap",)])
def test_options_that_do_not_go_together_are_refused(
    command: tuple[str, ...], line: tuple[str, ...], message: str
) -> None:
    ran = shoestring(*command, *line)
    assert (ran.code, message in ran.err) == (2, True), ran.err


def test_reading_writes_neither_a_world_file_nor_a_folder(tmp_path: Path) -> None:
    ran = shoestring("runs", env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": ""})
    assert ran.code == 2
    assert "there is no world file at" in ran.err
    assert "shoestring world init" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_reading_leaves_a_store_on_this_machine_as_it_is(finished: Finished, tmp_path: Path) -> None:
    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in finished.store.rglob("*")}

    before, run = state(), str(finished.ran.json["run_id"])
    for line in (("runs",), ("explain", run), ("report", run, "--out", tmp_path), ("replay", run)):
        ran = finished.again(*line)
        assert ran.code == 0, ran.err
    assert state() == before
    assert finished.again("runs", store=tmp_path / "none").code == 0
    assert not (tmp_path / "none").exists()


def test_a_reaper_of_a_cluster_has_the_store_of_its_world(tmp_path: Path) -> None:
    ran = shoestring("reap", "--world", tmp_path, "--store", tmp_path)
    assert (ran.code, "a cluster's world names its own store" in ran.err) == (2, True)
