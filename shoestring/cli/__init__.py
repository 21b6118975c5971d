"""The `shoestring` command: a thin layer over the packages.

Exit codes: 0 done, 1 refused or failed for a stated reason, 2 bad usage.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import shoestring
from shoestring.cli.authoring import compile_, new, schema, upload
from shoestring.cli.engine import route, settle, stage
from shoestring.cli.money import approvals, approve, export, ledger, reconcile
from shoestring.cli.platform import policy, prices, reap, world
from shoestring.cli.running import plan, run, simulate, watch
from shoestring.cli.understanding import actuals, explain, hindsight, replay, report, runs
from shoestring.core.errors import ShoestringError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

RENAMED_COMMANDS = {"sweep": "reap"}

COMMANDS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Running": {"run": run.run, "watch": watch.watch, "plan": plan.plan, "simulate": simulate.simulate},
    "Understanding a run": {
        "runs": runs.app,
        "explain": explain.explain,
        "replay": replay.replay,
        "report": report.report,
        "actuals": actuals.show_actuals,
        "hindsight": hindsight.show_hindsight,
    },
    "Money": {
        "ledger": ledger.app,
        "approve": approve.approve,
        "approvals": approvals.list_approvals,
        "reconcile": reconcile.show_reconciliation,
        "export": export.app,
    },
    "Platform": {"world": world.app, "prices": prices.app, "policy": policy.app, "reap": reap.reap},
    "Authoring": {
        "new": new.new,
        "compile": compile_.compile_pipelines,
        "upload": upload.upload,
        "schema": schema.schema,
    },
    "Called by engines": {"route": route.route, "stage": stage.stage, "settle": settle.settle},
}


class CommandGroups(TyperGroup):
    """The top-level command, whose help lists the commands under the headings of `COMMANDS`."""

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


for heading, commands in COMMANDS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=heading)
        else:
            app.command(name, rich_help_panel=heading)(command)


def main() -> None:
    """Run the console script. Errors go to stderr as sentences and, with `--json`, to stdout as one JSON
    object.
    """
    try:
        app()
    except ShoestringError as error:
        exit_with_error(str(error), error.exit_code)
    except OSError as error:
        # Errors of the store were already converted to StoreError: this one comes from a folder named on the
        # command line, or from the disk that holds temporary files.
        exit_with_error(str(error), 1)
    except KeyboardInterrupt:
        sys.exit(130)


def exit_with_error(reason: str, exit_code: int) -> None:
    Console(stderr=True, soft_wrap=True).print(f"shoestring: {reason}", markup=False, highlight=False)
    if "--json" in sys.argv:
        print(json.dumps({"status": "usage" if exit_code == 2 else "refused", "error": reason}))
    sys.exit(exit_code)
