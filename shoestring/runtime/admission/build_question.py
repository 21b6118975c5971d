"""Gather everything a decision depends on into one Question, so that deciding can be pure."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field, JsonValue

from shoestring.config.tariffs import Tariffs
from shoestring.config.world import World
from shoestring.core.errors import UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, digest, record_bytes
from shoestring.core.types import STANDARD_CLASS, Format, LearnedSpeed, Need, Pool, StageOutcome, VolumeProbe
from shoestring.data.formats.volume_probe import load_or_probe
from shoestring.data.recipe import Recipe
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import load_manifest
from shoestring.pricing.learning import learn
from shoestring.routing.dag import build_dag
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.question import CachedOutcome, Question
from shoestring.routing.offers.factors import stage_memory_gb
from shoestring.routing.policy.migration import exploration_sd
from shoestring.runtime.records.commitments import with_used_hours
from shoestring.runtime.records.egress_usage import with_egress_usage
from shoestring.runtime.records.overhead import overhead_s
from shoestring.runtime.records.policy_trial import policies
from shoestring.runtime.records.receipt_history import current_stockouts, known_receipts
from shoestring.stages.work import Origin

PROBE_KEY = "learned/probes/here"


class RemainingStages(Record):
    """The stages from here to the end, in order, and what a router has to know of the first: `routed()` compiles it into its arguments."""

    needs: tuple[Need, ...]
    origin: Origin | None = Field(
        None, description="None: a stage of ours, of which the router knows what names its result"
    )
    metered: bool = Field(
        True, description="false: a component that knows nothing of us, settled by its pod's times"
    )


def stage_names() -> list[str]:
    folder = Path(importlib.import_module("shoestring.stages").__path__[0])
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "work"))


def stage_module(name: str) -> ModuleType:
    """The module of a stage. Raises UnknownName."""
    if name not in stage_names():
        raise UnknownName("stage", name, stage_names())
    return importlib.import_module(f"shoestring.stages.{name}")


@dataclass(frozen=True, slots=True)
class StageInputs:
    """Keys of what a stage reads: the manifest of its data, and whatever else its result depends on. Empty: none."""

    upstream: str = ""
    also: str = ""


@dataclass(frozen=True, slots=True)
class StageRequest:
    """What is known when a stage is to be routed; `build_question` turns it into a Question.

    `notes` and `memory_gb` are what earlier attempts taught: the memory that is asked for at least, whatever the need says.
    """

    run_id: str
    recipe: Recipe
    seed: int
    needs: tuple[Need, ...]
    reads: StageInputs
    attempt: int
    budget_usd: Decimal
    spent_usd: Decimal
    held_usd: Decimal
    stage_budgets: dict[str, Decimal]
    deadline_left_s: float | None
    began_at: datetime
    notes: tuple[str, ...] = ()
    memory_gb: float = 0.0
    origin: Origin | None = None
    metered: bool = True
    given: tuple[UpstreamStage, ...] = ()


def with_recipe_limits(need: Need, recipe: Recipe) -> Need:
    """With the name of its work; an elastic stage reads the data no more often than the recipe allows."""
    passes = min(need.passes, float(recipe.train.max_epochs)) if need.elastic else need.passes
    return need.model_copy(update={"passes": passes, "work": need.work or recipe.name})


def with_min_memory(needs: tuple[Need, ...], rows: int, memory_gb: float) -> tuple[Need, ...]:
    """The first stage takes at least so much."""
    more_gb = memory_gb - stage_memory_gb(needs[0], rows)
    if more_gb <= 0:
        return needs
    return (needs[0].model_copy(update={"memory_fixed_gb": needs[0].memory_fixed_gb + more_gb}), *needs[1:])


@dataclass(frozen=True, slots=True)
class InputSize:
    """How much a stage will read."""

    rows: int
    row_bytes: int
    format: Format | None
    storage_class: str = STANDARD_CLASS


def input_size(store: Store, recipe: Recipe, upstream: str) -> InputSize:
    """Rows and bytes from the upstream manifest; for the first stage, from the source itself, by libraries that others need not import."""
    if not upstream:
        from shoestring.data.sources.files import estimate_size

        size = estimate_size(recipe)
        return InputSize(size.rows_estimate, size.row_bytes, None)
    manifest = load_manifest(store, upstream)
    return InputSize(manifest.rows, manifest.row_bytes, manifest.format, manifest.storage_class)


def unpriced_storage_class(size: InputSize, tariffs: Tariffs) -> tuple[str, ...]:
    """A note where what a stage reads lies on a storage class that no tariff has a price for."""
    if size.storage_class in tariffs.all_storage_classes:
        return ()
    return (
        f"its data lies on {size.storage_class}, which storage_classes does not name: reading it is priced as from the {STANDARD_CLASS} class",
    )


def joined_inputs(store: Store, need: Need, size: InputSize, reads: StageInputs) -> tuple[UpstreamStage, ...]:
    """The two data sets of a stage that comes after two stages and reads what both leave; else none: there is one, or none of ours."""
    after = need.after or ()
    if len(after) < 2 or not reads.upstream or not reads.also.startswith("datasets/"):
        return ()
    also = load_manifest(store, reads.also)
    left = (
        (after[0], size.format, size.row_bytes, size.storage_class),
        (after[1], also.format, also.row_bytes, also.storage_class),
    )
    return tuple(
        UpstreamStage(stage=stage, format=written, row_bytes=row_bytes, storage_class=storage_class)
        for stage, written, row_bytes, storage_class in left
    )


def cache_key(
    store: Store,
    recipe: Recipe,
    seed: int,
    run_id: str,
    stage: str,
    reads: StageInputs,
    origin: Origin | None = None,
) -> tuple[str, dict[str, JsonValue]]:
    """What names a stage's result, and what that is the digest of: its code, its settings, the content of what it reads.

    For a stage whose result is of no use to other runs, also the run. An author's own stage (`origin`) is taken to depend on all of
    the recipe but its money and time.
    """
    if reads.upstream:
        inputs = {"data": reads.upstream}
    else:
        from shoestring.data.sources.files import fingerprint

        inputs = {"source": fingerprint(recipe, store)}
    if reads.also:
        inputs["also"] = digest(store.fetch(reads.also).read_bytes())
    if origin is not None:
        told = recipe.model_dump(
            mode="json", exclude={"budget_usd", "stage_budgets_usd", "campaign", "deadline_s", "priority"}
        )
        settings: dict[str, JsonValue] = {"settings": origin.settings, "recipe": told, "seed": seed}
        return cache.cache_key(stage, origin.code, settings, inputs, None if origin.shared else run_id)
    module = stage_module(stage)
    return cache.cache_key(
        stage, module.code(), module.settings(recipe, seed), inputs, None if module.SHARED else run_id
    )


def is_builtin(stage: str) -> bool:
    return stage in stage_names()


def is_shared(stage: str) -> bool:
    """Is a stage's result of use to other runs?"""
    return is_builtin(stage) and bool(stage_module(stage).SHARED)


