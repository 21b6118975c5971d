"""The key of a stage's result, made from everything that the result depends on; and the results that are
cached under such keys.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pydantic import JsonValue

from shoestring.core.errors import UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage import cache
from shoestring.stages.work import Origin

# The recipe's settings of money and time, which no result depends on.
BUDGET_SETTINGS = {"budget_usd", "stage_budgets_usd", "campaign", "deadline_s", "priority"}


@dataclass(frozen=True, slots=True)
class StageInputs:
    """The keys of what a stage reads; empty: nothing.

    `upstream` is the manifest of its data. `side_input` is a second object that its result depends on.
    """

    upstream: str = ""
    side_input: str = ""


def stage_names() -> list[str]:
    """Return the names of the built-in stages, sorted."""
    folder = Path(importlib.import_module("shoestring.stages").__path__[0])
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "work"))


def stage_module(name: str) -> ModuleType:
    """Return the module of a built-in stage. Raises UnknownName."""
    if name not in stage_names():
        raise UnknownName("stage", name, stage_names())
    return importlib.import_module(f"shoestring.stages.{name}")


def is_builtin(stage: str) -> bool:
    return stage in stage_names()


def is_shared(stage: str) -> bool:
    """Return whether other runs can use the stage's result."""
    return is_builtin(stage) and bool(stage_module(stage).SHARED)


def cache_key(
    store: Store,
    recipe: Recipe,
    seed: int,
    run_id: str,
    stage: str,
    inputs: StageInputs,
    origin: Origin | None = None,
) -> tuple[str, dict[str, JsonValue]]:
    """Return the cache key of a stage's result, and the values that it is the digest of.

    These are the stage's code, its settings and the content of its inputs; also the run, if other runs cannot
    use the result. An author's own stage (`origin`) is assumed to depend on the whole recipe except its money
    and time.
    """
    if inputs.upstream:
        contents = {"data": inputs.upstream}
    else:
        from shoestring.data.sources.files import fingerprint

        contents = {"source": fingerprint(recipe, store)}
    if inputs.side_input:
        contents["side_input"] = digest(store.fetch(inputs.side_input).read_bytes())
    if origin is not None:
        relevant = recipe.model_dump(mode="json", exclude=BUDGET_SETTINGS)
        settings: dict[str, JsonValue] = {"settings": origin.settings, "recipe": relevant, "seed": seed}
        return cache.cache_key(stage, origin.code, settings, contents, None if origin.shared else run_id)
    module = stage_module(stage)
    return cache.cache_key(
        stage, module.code(), module.settings(recipe, seed), contents, None if module.SHARED else run_id
    )


def cached_chain(
    store: Store, recipe: Recipe, seed: int, run_id: str, needs: Iterable[Need], inputs: StageInputs
) -> Iterator[tuple[str, StageOutcome]]:
    """Yield the cache keys and cached results of stages that each read the one before.

    It ends at the first stage that is not cached, or whose result only its own run can use.
    """
    for need in needs:
        if not is_shared(need.stage):
            return
        key, _ = cache_key(store, recipe, seed, run_id, need.stage, inputs)
        if (outcome := cache.find_outcome(store, key)) is None:
            return
        yield key, outcome
        inputs = StageInputs(outcome.key)
