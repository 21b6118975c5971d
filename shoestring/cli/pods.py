"""`shoestring route`, `stage` and `settle`: what an engine's containers call, one of them a pod."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoestring.core.errors import Refused, UnknownName, UsageError
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_text
from shoestring.routing.placement import argo_patch
from shoestring.runtime import route as route_stage
from shoestring.runtime import run as run_stage
from shoestring.runtime.admission.build_question import stage_names
from shoestring.runtime.open_world import open_world
from shoestring.runtime.settlement.settle import finish

RunIdOption = Annotated[str, typer.Option(help="the run that it belongs to")]
WorldArgument = Annotated[
    str, typer.Option(help="world file, or folder of a cluster's world; default as for `run`")
]


def route(
    needs: Annotated[str, typer.Option(help="JSON of the NEED of the stage and of those after it, in order")],
    run_id: RunIdOption,
    recipe: Annotated[str, typer.Option(help="the recipe, as JSON")],
    out: Annotated[Path, typer.Option(help="folder for patch, decision_key, decision.json and page.md")],
    budget: Annotated[str, typer.Option(help="dollars for the whole run; empty: the recipe's")] = "",
    deadline: Annotated[float, typer.Option(min=0, help="seconds for the whole run; 0: the recipe's")] = 0.0,
    seed: Annotated[int, typer.Option(min=-1, help="-1: the recipe's")] = -1,
    upstream: Annotated[
        str, typer.Option(help="key of the manifest that the stage reads; empty for the first")
    ] = "",
    also: Annotated[str, typer.Option(help="key of whatever else it reads")] = "",
    world: WorldArgument = "",
) -> None:
    """Choose where the next stage runs, reserve what it may cost, and say why.

    `patch` is the placement as a patch of its pod's spec. A file `refused` says that asking again would not help.
    """
    out.mkdir(parents=True, exist_ok=True)
    decision_path, page_path = out / "decision.json", out / "page.md"
    try:
        values = route_stage(
            needs,
            world,
            run_id,
            recipe,
            budget,
            deadline,
            seed,
            upstream,
            also,
            str(decision_path),
            str(page_path),
        )
    except (Refused, UsageError):
        (out / "refused").write_text("yes")
        raise
    decision = Decision.model_validate_json(decision_path.read_bytes())
    (out / "patch").write_text(argo_patch(decision))
    (out / "decision_key").write_text(values["decision_key"])
    typer.echo(as_text(decision))


def stage(
    name: Annotated[str, typer.Argument(help="ingest, preprocess, train, evaluate or one of your own")],
    run_id: RunIdOption,
    decision_key: Annotated[str, typer.Option(help="key of its router's decision in the store")],
    given: Annotated[
        list[str] | None, typer.Option("--input", help="NAME=KEY of what it reads; may be repeated")
    ] = None,
    key_to: Annotated[Path | None, typer.Option(help="file to write the key of what it left into")] = None,
    origin: Annotated[
        str, typer.Option(help="JSON that says which code does the work of an author's own stage")
    ] = "",
    world: WorldArgument = "",
) -> None:
    """Run one routed stage in this process, with its books: what a pod does. Prints the key of what it left."""
    if not origin and name not in stage_names():
        raise UnknownName("stage", name, stage_names())
    pairs = [item.partition("=") for item in given or []]
    if bad := [key + sep + value for key, sep, value in pairs if not (key and sep and value)]:
        raise UsageError(f"--input {bad[0]!r}: write it as NAME=KEY")
    inputs = {key: value for key, _, value in pairs}
    key = run_stage(name, world=world, run_id=run_id, decision_key=decision_key, inputs=inputs, origin=origin)
    if key_to is not None:
        key_to.write_text(key)
    typer.echo(key)


def settle(
    run_id: RunIdOption,
    page: Annotated[str, typer.Option(help="file to write the report into")] = "",
    summary: Annotated[str, typer.Option(help="file to write the summary into, as JSON")] = "",
    world: WorldArgument = "",
) -> None:
    """The exit step: settle what is still reserved, close the run's account, write the summary and the report."""
    finish(open_world(world), run_id, page, summary)


def add_to(app: typer.Typer) -> None:
    app.command()(route)
    app.command()(stage)
    app.command()(settle)
