"""`shoestring stage`: called by the pod of a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.options import RunIdOption, WorldPathOption
from shoestring.core.errors import UnknownName, UsageError
from shoestring.data.job import DEFAULT_GRACE_S, Command
from shoestring.runtime import run as run_stage
from shoestring.runtime import run_command
from shoestring.runtime.admission.stages import stage_names

CommandArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="the command that this stage runs")
]
OutputOption = Annotated[list[str] | None, typer.Option("--output", help="NAME=FILE that the command writes")]


def stage(
    name: Annotated[
        str, typer.Argument(help="ingest, preprocess, train, evaluate, predict or a stage of your own")
    ],
    run_id: RunIdOption,
    decision_key: Annotated[str, typer.Option(help="key of the routing decision in the store")],
    given: Annotated[
        list[str] | None, typer.Option("--input", help="NAME=KEY of an input; may be repeated")
    ] = None,
    argv: CommandArgument = None,
    job_id: Annotated[str, typer.Option(help="id of the run if --run-id is empty")] = "",
    grace: Annotated[float, typer.Option(min=0.1, help="seconds from SIGTERM to SIGKILL")] = DEFAULT_GRACE_S,
    outputs: OutputOption = None,
    brace: Annotated[str, typer.Option(help="text in COMMAND that is there for an opening brace")] = "",
    key_to: Annotated[Path | None, typer.Option(help="file to write the key of the result to")] = None,
    origin: Annotated[str, typer.Option(help="JSON that identifies the code of an author's own stage")] = "",
    world: WorldPathOption = "",
) -> None:
    """Run one routed stage in this process.

    The stage is metered and settled, as in its pod. Prints the key of its result.
    """
    run_id = run_id or job_id
    if argv:
        words = tuple(word.replace(brace, "{") if brace else word for word in argv)
        command = Command(argv=words, grace_s=grace, outputs=named_values("--output", outputs, "FILE"))
        run_command(name, command, world=world, run_id=run_id, decision_key=decision_key)
        return
    if not origin and name not in stage_names():
        raise UnknownName("stage", name, stage_names())
    inputs = named_values("--input", given, "KEY")
    if key_to is not None:
        # Before anything is paid, so that a wrong path costs nothing.
        key_to.open("a").close()
    key = run_stage(name, world=world, run_id=run_id, decision_key=decision_key, inputs=inputs, origin=origin)
    if key_to is not None:
        key_to.write_text(key)
    typer.echo(key)


def named_values(option: str, given: list[str] | None, kind: str) -> dict[str, str]:
    """Return the values of an option that is written as NAME=VALUE. Raises UsageError."""
    pairs = [item.partition("=") for item in given or []]
    if bad := [key + sep + value for key, sep, value in pairs if not (key and sep and value)]:
        raise UsageError(f"{option} {bad[0]!r}: write it as NAME={kind}")
    return {key: value for key, _, value in pairs}
