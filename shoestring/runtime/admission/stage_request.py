"""A stage that is to be routed: its request, its inputs, and the key under which its result is cached."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType

from pydantic import Field, JsonValue

from shoestring.core import store_layout
from shoestring.core.errors import UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, SchemaVersion, digest
from shoestring.core.types import STANDARD_CLASS, Format, Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import load_manifest
from shoestring.routing.dag import UpstreamStage, build_dag
from shoestring.routing.question import CachedOutcome
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


class RemainingStages(Record):
    """The stages from this one to the end, in order. `routed()` compiles it into the router's arguments.

    `schema_version` has no default, so that it is always written.
    """

    schema_version: SchemaVersion
    needs: tuple[Need, ...]
    origin: Origin | None = Field(
        None, description="None: a built-in stage, whose code and settings the router knows"
    )
    metered: bool = Field(
        True, description="false: an external component, which is settled by its pod's times"
    )


@dataclass(frozen=True, slots=True)
class StageRequest:
    """A router's request to route a stage; `build_question` turns it into a Question.

    `notes` and `min_memory_gb` come from earlier attempts. `min_memory_gb` applies even if the stage's need
    is less. `upstream` are the stages that the remaining ones come after and that need no planning any more.
    """

    run_id: str
    recipe: Recipe
    seed: int
    needs: tuple[Need, ...]
    inputs: StageInputs
    attempt: int
    budget_usd: Decimal
    spent_usd: Decimal
    held_usd: Decimal
    stage_budgets: dict[str, Decimal]
    deadline_left_s: float | None
    began_at: datetime
    notes: tuple[str, ...] = ()
    min_memory_gb: float = 0.0
    origin: Origin | None = None
    metered: bool = True
    upstream: tuple[UpstreamStage, ...] = ()


@dataclass(frozen=True, slots=True)
class CachedResults:
    """The cached result of a stage and of the stages after it. `key` None: the stage is not cached."""

    key: str | None = None
    format: Format | None = None
    storage_class: str = STANDARD_CLASS
    later: tuple[CachedOutcome, ...] = ()


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


def stage_cache_key(
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
        key, _ = stage_cache_key(store, recipe, seed, run_id, need.stage, inputs)
        if (outcome := cache.find_outcome(store, key)) is None:
            return
        yield key, outcome
        inputs = StageInputs(outcome.key)


def result_key(store: Store, request: StageRequest) -> str:
    """Return the cache key of the stage's result; empty for an external component, whose results are not
    cached here.
    """
    if not request.metered:
        return ""
    return stage_cache_key(
        store,
        request.recipe,
        request.seed,
        request.run_id,
        request.needs[0].stage,
        request.inputs,
        request.origin,
    )[0]


def cached_results(store: Store, request: StageRequest, key: str) -> CachedResults:
    """Return the result that is cached under `key`, and those of later stages that are cached as well."""
    if not key or (outcome := cache.find_outcome(store, key)) is None:
        return CachedResults()
    written, storage_class = dataset_location(store, outcome)
    return CachedResults(key, written, storage_class, later_cached_results(store, request, outcome))


def later_cached_results(
    store: Store, request: StageRequest, first: StageOutcome
) -> tuple[CachedOutcome, ...]:
    """Return the cached results of the stages after a cached first stage of a chain, each read by the next.

    A stage's result is part of the next one's cache key, so these keys are known before any stage runs. After
    the first result that is missing, no key is known.
    """
    is_chain = build_dag(request.needs).is_chain
    if request.origin is not None or not request.metered or request.upstream or not is_chain:
        return ()
    chain = cached_chain(
        store, request.recipe, request.seed, request.run_id, request.needs[1:], StageInputs(first.key)
    )
    found = [(key, *dataset_location(store, outcome)) for key, outcome in chain]
    return tuple(
        CachedOutcome(outcome=key, format=written, storage_class=storage_class)
        for key, written, storage_class in found
    )


def dataset_location(store: Store, outcome: StageOutcome) -> tuple[Format | None, str]:
    """Return the format and the storage class of a cached data set; None and the standard class for any other
    result.
    """
    if not outcome.key.startswith(store_layout.DATASETS):
        return None, STANDARD_CLASS
    manifest = load_manifest(store, outcome.key)
    return manifest.format, manifest.storage_class
