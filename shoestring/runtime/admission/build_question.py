"""Gather everything that a decision depends on into one Question, so that deciding can be pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from shoestring.config.engines import EngineTimes
from shoestring.config.retention import held_tariffs
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook, World
from shoestring.core import store_layout
from shoestring.core.datasets import Encoding
from shoestring.core.interfaces import Store
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import STANDARD_CLASS, Format, Need, Pool, StockOut
from shoestring.data.formats.volume_probe import reading_fields
from shoestring.data.storage.blobs import load_manifest
from shoestring.pricing.learned.learning import learn
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.policy.migration import exploration_sd
from shoestring.routing.question import Question, stage_memory_gb
from shoestring.routing.question_parts import FamilyOption
from shoestring.runtime.admission.result_keys import (
    StageWork,
    has_baseline,
    lookup_keys,
    with_known_family,
)
from shoestring.runtime.admission.stage_request import (
    CachedResults,
    StageInputs,
    StageRequest,
    cached_results,
    stage_work,
)
from shoestring.runtime.records.commitments import with_used_hours
from shoestring.runtime.records.egress_usage import with_egress_usage
from shoestring.runtime.records.policy_trial import rollback_reason
from shoestring.runtime.records.receipt_history import KnownReceipts, current_stockouts, known_receipts
from shoestring.training.families.recipe_needs import RecipeNeeds


@dataclass(frozen=True, slots=True)
class InputSize:
    """The size of what a stage will read. `format` None: the source's own files."""

    rows: int
    row_bytes: int
    format: Format | None
    storage_class: str = STANDARD_CLASS
    encoding: Encoding | None = None


def with_min_memory(needs: tuple[Need, ...], rows: int, min_memory_gb: float) -> tuple[Need, ...]:
    """Return the needs with at least this much memory for the first stage."""
    more_gb = min_memory_gb - stage_memory_gb(needs[0], rows)
    if more_gb <= 0:
        return needs
    first = needs[0].model_copy(update={"memory_fixed_gb": needs[0].memory_fixed_gb + more_gb})
    return (first, *needs[1:])


def input_size(world: World, work: StageWork) -> InputSize:
    """Return the size of a stage's input, from the upstream manifest; the first stage's from the source
    files.
    """
    recipe, upstream = work.recipe, work.inputs.upstream
    if not upstream:
        # Imported here: only the first stage's router needs the libraries that read source files.
        from shoestring.data.sources.files import estimate_size

        size = estimate_size(recipe, world.remote, learns=work.stage != "predict")
        return InputSize(size.rows_estimate, size.row_bytes, None)
    manifest = load_manifest(world.store, upstream)
    if recipe.text is not None and manifest.encoding is None:
        # The rows that preprocess makes of these documents decide what the stages after it cost.
        rows = recipe.text.expected_rows(manifest.rows * manifest.row_bytes)
        row_bytes = recipe.text.row_tokens * recipe.text.bytes_per_token
        return InputSize(rows, row_bytes, manifest.format, manifest.storage_class)
    return InputSize(
        manifest.rows, manifest.row_bytes, manifest.format, manifest.storage_class, manifest.encoding
    )


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


@dataclass(frozen=True, slots=True)
class QuestionContext:
    """The cluster, prices, cache, receipts and stock-outs that were read for a question, each once."""

    now: datetime
    pools: tuple[Pool, ...]
    prices: PriceBook
    size: InputSize
    needs: tuple[Need, ...]
    families: tuple[FamilyOption, ...]
    cache_key: str
    cached: CachedResults
    known: KnownReceipts
    stockouts: tuple[StockOut, ...]
    notes: tuple[str, ...]


def read_context(world: World, request: StageRequest) -> QuestionContext:
    """Read the cluster, the prices, the cache and the receipts for a question."""
    store, now = world.store, world.clock.now()
    prices, pools = world.prices.book(), world.cluster.pools()
    work = with_known_family(store, stage_work(world, request))
    size = input_size(world, work)
    # Results of an external component are not cached here.
    keys = lookup_keys(world, work) if request.metered else ()
    is_evaluation = work.stage == "evaluate"
    recipe_needs = RecipeNeeds(
        work.recipe if work.stage in ("evaluate", "predict") else request.recipe,
        size.rows,
        size.row_bytes,
        size.encoding,
        has_baseline=is_evaluation and has_baseline(world, work),
    )
    limited = tuple(map(recipe_needs.of_stage, request.needs))
    known = known_receipts(store, request.run_id, [each.stage for each in limited], request.began_at)
    stockouts, stockout_notes = current_stockouts(store, now)
    unpriced = unpriced_note(size, prices.tariffs)
    return QuestionContext(
        now=now,
        pools=pools,
        prices=prices,
        size=size,
        needs=with_min_memory(limited, size.rows, request.min_memory_gb),
        families=family_options(world, request, recipe_needs, known, pools),
        cache_key=next(iter(keys), ""),
        cached=cached_results(world, request, keys),
        known=known,
        stockouts=stockouts,
        # The world notes unusable nodes and prices when they are read, so its notes come last.
        notes=(*world.notes, *known.notes, *stockout_notes, *unpriced, *request_notes(world, request)),
    )


