"""`shoestring data ...`: what a recipe reads, and whether what is stored of it is intact."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import DownloadColumn, Progress, TimeRemainingColumn
from typer.core import TyperGroup

from shoestring.backends.local import default_world_path
from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption, SeedOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UnknownName
from shoestring.core.interfaces import Store, StoreInventory
from shoestring.data.lineage.file_states import RecipeCheck, SourceCheck
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.retention.verification import ALL, BytesCheck, DamagedObject, StoredDigests
from shoestring.reporting.number_text import quantity, size, utc_time
from shoestring.reporting.runs.lineage_text import lineage_text
from shoestring.reporting.runs.source_text import source_lines
from shoestring.reporting.runs.traced_model import TracedModel, trace_in_store
from shoestring.reporting.terminal.output import TerminalConsole
from shoestring.runtime.admission.cache_misses import KeyChange, StageCaching, explain_caching
from shoestring.runtime.admission.stages import training_needs

MAX_VALUE = 60
"""Characters of a value of a key that are shown; the JSON has all."""

MAX_FILES = 20
"""Source files that are shown where more have changed; the JSON has all."""


class DataCommands(TyperGroup):
    """`shoestring data RECIPE` is `shoestring data show RECIPE`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument names; any other name is a recipe's."""
        is_command = not args or args[0] in self.commands
        return super().resolve_command(ctx, args if is_command else ["show", *args])


app = typer.Typer(
    cls=DataCommands,
    help="What a recipe reads, and what is stored of it. `data RECIPE` is `data show RECIPE`.",
    no_args_is_help=True,
)


