"""The look at a run's data before it starts. Its page is kept, so that the same data is looked at once."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore
from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.data.inspect.page_records import DataPage
from shoestring.data.job import Command, Task
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.data.storage.cache import cache_key
from shoestring.data.storage.import_closure import import_closure, library_versions
from shoestring.runtime.admission.result_keys import BUDGET_SETTINGS

PAGE_MODULE = "shoestring.data.inspect.page"


def look_at_data(
    world: World, task: Task, needs: Sequence[Need], *, keeps_page: bool = True
) -> DataPage | None:
    """Return what will be predicted, and which columns look wrong; None: the pipeline encodes no target.

    `keeps_page`: store the page for the next look.

    Raises:
        DataError, RecipeError: nothing can be predicted from this data.
    """
    if isinstance(task, Command) or all(need.stage != "preprocess" for need in needs):
        return None
    recipe = task
    key = _page_key(world, recipe)
    if key is not None:
        try:
            return read_record(world.store, key, DataPage)
        except (NotInStore, DataError):
            pass
    # Only an admission of data that is new reads it.
    from shoestring.data.increments.schema_version import last_schema
    from shoestring.data.inspect.page import page_of_run

    page = page_of_run(recipe, world.remote, last_schema(world.store, recipe.name))
    if key is not None and keeps_page:
        world.store.put(key, record_bytes(page))
    return page


def _page_key(world: World, recipe: Recipe) -> str | None:
    """Return the key of the page of this recipe and data; None: the content of a remote source is unknown."""
    from shoestring.data.sources.fingerprint import fingerprint

    if (source := fingerprint(recipe, world.store, world.remote)) is None:
        return None
    schema = max(world.store.list(store_layout.schemas(recipe.name)), default="")
    closure = import_closure(PAGE_MODULE)
    settings = recipe.model_dump(mode="json", exclude={*BUDGET_SETTINGS, "train"})
    libraries = library_versions(closure.libraries)
    key, _ = cache_key("data page", closure.digest, libraries, settings, {"source": source, "schema": schema})
    return store_layout.cached_page(key)
