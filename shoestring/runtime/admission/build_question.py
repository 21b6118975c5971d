"""Gather everything that a decision depends on into one Question, so that deciding can be pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import Field

from shoestring.config.tariffs import Tariffs
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.record import Record, digest, record_bytes
from shoestring.core.types import STANDARD_CLASS, Format, Need, StageOutcome, VolumeProbe
from shoestring.data.formats.volume_probe import load_or_probe
from shoestring.data.recipe import Recipe
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import load_manifest
from shoestring.pricing.learning import learn
from shoestring.routing.dag import UpstreamStage, build_dag
from shoestring.routing.policy.migration import exploration_sd
from shoestring.routing.question import CachedOutcome, Question, stage_memory_gb
from shoestring.runtime.admission.stage_results import StageInputs, cache_key, cached_chain
from shoestring.runtime.records.commitments import with_used_hours
from shoestring.runtime.records.egress_usage import with_egress_usage
from shoestring.runtime.records.overhead import overhead_s
from shoestring.runtime.records.policy_trial import rollback_of
from shoestring.runtime.records.receipt_history import current_stockouts, known_receipts
from shoestring.stages.work import Origin


class RemainingStages(Record):
    """The stages from this one to the end, in order. `routed()` compiles it into the router's arguments.

    `schema_version` has no default, so that it is always written.
    """

    schema_version: Literal[3]
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
class InputSize:
    """The size of what a stage will read. `format` None: the source's own files."""

    rows: int
    row_bytes: int
    format: Format | None
    storage_class: str = STANDARD_CLASS


@dataclass(frozen=True, slots=True)
class CachedResults:
    """The cached result of a stage and of the stages after it. `key` None: the stage is not cached."""

    key: str | None = None
    format: Format | None = None
    storage_class: str = STANDARD_CLASS
    later: tuple[CachedOutcome, ...] = ()


def with_recipe_limits(need: Need, recipe: Recipe) -> Need:
    """Return the need with the name of its work; an elastic stage reads its data at most as often as the
    recipe allows.
    """
    passes = min(need.passes, float(recipe.train.max_epochs)) if need.elastic else need.passes
    return need.model_copy(update={"passes": passes, "work": need.work or recipe.name})


def with_min_memory(needs: tuple[Need, ...], rows: int, min_memory_gb: float) -> tuple[Need, ...]:
    """Return the needs with at least this much memory for the first stage."""
    more_gb = min_memory_gb - stage_memory_gb(needs[0], rows)
    if more_gb <= 0:
        return needs
    first = needs[0].model_copy(update={"memory_fixed_gb": needs[0].memory_fixed_gb + more_gb})
    return (first, *needs[1:])


def input_size(store: Store, recipe: Recipe, upstream: str) -> InputSize:
    """Return the size of a stage's input, from the upstream manifest; the first stage's from the source
    files.
    """
    if not upstream:
        # Imported here: only the first stage's router needs the libraries that read source files.
        from shoestring.data.sources.files import estimate_size

        size = estimate_size(recipe)
        return InputSize(size.rows_estimate, size.row_bytes, None)
    manifest = load_manifest(store, upstream)
    return InputSize(manifest.rows, manifest.row_bytes, manifest.format, manifest.storage_class)


def joined_inputs(
    store: Store, need: Need, size: InputSize, inputs: StageInputs
) -> tuple[UpstreamStage, ...]:
    """Return the two data sets of a stage that comes after two stages; none for every other stage."""
    after = need.after or ()
    if len(after) < 2 or not inputs.upstream or not inputs.side_input.startswith(store_layout.DATASETS):
        return ()
    second = load_manifest(store, inputs.side_input)
    return (
        UpstreamStage(
            stage=after[0], format=size.format, row_bytes=size.row_bytes, storage_class=size.storage_class
        ),
        UpstreamStage(
            stage=after[1],
            format=second.format,
            row_bytes=second.row_bytes,
            storage_class=second.storage_class,
        ),
    )


def dataset_location(store: Store, outcome: StageOutcome) -> tuple[Format | None, str]:
    """Return the format and the storage class of a cached data set; None and the standard class for any other
    result.
    """
    if not outcome.key.startswith(store_layout.DATASETS):
        return None, STANDARD_CLASS
    manifest = load_manifest(store, outcome.key)
    return manifest.format, manifest.storage_class