def family_options(
    world: World,
    request: StageRequest,
    recipe_needs: RecipeNeeds,
    known: KnownReceipts,
    pools: tuple[Pool, ...],
) -> tuple[FamilyOption, ...]:
    """Return the families that the built-in training may choose among; none where the recipe names one, or
    for another stage.

    A training that continues from a checkpoint keeps its family.
    """
    recipe, rows = request.recipe, recipe_needs.rows
    is_training = request.needs[0].stage == "train" and request.origin is None and request.metered
    if not is_training or not recipe.leaves_family_open:
        return ()
    options = list[FamilyOption]()
    for settings in recipe.families:
        if request.family not in ("", settings.family):
            continue
        of_family = replace(request, recipe=recipe.with_family(settings.family))
        need = replace(recipe_needs, recipe=of_family.recipe).of_stage(request.needs[0])
        (need,) = with_min_memory((need,), rows, request.min_memory_gb)
        keys = lookup_keys(world, stage_work(world, of_family))
        cached = cached_results(world, of_family, keys)
        options.append(
            FamilyOption(
                name=settings.family,
                need=need,
                enough_samples=int(rows * min(need.passes, settings.enough_epochs * settings.rows_share)),
                learned=learn(known.receipts, (need,), pools),
                cache_key=next(iter(keys), ""),
                cached_outcome=cached.key,
                cached_later_stages=cached.later,
            )
        )
    return tuple(options)


def build_question(world: World, request: StageRequest) -> Question:
    """Return the question about a stage, with everything that its decision depends on."""
    return question_in(read_context(world, request), world, request)


def question_in(read: QuestionContext, world: World, request: StageRequest) -> Question:
    """Return the question about a stage in a context that was read for it."""
    return Question(
        run_id=request.run_id,
        stage=request.needs[0].stage,
        attempt=request.attempt,
        seed=request.seed,
        asked_at=read.now,
        needs=read.needs,
        rows=read.size.rows,
        row_bytes=read.size.row_bytes,
        reads_format=read.size.format,
        reads_storage_class=read.size.storage_class,
        upstream=(*request.upstream, *joined_inputs(world.store, read.needs[0], read.size, request.inputs)),
        data_region=read.prices.tariffs.store_region,
        cached_outcome=read.cached.key,
        cached_format=read.cached.format,
        cached_storage_class=read.cached.storage_class,
        cached_later_stages=read.cached.later,
        families=read.families,
        budget_usd=request.budget_usd,
        spent_usd=request.spent_usd,
        held_usd=request.held_usd,
        stage_budgets=request.stage_budgets,
        **time_fields(request.engine, request.engine_s, request.deadline_left_s, request.deadline_used_s),
        pools=read.pools,
        quotes=read.prices.quotes,
        rejected_prices=read.prices.rejected,
        commitments=with_used_hours(world.store, read.prices.committed),
        stockouts=read.stockouts,
        tariffs=current_tariffs(world, read),
        **reading_fields(world.store, world.clock),
        learned=learn(read.known.receipts, read.needs, read.pools),
        exploration_sd=exploration_sd(world.policy, read.needs[0], read.known.migrations),
        images=world.images,
        preferences=world.policy.preferences,
        candidate_policy=world.policy.candidate,
        rollback_reason=rollback_reason(world.store, world.policy.candidate),
        notes=read.notes,
        digests=question_digests(world, request, read.cache_key),
    )


def current_tariffs(world: World, read: QuestionContext) -> Tariffs:
    """Return the tariffs, with this month's transfers and the time for which data will be stored."""
    held = held_tariffs(read.prices.tariffs, world.policy.retention)
    return with_egress_usage(world.store, held, read.now)


def time_fields(
    engine: EngineTimes | None, engine_s: float, left_s: float | None, used_s: float
) -> dict[str, Any]:
    """Return the fields of a question with `left_s` to its deadline, of which the engine takes `engine_s`.

    `left_s` None: no deadline. `used_s`: the seconds of it that have passed.
    """
    fields = {"engine": engine, "engine_s": engine_s, "deadline_left_s": None, "deadline_used_s": 0.0}
    if left_s is None:
        return fields
    return fields | {"deadline_left_s": left_s - engine_s, "deadline_used_s": max(0.0, used_s + engine_s)}


def question_digests(world: World, request: StageRequest, cache_key: str) -> dict[str, str]:
    """Return the digests of what the question was made from, and the keys of the stage's inputs."""
    recipe_sha256 = digest(record_bytes(request.recipe))
    return {"world": world.digest, "recipe": recipe_sha256, "cache": cache_key} | asdict(request.inputs)


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