def dataset_location(store: Store, outcome: StageOutcome) -> tuple[Format | None, str]:
    """The format of a cached data set and its storage class; none for a result that is not one."""
    if not outcome.key.startswith("datasets/"):
        return None, STANDARD_CLASS
    manifest = load_manifest(store, outcome.key)
    return manifest.format, manifest.storage_class


def learned_speeds(
    store: Store, asked: StageRequest, needs: Sequence[Need], pools: Sequence[Pool]
) -> tuple[tuple[LearnedSpeed, ...], int, tuple[str, ...]]:
    """What receipts from before this start, and attempts since then, teach about these stages on these pools; how often the first was moved
    in this run; and a note where a receipt cannot be read."""
    receipts, moves, notes = known_receipts(store, asked.run_id, [need.stage for need in needs], asked.began_at)
    return learn(receipts, needs, pools), moves, notes


def probe_volume(world: World) -> VolumeProbe:
    """Speeds of the formats where stages read and write: the folder that the store hands files out of."""
    world.store.put(PROBE_KEY, b"", if_absent=True)
    return load_or_probe(world.store, world.store.fetch(PROBE_KEY).parent, world.clock)


def result_key(store: Store, asked: StageRequest) -> str:
    """Of what the stage would leave; empty for a component that knows nothing of us: what that leaves we cannot find again."""
    if not asked.metered:
        return ""
    return cache_key(
        store, asked.recipe, asked.seed, asked.run_id, asked.needs[0].stage, asked.reads, asked.origin
    )[0]


