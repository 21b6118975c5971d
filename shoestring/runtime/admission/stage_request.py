"""A stage that is to be routed: its request, and the cached results of it and of the stages after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from pydantic import Field

from shoestring.config.engines import Engine, EngineTimes
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import declared_stage
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, SchemaVersion
from shoestring.core.types import STANDARD_CLASS, Format, Need, StageOutcome
from shoestring.data.job import Command, Job, OfTask, Task
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import load_manifest
from shoestring.routing.dag import UpstreamStage, build_dag
from shoestring.routing.loop_items import Loop
from shoestring.routing.question_parts import CachedOutcome
from shoestring.runtime.admission.result_keys import StageInputs as StageInputs
from shoestring.runtime.admission.result_keys import StageWork, lookup_keys
from shoestring.runtime.admission.stages import is_builtin
from shoestring.stages.work import Origin


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
    job: Job | None = Field(
        None, description="the terms of a pipeline of commands; null: the recipe of the run has them"
    )
    command: Command | None = Field(None, description="what this stage runs, in a pipeline of commands")
    engine: Engine | None = Field(
        None, description="what the pipeline was compiled for; null: an earlier version compiled it"
    )
    loops: tuple[Loop, ...] = Field(
        (), exclude_if=lambda loops: not loops, description="loops around this stage, the outermost first"
    )
    may_return_all: bool = Field(
        False,
        exclude_if=lambda may: not may,
        description="its engine starts no more steps where this one has returned the results of all stages",
    )


@dataclass(frozen=True, slots=True)
class StageRequest(OfTask):
    """A router's request to route a stage; `build_question` turns it into a Question.

    `notes` and `min_memory_gb` come from earlier attempts. `min_memory_gb` applies even if the stage's need
    is less. `upstream` are the stages that the remaining ones come after and that need no planning any more.
    `family` is that of the checkpoint that a training continues; empty: it has none.
    `engine_s` is the part of `deadline_left_s` that the engine takes. `item_sha256` is that of the item of
    the loops around it; empty outside of loops.
    """

    run_id: str
    task: Task
    seed: int
    needs: tuple[Need, ...]
    inputs: StageInputs
    attempt: int
    budget_usd: Decimal
    spent_usd: Decimal
    held_usd: Decimal
    stage_budgets: dict[str, Decimal]
    deadline_left_s: float | None
    deadline_used_s: float
    engine: EngineTimes
    engine_s: float
    began_at: datetime
    notes: tuple[str, ...] = ()
    min_memory_gb: float = 0.0
    origin: Origin | None = None
    metered: bool = True
    upstream: tuple[UpstreamStage, ...] = ()
    family: str = ""
    item_sha256: str = ""


@dataclass(frozen=True, slots=True)
class CachedResults:
    """The cached result of a stage and of the stages after it. `key` None: the stage is not cached."""

    key: str | None = None
    format: Format | None = None
    storage_class: str = STANDARD_CLASS
    later: tuple[CachedOutcome, ...] = ()


def stage_work(world: World, request: StageRequest) -> StageWork:
    """Return what the result of the request's stage depends on."""
    need = request.needs[0]
    return StageWork(
        recipe=request.recipe,
        seed=request.seed,
        run_id=request.run_id,
        stage=declared_stage(need.stage),
        image=world.images.get(need.image, need.image),
        inputs=request.inputs,
        origin=request.origin,
    )


def next_inputs(inputs: StageInputs, outcome: StageOutcome) -> StageInputs:
    """Return what the next stage of a chain reads.

    A result that is no data set, like a model, goes to the next stage beside the data that it was made from.
    """
    is_dataset = outcome.key.startswith(store_layout.DATASETS)
    return StageInputs(outcome.key) if is_dataset else StageInputs(inputs.upstream, outcome.key)


def cached_chain(
    world: World, work: StageWork, needs: Iterable[Need]
) -> Iterator[tuple[str, StageOutcome, StageInputs]]:
    """Yield the cache keys and cached results of built-in stages that each read what the one before left, and
    what the stage after it reads.

    `work` is the first one's. The chain ends at the first stage that is not cached.
    """
    inputs = work.inputs
    for need in needs:
        if not is_builtin(need.stage):
            return
        image = world.images.get(need.image, need.image)
        keys = lookup_keys(world, replace(work, stage=need.stage, image=image, inputs=inputs, origin=None))
        if (found := cache.find_first_outcome(world.store, keys)) is None:
            return
        inputs = next_inputs(inputs, found[1])
        yield *found, inputs


def cached_results(world: World, request: StageRequest, keys: Sequence[str]) -> CachedResults:
    """Return the result that is cached under the first of `keys` that has one, and those of later stages that
    are cached as well.
    """
    if (found := cache.find_first_outcome(world.store, keys)) is None:
        return CachedResults()
    key, outcome = found
    written, storage_class = dataset_location(world.store, outcome)
    return CachedResults(key, written, storage_class, later_cached_results(world, request, outcome))


def later_cached_results(
    world: World, request: StageRequest, first: StageOutcome
) -> tuple[CachedOutcome, ...]:
    """Return the cached results of the stages after a cached first stage of a chain, each read by the next.

    A stage's result is part of the next one's cache key, so these keys are known before any stage runs. After
    the first result that is missing, no key is known.
    """
    is_chain = build_dag(request.needs).is_chain
    if request.origin is not None or not request.metered or request.upstream or not is_chain:
        return ()
    second = replace(stage_work(world, request), inputs=next_inputs(request.inputs, first))
    chain = cached_chain(world, second, request.needs[1:])
    found = [(key, *dataset_location(world.store, outcome)) for key, outcome, _ in chain]
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
