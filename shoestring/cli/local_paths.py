"""Data of this machine, which the pods of a cluster do not see."""

from __future__ import annotations

import typer

from shoestring.data.recipe import Recipe


def warn_of_local_paths(recipe: Recipe) -> None:
    """Print a line on stderr for each table of the recipe that is read at a path."""
    for table, source in recipe.source.items():
        if source.path is not None:
            typer.echo(
                f"warning: the pods read the table {table} at {source.path} in their image, not on this "
                "machine: unless the image has it, copy it to a bucket and name it with `url`",
                err=True,
            )
