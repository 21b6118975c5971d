"""Files, folders and runs that a command line names and that cannot be used: a sentence, and exit code 2."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import Finished, shoestring

from shoestring.cli import COMMANDS, load

NO_RUN = ("no-such-run", "../runs/x", "x\\y")
DECISION = ("--decision-key", "runs/RUN/decisions/ingest-1.json")

WRITES_FILES = {
    ("export", "focus", "--out"): ("--month", "MONTH"),
    ("world", "init", "--out"): ("--force",),
    ("stage", "ingest", "--key-to"): ("--run-id", "RUN", *DECISION),
    ("settle", "--page"): ("--run-id", "RUN"),
    ("settle", "--summary"): ("--run-id", "RUN"),
    ("init", "--out"): ("DATA",),
    ("predict", "RUN", "DATA", "--out"): (),
    ("export", "onnx", "RUN", "--out"): (),
}
WRITES_FOLDERS = {
    ("run", "--out"): ("RECIPE",),
    ("report", "--out"): ("RUN",),
    ("compile", "--out"): (),
    ("new", "--into"): ("dedupe",),
    ("route", "--out"): ("--needs", "[]", "--run-id", "r", "--recipe", "{}"),
}
TAKES_RUN = {
    ("run", "--resume"): (),
    ("exec", "--resume"): (),
    ("watch",): (),
    ("where",): (),
    ("data", "verify"): (),
    ("data", "lineage"): (),
    ("predict",): ("DATA",),
    ("export", "onnx"): ("--out", "FILE"),
    ("explain",): (),
    ("explain", "RUN", "--against"): (),
    ("replay",): (),
    ("report",): (),
    ("hindsight",): (),
    ("runs", "compare"): ("RUN",),
    ("runs", "compare", "RUN"): (),
    ("ledger", "show"): (),
    ("approve",): ("--by", "ann"),
    ("stage", "ingest", *DECISION, "--run-id"): (),
}
NO_WORLD = ("compile", "new", "world", "init")


def commands(places: dict[str, str]) -> Iterator[tuple[tuple[str, ...], Callable[..., None]]]:
    """Yield all commands with their names."""
    for name, place in places.items():
        command = load(place)
        if not isinstance(command, typer.Typer):
            yield (name,), command
            continue
        for inner in command.registered_commands:
            assert inner.callback is not None
            yield (name, inner.name or inner.callback.__name__), inner.callback


def test_every_command_that_writes_or_takes_a_run_is_tried_here() -> None:
    """A new option of this kind needs a row above."""
    all_commands = [pair for group in COMMANDS.values() for pair in commands(group)]
    writers = {words[0] for words in (*WRITES_FILES, *WRITES_FOLDERS)}
    takers = {words[0] for words in TAKES_RUN}
    for words, command in all_commands:
        parameters = inspect.signature(command).parameters
        if {"out", "into", "key_to", "page", "summary"} & set(parameters):
            assert words[0] in writers, words
        if {"run_id", "run", "resume", "first", "target", "account"} & set(parameters):
            # These name something else, `route` may admit a new run, and `settle` follows a route step that
            # may have refused to.
            assert words[0] in takers | {"route", "settle", "compile", "upload", "init"}, words


def filled(finished: Finished, words: tuple[str, ...]) -> list[str]:
    run_id = str(finished.ran.json["run_id"])
    accounts = (path.name for path in (finished.store / "ledger").iterdir())
    month = next(name for name in accounts if re.fullmatch(r"\d{4}-\d{2}", name))
    data = str(finished.recipe.with_name("flights.csv"))
    values = {"RECIPE": str(finished.recipe), "MONTH": month, "DATA": data}
    return [values.get(word, word.replace("RUN", run_id)) for word in words]


def where(finished: Finished, words: tuple[str, ...]) -> tuple[str, ...]:
    if words[0] in NO_WORLD:
        return ()
    world = ("--world", str(finished.world))
    return world if words[0] in ("settle", "stage", "route") else (*world, "--store", str(finished.store))


@pytest.fixture
def environment(finished: Finished) -> dict[str, str]:
    return {"SHOESTRING_STORE": str(finished.store)}


def tried(finished: Finished, words: tuple[str, ...], value: object, more: tuple[str, ...], env: Any) -> str:
    """Run the command with this value of its last option; return what it prints on stderr."""
    given = (*filled(finished, words), value, *filled(finished, more))
    ran = shoestring(*given, *where(finished, words), env=env)
    assert ran.code == 2, f"{ran.code}: {ran.err}{ran.out}"
    assert "Traceback" not in ran.err and "Errno" not in ran.err
    return ran.err


@pytest.mark.parametrize("words", WRITES_FILES, ids=" ".join)
def test_a_folder_where_a_file_is_to_be_written_is_named(
    finished: Finished, environment: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    err = tried(finished, words, tmp_path, WRITES_FILES[words], environment)
    assert f"cannot use {tmp_path}: it is a folder, and a file is needed" in err


@pytest.mark.parametrize("words", [*WRITES_FILES, *WRITES_FOLDERS], ids=" ".join)
def test_a_path_below_a_file_is_named(
    finished: Finished, environment: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("")
    more = (WRITES_FILES | WRITES_FOLDERS)[words]
    err = tried(finished, words, tmp_path / "file" / "below", more, environment)
    assert str(tmp_path / "file") in err


@pytest.mark.parametrize("words", WRITES_FOLDERS, ids=" ".join)
def test_a_file_where_a_folder_is_needed_is_named(
    finished: Finished, environment: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in tried(
        finished, words, tmp_path / "file", WRITES_FOLDERS[words], environment
    )


@pytest.mark.parametrize("name", NO_RUN)
@pytest.mark.parametrize("words", TAKES_RUN, ids=" ".join)
def test_a_run_that_does_not_exist_is_bad_usage_however_it_is_written(
    finished: Finished, environment: dict[str, str], words: tuple[str, ...], name: str
) -> None:
    tried(finished, words, name, TAKES_RUN[words], environment)