def probe_volume(world: World) -> VolumeProbe:
    """Return the speeds of the formats in the folder that the store serves files from, where stages read and
    write.
    """
    world.store.put(store_layout.LOCAL_PROBE, b"", if_absent=True)
    return load_or_probe(world.store, world.store.fetch(store_layout.LOCAL_PROBE).parent, world.clock)


def result_key(store: Store, request: StageRequest) -> str:
    """Return the cache key of the stage's result; empty for an external component, whose results are not
    cached here.
    """
    if not request.metered:
        return ""
    return cache_key(
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


def build_question(world: World, request: StageRequest) -> Question:
    """Read the cluster, the prices, the volume, the cache and the receipts, once, and return the question."""
    recipe, need, store = request.recipe, request.needs[0], world.store
    prices, pools, now = world.prices.book(), world.cluster.pools(), world.clock.now()
    size, key = input_size(store, recipe, request.inputs.upstream), result_key(store, request)
    needs = tuple(with_recipe_limits(each, recipe) for each in request.needs)
    needs = with_min_memory(needs, size.rows, request.min_memory_gb)
    cached = cached_results(store, request, key)
    known = known_receipts(store, request.run_id, [each.stage for each in needs], request.began_at)
    stockouts, stockout_notes = current_stockouts(store, now)
    rollback = rollback_of(store, world.policy.candidate)
    notes = (
        *known.notes,
        *stockout_notes,
        *unpriced_note(size, prices.tariffs),
        *request_notes(world, request),
    )
    inputs_sha256 = {"world": world.digest, "recipe": digest(record_bytes(recipe)), "cache": key}
    return Question(
        run_id=request.run_id,
        stage=need.stage,
        attempt=request.attempt,
        seed=request.seed,
        asked_at=now,
        needs=needs,
        rows=size.rows,
        row_bytes=size.row_bytes,
        reads_format=size.format,
        reads_storage_class=size.storage_class,
        upstream=(*request.upstream, *joined_inputs(store, needs[0], size, request.inputs)),
        data_region=prices.tariffs.store_region,
        cached_outcome=cached.key,
        cached_format=cached.format,
        cached_storage_class=cached.storage_class,
        cached_later_stages=cached.later,
        budget_usd=request.budget_usd,
        spent_usd=request.spent_usd,
        held_usd=request.held_usd,
        stage_budgets=request.stage_budgets,
        deadline_left_s=deadline_left_s(world, request),
        pools=pools,
        quotes=prices.quotes,
        rejected_prices=prices.rejected,
        commitments=with_used_hours(store, prices.committed),
        stockouts=stockouts,
        tariffs=with_egress_usage(store, prices.tariffs, now),
        speeds=probe_volume(world).speeds,
        learned=learn(known.receipts, needs, pools),
        exploration_sd=exploration_sd(world.policy, needs[0], known.migrations),
        images=world.images,
        preferences=world.policy.preferences,
        candidate_policy=world.policy.candidate,
        rollback_reason=rollback.reason if rollback else "",
        # Read last: the world notes its unusable nodes and prices while it is read.
        notes=(*world.notes, *notes),
        digests=inputs_sha256 | asdict(request.inputs),
    )


def deadline_left_s(world: World, request: StageRequest) -> float | None:
    """Return the seconds until the deadline, less those that the remaining routers and the exit step take;
    None: no deadline.
    """
    if request.deadline_left_s is None:
        return None
    return max(0.0, request.deadline_left_s - overhead_s(world, len(request.needs)))


def unpriced_note(size: InputSize, tariffs: Tariffs) -> tuple[str, ...]:
    """Return a note if the stage reads from a storage class that has no price."""
    if size.storage_class in tariffs.all_storage_classes:
        return ()
    return (
        f"its data is on {size.storage_class}, which storage_classes does not name: "
        f"reading is priced as from the {STANDARD_CLASS} class",
    )


def request_notes(world: World, request: StageRequest) -> Sequence[str]:
    """Return the notes of earlier attempts, and the guardrails that apply to the stage.

    The guardrails on quality apply to the built-in elastic stage only: it reports its quality while it runs.
    """
    reports_quality = request.origin is None and request.needs[0].elastic
    return (*request.notes, *world.policy.guardrails.sentences(reports_quality))
