"""`shoestring where`: the places of a world, and the objects of its store with their cost a month."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from shoestring.backends.local import default_world_path
from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.interfaces import StoreInventory
from shoestring.core.record import Record
from shoestring.data.retention.holdings import Holdings, ObjectKind, hold, kinds_of, objects_of_run
from shoestring.data.run_records import open_run
from shoestring.reporting.number_text import dollars, size
from shoestring.routing.text_table import TextTable, text_lines


class RunObject(Record):
    """One object of a run, or one that a record of the run names."""

    key: str
    kind: ObjectKind
    size_bytes: int


class Places(Record):
    """Where the world, the store and the scratch files are, and what the store holds."""

    world: str
    store: str
    scratch: str
    folder: str | None = Field(None, description="the local folder of the run's report; null: none is here")
    holdings: Holdings
    objects: tuple[RunObject, ...] = Field((), description="of the run that was asked for")


@takes_world
def where(
    run: Annotated[
        str | None, typer.Argument(help="id of a run: what it wrote and reads; default: all")
    ] = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Print where the world, the store and the scratch files are, and what the objects there cost a month.

    With a run: its records, and the data sets, models and other objects that they name.
    """
    opened = source.open()
    store = opened.store
    assert isinstance(store, StoreInventory)
    if run is not None:
        run = open_run(store, named_run_id(store, run)).run_id
    objects = store.objects("")
    keys = list(objects) if run is None else objects_of_run(store, objects, run)
    kinds = kinds_of(store, objects)
    folder = Path("runs", run) if run else None
    found = Places(
        world=_world_place(source),
        store=store.place,
        scratch=(
            "the ephemeral storage of each pod, gone with the pod"
            if source.is_cluster
            else f"{tempfile.gettempdir()}, one folder a stage, gone when the stage ends"
        ),
        folder=str(folder.absolute()) if folder and folder.is_dir() else None,
        holdings=hold(keys, objects, kinds, opened.prices.book().tariffs),
        objects=tuple(
            RunObject(key=key, kind=kinds[key], size_bytes=objects[key].size_bytes) for key in keys if run
        ),
    )
    typer.echo(found.model_dump_json(indent=1) if as_json else _as_text(found))


def _world_place(source: WorldSource) -> str:
    if source.on is not None:
        return f"namespace {source.namespace} of context {source.on}"
    return str((source.world or default_world_path()).absolute())


def holdings_lines(caption: str, holdings: Holdings) -> list[str]:
    """Return a table of objects by kind, and their total."""
    rows = [
        (each.kind, f"{each.objects:,}", size(each.size_bytes), dollars(each.usd_per_month))
        for each in holdings.kinds
    ]
    total = ("all", f"{holdings.objects:,}", size(holdings.size_bytes), dollars(holdings.usd_per_month))
    return text_lines(
        TextTable(
            caption,
            ("kind", "objects", "size", "a month"),
            [*rows, total],
            right=frozenset({"objects", "size", "a month"}),
        )
    )


def _as_text(found: Places) -> str:
    lines = [f"world    {found.world}", f"store    {found.store}", f"scratch  {found.scratch}"]
    lines += [f"report   {found.folder}"] if found.folder else []
    lines += holdings_lines("", found.holdings)
    lines += [f"{each.kind:<16} {size(each.size_bytes):>8}  {each.key}" for each in found.objects]
    return "\n".join(lines)