def cached_results(store: Store, asked: StageRequest, key: str) -> dict[str, Any]:
    """Of the question: the stage's result under its key, and those of later stages."""
    if not key or (cached := cache.find_outcome(store, key)) is None:
        return {}
    written, storage_class = dataset_location(store, cached)
    return {
        "cached_outcome": key,
        "cached_format": written,
        "cached_storage_class": storage_class,
        "cached_later_stages": later_cached_results(store, asked, cached),
    }


def later_cached_results(store: Store, asked: StageRequest, cached: StageOutcome) -> tuple[CachedOutcome, ...]:
    """Of a chain whose first result is there already: those of the stages after it that are there, too, each read by the next.

    What a stage leaves names the next one's result, so that it can be known before either runs. Where a result is missing, what would
    come of it has no name yet.
    """
    if asked.origin is not None or not asked.metered or asked.given or not build_dag(asked.needs).is_chain:
        return ()
    later = cached_chain(store, asked.recipe, asked.seed, asked.run_id, asked.needs[1:], StageInputs(cached.key))
    found = [(key, *dataset_location(store, there)) for key, there in later]
    return tuple(CachedOutcome(outcome=key, format=written, storage_class=storage_class) for key, written, storage_class in found)


def cached_chain(
    store: Store, recipe: Recipe, seed: int, run_id: str, needs: Iterable[Need], reads: StageInputs
) -> Iterator[tuple[str, StageOutcome]]:
    """Keys and results of stages that each read the one before; up to the first that is not there, or is of use to its own run only."""
    for need in needs:
        if not is_shared(need.stage):
            return
        key, _ = cache_key(store, recipe, seed, run_id, need.stage, reads)
        if (there := cache.find_outcome(store, key)) is None:
            return
        yield key, there
        reads = StageInputs(there.key)


def build_question(world: World, asked: StageRequest) -> Question:
    """Read the cluster, the prices, the volume, the cache and the receipts, once."""
    recipe, need = asked.recipe, asked.needs[0]
    book, pools = world.prices.book(), world.cluster.pools()
    size, key, now = (
        input_size(world.store, recipe, asked.reads.upstream),
        result_key(world.store, asked),
        world.clock.now(),
    )
    needs = with_min_memory(tuple(with_recipe_limits(need, recipe) for need in asked.needs), size.rows, asked.memory_gb)
    taught, moves, unread = learned_speeds(world.store, asked, needs, pools)
    remembered, forgotten = current_stockouts(world.store, now)
    return Question(
        run_id=asked.run_id,
        stage=need.stage,
        attempt=asked.attempt,
        seed=asked.seed,
        asked_at=now,
        needs=needs,
        rows=size.rows,
        row_bytes=size.row_bytes,
        reads_format=size.format,
        reads_storage_class=size.storage_class,
        upstream=(*asked.given, *joined_inputs(world.store, needs[0], size, asked.reads)),
        data_region=book.tariffs.store_region,
        **cached_results(world.store, asked, key),
        budget_usd=asked.budget_usd,
        spent_usd=asked.spent_usd,
        held_usd=asked.held_usd,
        stage_budgets=asked.stage_budgets,
        deadline_left_s=None
        if asked.deadline_left_s is None
        else max(0.0, asked.deadline_left_s - overhead_s(world, len(asked.needs))),
        pools=pools,
        quotes=book.quotes,
        rejected_prices=book.rejected,
        commitments=with_used_hours(world.store, book.committed),
        tariffs=with_egress_usage(world.store, book.tariffs, now),
        speeds=probe_volume(world).speeds,
        learned=taught,
        exploration_sd=exploration_sd(world.policy, needs[0], moves),
        images=world.images,
        **policies(world.store, world.policy),
        stockouts=remembered,
        notes=(*world.notes, *unread, *forgotten, *unpriced_storage_class(size, book.tariffs), *_extra_notes(world, asked)),
        digests={"world": world.digest, "recipe": digest(record_bytes(recipe)), "cache": key} | asdict(asked.reads),
    )


def _extra_notes(world: World, asked: StageRequest) -> tuple[str, ...]:
    """What earlier attempts taught, and the guardrails of a stage that looks at its own quality. An author's may look at anything."""
    return (*asked.notes, *world.policy.guardrails.sentences(asked.origin is None and asked.needs[0].elastic))
