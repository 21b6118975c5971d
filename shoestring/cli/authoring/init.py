"""`shoestring init`: a recipe for a data file, with its guesses as comments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoestring.core.errors import Refused


def init(
    data: Annotated[str, typer.Argument(help="data file, or a folder of them; a path or a URL")],
    target: Annotated[str | None, typer.Option(help="column to predict; default: a guess")] = None,
    out: Annotated[
        Path | None, typer.Option(help="file to write; default: the name of DATA, .yaml, in this folder")
    ] = None,
) -> None:
    """Write a recipe for a data file, with its guesses as comments.

    It guesses the target, a split by group, and the columns that should not be features, from a sample.
    """
    # Arrow takes 0.1 s to import, which other commands would wait for.
    from shoestring.backends.sources.obstore_sources import ObstoreSources
    from shoestring.data.inspect.guess import guess_recipe, recipe_name
    from shoestring.data.inspect.recipe_text import recipe_text

    path = out or Path(f"{recipe_name(data)}.yaml")
    if path.is_file():
        raise Refused(f"{path} already exists: choose another file with --out, or move it")
    text = recipe_text(guess_recipe(data, target, ObstoreSources()), path.absolute().parent)
    path.write_text(text, encoding="utf-8")
    typer.echo(
        f"{path}\n\nsee what is read:  shoestring data {path}\nrun it:            shoestring run {path}"
    )
