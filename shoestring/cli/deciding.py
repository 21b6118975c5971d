"""`shoestring explain` and `replay`: decisions, said and made again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ValidationError

from shoestring.cli.running import JsonOption, StoreOption, WorldOption, world_at
from shoestring.core.errors import ShoestringError, UsageError
from shoestring.core.types import validation_message
from shoestring.data.run_records import open_run
from shoestring.routing.analysis.compare import Comparison, WhyNot, compare, why_not
from shoestring.routing.analysis.replay import replay as replay_decision
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_markdown, as_text
from shoestring.routing.policy.migration import Look, look_grid
from shoestring.routing.text_table import Grid, markdown_lines, text_lines

MOST_LINES = 40
"""Of a difference that are shown, where many decisions are made again."""


def decision_file(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        Decision.model_validate_json(data)
    except OSError as error:
        raise UsageError(f"cannot read the decision {path}: {error.strerror}") from None
    except ValidationError as error:
        raise UsageError(f"{path} is not a decision: {validation_message(error)}") from None
    return data


def explain(
    file: Annotated[
        Path, typer.Argument(help="a decision's JSON file, like runs/RUN/decisions/train-1.json")
    ],
    markdown: Annotated[bool, typer.Option("--markdown", help="as the page in the Kubeflow UI")] = False,
    against: Annotated[
        Path | None, typer.Option(help="another of the same stage: which inputs made the difference")
    ] = None,
    pool: Annotated[
        str | None, typer.Option("--why-not", help="a pool: why it was not taken, and when it would be")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a router chose, why, and what it refused; or what made it choose otherwise than another, or not take a pool."""
    decision = Decision.model_validate_json(decision_file(file))
    if against is not None:
        found = compare(decision, Decision.model_validate_json(decision_file(against)))
        typer.echo(found.model_dump_json(indent=1) if as_json else _compared(found))
    elif pool is not None:
        refused = why_not(decision, pool)
        typer.echo(_json(refused) if as_json else _refused(refused, pool))
    elif as_json:
        typer.echo(decision.model_dump_json(indent=1))
    else:
        look = look_beside(file)
        lines = markdown_lines if markdown else text_lines
        later = "\n".join(["", *lines(look_grid(look))]) if look else ""
        typer.echo((as_markdown(decision) if markdown else as_text(decision)) + later)


def look_beside(file: Path) -> Look | None:
    """The last second look of the attempt that a decision in a run's folder was made for; None where there is none."""
    path = file.parent.parent / "looks" / file.name
    try:
        return Look.model_validate_json(path.read_bytes())
    except OSError:
        return None
    except ValidationError as error:
        raise UsageError(f"{path} is not a second look: {validation_message(error)}") from None


def _json(found: tuple[BaseModel, ...]) -> str:
    return json.dumps([each.model_dump(mode="json") for each in found], indent=1)


def _compared(found: Comparison) -> str:
    head = f"{found.stage}: {found.first}, against {found.second}"
    if not found.changes:
        why = "no input differs" + ("" if found.same_choice else ": the code that decided does")
        return f"{head}\n{why}"
    rows = [
        (
            each.group,
            fields,
            (each.alone or "does not hang together") if number == 0 else "",
            "yes" if each.flips and number == 0 else "",
        )
        for each in found.changes
        for number, fields in enumerate(each.fields)
    ]
    lines = [
        head,
        "",
        *text_lines(
            Grid(
                "What differs", ("inputs", "from the first to the second", "with these alone", "flips"), rows
            )
        ),
    ]
    if not found.same_choice:
        enough = f"enough to choose as the second: {' and '.join(found.enough)}"
        lines += [
            "",
            enough
            if found.enough
            else "all inputs of the second do not make its choice here: the code that decided differs",
        ]
    return "\n".join(
        lines + ([] if found.remade else ["this version no longer decides the first as it was recorded"])
    )


def _refused(found: tuple[WhyNot, ...], pool: str) -> str:
    if not found:
        return f"{pool} was taken"
    lines = []
    for each in found:
        lines.append(f"{each.offer}: {each.why}")
        if each.usd_per_hour is not None and each.taken_at_usd_per_hour is not None:
            lines.append(
                f"  taken at ${each.taken_at_usd_per_hour} an hour or less; it was ${each.usd_per_hour}"
            )
        elif each.usd_per_hour is not None:
            lines.append(f"  at no price; it was ${each.usd_per_hour} an hour")
        if each.taken_at_budget_usd is not None:
            lines.append(f"  taken with a budget of ${each.taken_at_budget_usd} or more")
    return "\n".join(lines)


def replay(
    target: Annotated[
        str | None, typer.Argument(help="a decision's file, a folder of them, or a run; default: all runs")
    ] = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make recorded decisions again from their own records and compare every byte. Exit code 1 when any differs."""
    found = {name: _again(data) for name, data in _decisions(target, world, store)}
    differ = {name: said for name, said in found.items() if said is not None}
    if as_json:
        typer.echo(
            json.dumps(
                {"decisions": len(found), "same": len(found) - len(differ), "differ": differ}, indent=1
            )
        )
    elif len(found) == 1 and not differ:
        typer.echo(f"{next(iter(found))}: the same decision, byte for byte")
    else:
        for name, said in differ.items():
            lines = said.splitlines()
            more = (
                [f"... {len(lines) - MOST_LINES} more lines"]
                if len(found) > 1 and len(lines) > MOST_LINES
                else []
            )
            typer.echo("\n".join([f"{name}:", *(lines[:MOST_LINES] if more else lines), *more]))
        typer.echo(f"{len(found)} decisions made again: {len(found) - len(differ)} the same, byte for byte")
    if differ:
        which = next(iter(differ)) if len(differ) == 1 else f"{len(differ)} of {len(found)} decisions"
        typer.echo(f"shoestring: {which}: this version decides otherwise", err=True)
        raise typer.Exit(1)


def _again(data: bytes) -> str | None:
    """The difference; None: there is none. What another version wrote cannot be made again by this one, and differs."""
    try:
        return replay_decision(data)
    except ShoestringError as error:
        return str(error)


def _decisions(target: str | None, world: Path | None, store: Path | None) -> Iterator[tuple[str, bytes]]:
    """Each with its name. Raises UsageError, UnknownName."""
    path = Path(target) if target else None
    if path is not None and (path.is_file() or path.suffix == ".json"):
        yield target or "", decision_file(path)
        return
    if path is not None and path.is_dir():
        files = sorted(path.rglob("decisions/*.json")) or sorted(path.glob("*.json"))
        if not files:
            raise UsageError(f"there is no decision in {path}")
        yield from ((str(file), file.read_bytes()) for file in files)
        return
    opened = world_at(world, store).store
    if target:
        open_run(opened, target)
    keys = [
        key
        for key in opened.list(f"runs/{target}/" if target else "runs/")
        if key.split("/")[2:3] == ["decisions"]
    ]
    if not keys:
        raise UsageError("nothing was decided there: there is nothing to make again")
    yield from ((key, opened.fetch(key).read_bytes()) for key in keys)


def add_to(app: typer.Typer) -> None:
    app.command()(explain)
    app.command()(replay)
