"""The `shoestring` command: a thin layer over the packages.

Exit codes: 0 done, 1 refused or failed for a stated reason, 2 bad usage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import shoestring
from shoestring.core.errors import ShoestringError, UsageError
from shoestring.reporting.terminal.output import TerminalConsole, escape_streams

RENAMED_COMMANDS = {"sweep": "reap"}

COMMANDS: dict[str, dict[str, str]] = {
    "Running": {
        "init": "authoring.init:init",
        "data": "running.data:app",
        "plan": "running.plan:plan",
        "profile": "running.profile:profile",
        "run": "running.run:run",
        "exec": "running.exec_:exec_command",
        "watch": "running.watch:watch",
        "predict": "running.predict:predict",
        "simulate": "running.simulate:simulate",
    },
    "Understanding a run": {
        "runs": "understanding.runs:app",
        "explain": "understanding.explain:explain",
        "replay": "understanding.replay:replay",
        "report": "understanding.report:report",
        "actuals": "understanding.actuals:show_actuals",
        "hindsight": "understanding.hindsight:show_hindsight",
    },
    "Money": {
        "ledger": "money.ledger:app",
        "approve": "money.approve:approve",
        "approvals": "money.approvals:list_approvals",
        "reconcile": "money.reconcile:show_reconciliation",
        "export": "money.export:app",
    },
    "Platform": {
        "world": "platform.world:app",
        "where": "platform.where:where",
        "gc": "platform.gc:gc",
        "prices": "platform.prices:app",
        "policy": "platform.policy:app",
        "reap": "platform.reap:reap",
    },
    "Authoring": {
        "new": "authoring.new:new",
        "compile": "authoring.compile_:compile_pipelines",
        "upload": "authoring.upload:upload",
        "schema": "authoring.schema:schema",
    },
    "Called by engines": {
        "route": "engine.route:route",
        "stage": "engine.stage:stage",
        "settle": "engine.settle:settle",
    },
}
"""The function or group of each command, below `shoestring.cli`. Only the module of the command that is
called is imported: a route step is not billed for the imports of the others.
"""
PLACES = {name: place for names in COMMANDS.values() for name, place in names.items()}


def load(place: str) -> Any:
    """Return the function or the Typer app of a command."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"shoestring.cli.{module}"), name)


@cache
def command_named(name: str) -> Any:
    """Return a command as Typer runs it."""
    command, parent = load(PLACES[name]), typer.Typer(rich_markup_mode=None)
    heading = next(heading for heading, names in COMMANDS.items() if name in names)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name, rich_help_panel=heading)
    else:
        parent.command(name, rich_help_panel=heading)(command)
    return typer.main.get_group(parent).commands[name]


class Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is read."""

    def __getitem__(self, name: str) -> Any:
        if name not in PLACES:
            raise KeyError(name)
        return command_named(name)

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


class CommandGroups(TyperGroup):
    """The top-level command, whose help lists the commands under the headings of `COMMANDS`."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.commands: Any = Commands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument names. Raises UsageError for a name that was replaced."""
        if args and args[0] in RENAMED_COMMANDS:
            new_name = RENAMED_COMMANDS[args[0]]
            raise UsageError(f"`shoestring {args[0]}` was renamed: use `shoestring {new_name}`")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per heading, each command with the start of its help text."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for heading, names in COMMANDS.items():
            with formatter.section(heading):
                rows = [(name, self.commands[name].get_short_help_str(width)) for name in names]
                formatter.write_dl(rows)


app = typer.Typer(
    name="shoestring",
    cls=CommandGroups,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # `main` escapes the ANSI codes of others. Where stdout is no terminal, typer.echo would remove them.
    context_settings={"color": True},
)


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shoestring {shoestring.__version__}")
        raise typer.Exit


@app.callback()
def shoestring_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="print the version and exit"),
    ] = False,
) -> None:
    """Machine-learning pipelines that stay inside their budget."""


def main() -> None:
    """Run the console script. Errors go to stderr as sentences and, with `--json`, to stdout as one JSON
    object.
    """
    escape_streams()
    try:
        app()
    except ShoestringError as error:
        exit_with_error(str(error), error.exit_code)
    except OSError as error:
        # Errors of the store were already converted to StoreError: this one comes from a file or folder named
        # on the command line, or from the disk that holds temporary files.
        exit_with_error(*file_error(error))
    except KeyboardInterrupt:
        sys.exit(130)


def file_error(error: OSError) -> tuple[str, int]:
    """Return the sentence for a file or folder that cannot be used, and the exit code: 2 if its path is
    wrong.
    """
    path, reason = error.filename2 or error.filename, (error.strerror or str(error)).lower()
    match error:
        case IsADirectoryError():
            reason = "it is a folder, and a file is needed"
        case NotADirectoryError() | FileExistsError():
            reason = "it is a file, or a part of its path is one, and a folder is needed"
        case FileNotFoundError():
            reason = "there is no such file or folder"
        case PermissionError():
            reason = "permission denied"
        case _:
            return f"cannot use {path}: {reason}" if path else str(error), 1
    return f"cannot use {path}: {reason}", 2


def exit_with_error(reason: str, exit_code: int) -> None:
    TerminalConsole(sys.stderr, soft_wrap=True).print(f"shoestring: {reason}")
    if "--json" in sys.argv:
        print(json.dumps({"status": "usage" if exit_code == 2 else "refused", "error": reason}))
    sys.exit(exit_code)
