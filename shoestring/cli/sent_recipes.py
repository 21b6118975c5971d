"""A recipe that is sent to a cluster: what is wrong with it is said before anything is sent."""

from __future__ import annotations

import typer

from shoestring.core.errors import RecipeError, SourceUnreachable, UsageError
from shoestring.data.job import job_of_recipe
from shoestring.data.recipe import Recipe
from shoestring.data.source import Source


def check_sent(recipe: Recipe, *, trains: bool) -> None:
    """Check a recipe as its first route step will, as far as its data can be read from here.

    Data at a path is that of the pods' image, which a line on stderr names; a bucket is read with the
    cluster's credentials.

    Args:
        trains: the recipe is for the built-in training; the stages of other pipelines are not known here.

    Raises:
        RecipeError, DataError: the run would be refused.
    """
    warn_of_local_paths(recipe)
    if not trains:
        return
    # Only a run that is started here waits for these imports.
    from shoestring.backends.sources.obstore_sources import ObstoreSources
    from shoestring.data.inspect.page import page_of_run
    from shoestring.runtime.admission.admit import check_stage_names
    from shoestring.runtime.admission.stages import training_needs

    check_stage_names(job_of_recipe(recipe), training_needs())
    if not all(map(is_same_for_pods, recipe.source.values())):
        return
    try:
        page_of_run(recipe, ObstoreSources())
    except RecipeError:
        raise
    except (SourceUnreachable, UsageError) as error:
        typer.echo(f"its data was not checked, as it cannot be read from here: {error}", err=True)


def is_same_for_pods(source: Source) -> bool:
    """Return whether a table that is read here is the one that the pods read: on a web server, or in a
    package.
    """
    if source.url is not None:
        return source.url.startswith(("http://", "https://"))
    try:
        return source.path is None and source.locate().exists()
    except RecipeError:
        # Not installed here.
        return False


def warn_of_local_paths(recipe: Recipe) -> None:
    """Print a line on stderr for each table of the recipe that is read at a path."""
    for table, source in recipe.source.items():
        if source.path is not None:
            typer.echo(
                f"warning: the pods read the table {table} at {source.path} in their image, not on this "
                "machine: unless the image has it, copy it to a bucket and name it with `url`",
                err=True,
            )