@app.command()
@takes_world
def show(
    recipe: Annotated[str, typer.Argument(help="name of a recipe, or path of your own .yaml file")],
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Show how each column of a recipe is read and used, and what looks wrong.

    Also show the rows, the splits, the target's distribution, and the columns that differ from the last
    version of the data in the store. Reads all of a table of up to 50 MB, else its first, middle and last
    part, and costs nothing. The exit code is 1 if a run would be
    refused.
    """
    # Arrow takes 0.1 s to import, which other commands would wait for.
    from shoestring.backends.sources.obstore_sources import ObstoreSources
    from shoestring.data.increments.schema_version import NO_SCHEMA, last_schema
    from shoestring.data.inspect.page import inspect_data
    from shoestring.reporting.data_text import print_page

    found = find_recipe(recipe)
    # Without a world, nothing has been stored yet.
    has_world = source.is_given or default_world_path().exists()
    last = last_schema(source.open().store, found.name) if has_world else NO_SCHEMA
    with TerminalConsole(sys.stderr).status("reading the data") if sys.stderr.isatty() else nullcontext():
        page = inspect_data(found, ObstoreSources(), last)
    if as_json:
        typer.echo(page.model_dump_json(indent=1))
    else:
        print_page(page, sys.stdout)
    if page.refusal:
        raise typer.Exit(1)


@app.command()
@takes_world
def verify(
    what: Annotated[
        str,
        typer.Argument(
            help="a recipe (its name, or a path that ends in .yaml), a data set (its name, or the key of one "
            "version), or the id of a run"
        ),
    ] = ALL,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Read bytes again, and name what does not match its digest.

    A recipe's source files are all read, and compared with those of its newest data set: a file that was
    rewritten with the same size and times is found, and the next run reads it. Then all stored objects are
    read: data sets with all their parts, dictionaries and quarantined rows, models and results. A data set is
    read with those that it was made from. Costs nothing. The exit code is 1 if a file or an object differs or
    is missing.
    """
    recipe = _recipe_named(what)
    # What the store remembers of files that differ is corrected.
    store = source.open(writes=recipe is not None).store
    assert isinstance(store, StoreInventory)
    sources = _check_sources(recipe, store, store) if recipe else None
    stored = StoredDigests(store, store)
    keys = stored.select(named_run_id(store, what)) if recipe is None else _keys_of(stored, recipe.name)
    size_bytes = stored.size_bytes(keys)
    with _reading("reading", size_bytes) as progress:
        damaged = stored.verify(keys, progress)
    found = BytesCheck(store=store.place, objects=len(keys), size_bytes=size_bytes, damaged=tuple(damaged))
    if sources is not None:
        found = RecipeCheck(**dict(found), sources=sources)
    typer.echo(found.model_dump_json(indent=1) if as_json else _verification_text(found))
    if damaged or (sources is not None and sources.differs):
        raise typer.Exit(1)


def _recipe_named(name: str) -> Recipe | None:
    """Return the recipe of this name or path; None: it is the name of something else."""
    try:
        return find_recipe(name)
    except UnknownName:
        return None


def _keys_of(stored: StoredDigests, name: str) -> list[str]:
    """Return the keys of the data sets of a recipe."""
    try:
        return stored.select(name)
    except UnknownName:
        # No run has encoded its rows yet.
        return stored.select(f"{name}-raw")


def _check_sources(recipe: Recipe, store: Store, inventory: StoreInventory) -> SourceCheck:
    from shoestring.backends.sources.obstore_sources import ObstoreSources
    from shoestring.data.lineage.source_check import check_sources, list_tables, newest_raw

    remote = ObstoreSources()
    dataset, tables = newest_raw(store, inventory, recipe), list_tables(recipe, remote)
    size_bytes = sum(file.size_bytes for table in tables for file in table.files)
    with _reading("reading source files", size_bytes) as progress:
        return check_sources(recipe, tables, store, dataset, remote, progress)


@contextmanager
def _reading(text: str, size_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal. Yields what receives the bytes of each block."""
    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TimeRemainingColumn())
    screen = TerminalConsole(sys.stderr)
    with Progress(*columns, console=screen, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(text, total=size_bytes)
        yield lambda read_bytes: progress.advance(task, read_bytes)


@app.command()
@takes_world
def why(
    recipe: Annotated[str, typer.Argument(help="name of a recipe, or path of your own .yaml file")],
    seed: SeedOption = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Show which stages of a recipe are cached, and which part of its key missed where one is not.

    The key is compared with that of the nearest earlier result: source files, settings, modules of the code,
    and libraries, each as it was and as it is. Starts nothing.
    """
    opened, found = source.open(), find_recipe(recipe)
    stages = explain_caching(opened, found, training_needs(), found.seed if seed is None else seed)
    if as_json:
        typer.echo(json.dumps([each.model_dump(mode="json") for each in stages], indent=1))
    else:
        typer.echo("\n".join(line for stage in stages for line in _caching_lines(stage)))


def _caching_lines(stage: StageCaching) -> Iterator[str]:
    at = utc_time(stage.written_at) if stage.written_at else ""
    if stage.status == "cached":
        yield f"{stage.stage:<12} cached: {stage.entry}, {at}"
        return
    state = "is computed" if stage.status == "missing" else "is not known"
    yield f"{stage.stage:<12} {state}{f': {stage.reason}' if stage.reason else ''}"
    if not stage.changes:
        if stage.entry and not stage.reason.startswith("an object"):
            yield f"  nothing else differs from {stage.entry}, {at}"
        return
    yield f"  different in the nearest earlier result, {stage.entry}, {at}:"
    files = [each for each in stage.changes if each.part == "source file"]
    unshown = files[MAX_FILES:]
    for each in (each for each in stage.changes if each not in unshown):
        before, after = (
            text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..." for text in (each.before, each.after)
        )
        state = f"  ({_file_state(each)})" if each.part == "source file" else ""
        yield f"    {each.part:<12} {each.name}  {before or '-'} -> {after or '-'}{state}"
    if unshown:
        states = Counter(map(_file_state, files))
        counts = ", ".join(f"{states[state]:,} {state}" for state in sorted(states))
        yield f"    {quantity(len(files), 'source file')} in all: {counts}; --json lists them"


def _file_state(change: KeyChange) -> str:
    """Return what happened to a source file since the earlier result."""
    if not change.before:
        return "new"
    return "changed" if change.after else "removed"


@app.command()
@takes_world
def lineage(
    model: Annotated[
        str,
        typer.Argument(
            help="folder of a model, folder of a run's files, id of a run, or digest of a model's weights"
        ),
    ],
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Go from a model back to its training, its data sets, and the files with their digests.

    What is stored on the way is read: an object whose bytes do not match its digest is named, and the exit
    code is then 1. What `gc` has deleted is named with its digest.
    """
    store = source.open().store
    assert isinstance(store, StoreInventory)
    found = _trace(store, store, model)
    typer.echo(found.model_dump_json(indent=1) if as_json else lineage_text(found))
    if found.damaged:
        raise typer.Exit(1)


def _trace(store: Store, inventory: StoreInventory, model: str) -> TracedModel:
    """Return the lineage of a model: by the store, else, of a folder from elsewhere, by the folder itself."""
    from shoestring.models.folder.read_folder import find_folder
    from shoestring.reporting.publish import read_lineage

    with _reading("reading", None) as progress:
        if (folder := find_folder(Path(model))) is None:
            return trace_in_store(store, inventory, named_run_id(store, model), progress)
        exported = read_lineage(folder)
        try:
            found = trace_in_store(store, inventory, exported.weights_sha256, progress)
        except UnknownName:
            found = TracedModel(**dict(exported))
        return found.model_copy(update={"folder": str(folder)})


def _verification_text(found: BytesCheck) -> str:
    sources = "\n".join([*source_lines(found.sources), ""]) if isinstance(found, RecipeCheck) else ""
    return f"{sources}{_stored_text(found)}"


def _stored_text(found: BytesCheck) -> str:
    read = f"{quantity(found.objects, 'object')} of {found.store} read, {size(found.size_bytes)}"
    if not found.damaged:
        return f"{read}: all match their digests"
    return "\n".join(
        [
            f"{read}: {len(found.damaged)} damaged",
            *map(_damage_text, found.damaged),
            "a run that needs one of these computes it again, and stores it again",
        ]
    )


def _damage_text(damaged: DamagedObject) -> str:
    expected, found = damaged.expected_bytes, size(damaged.size_bytes)
    if damaged.problem == "is missing":
        found = "" if expected is None else f" ({size(expected)})"
    elif expected is None or expected == damaged.size_bytes:
        found = f" ({found}): its bytes have the digest {damaged.found_sha256}"
    else:
        found = f": {damaged.size_bytes:,} bytes instead of {expected:,}"
    named = f"; part of {', '.join(damaged.datasets)}" if damaged.datasets else ""
    return f"  {damaged.key} {damaged.problem}{found}{named}"
