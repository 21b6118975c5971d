"""Gather everything that a decision depends on into one Question, so that deciding can be pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from shoestring.data.recipe import Recipe
from shoestring.data.source import TextSettings
from shoestring.data.sources.images.image_needs import with_images
from shoestring.data.storage.blobs import load_manifest
from shoestring.pricing.learned.learning import learn
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.policy.migration import exploration_sd
from shoestring.routing.question import Question, stage_memory_gb
from shoestring.runtime.admission.result_keys import lookup_keys, without_paid_part
from shoestring.runtime.admission.stage_request import (
    CachedResults,
    StageInputs,
    StageRequest,
    cached_results,
    stage_work,
)
from shoestring.runtime.admission.stages import FAMILY_STAGES
from shoestring.runtime.records.commitments import with_used_hours
from shoestring.runtime.records.egress_usage import with_egress_usage
from shoestring.runtime.records.policy_trial import rollback_reason
from shoestring.runtime.records.receipt_history import KnownReceipts, current_stockouts, known_receipts
from shoestring.training.families.data_shape import recipe_shape
from shoestring.training.families.registry import family_of

BPE_US_PER_BYTE = 1.5
"""Estimated microseconds of a reference core to train and apply a byte-pair vocabulary, for each byte."""


@dataclass(frozen=True, slots=True)
class InputSize:
    """The size of what a stage will read. `format` None: the source's own files."""

    rows: int
    row_bytes: int
    format: Format | None
    storage_class: str = STANDARD_CLASS
    encoding: Encoding | None = None


def with_recipe_limits(
    need: Need, recipe: Recipe, row_bytes: int = 0, encoding: Encoding | None = None, rows: int = 0
) -> Need:
    """Return the need with the name of its work, for the family and the samples of the recipe.

    An elastic stage reads its data at most as often as the recipe allows. An epoch over a share of the rows
    is that share of a pass.

    `row_bytes`: of the input of the first stage of a question, whose later ones are computed from it; `rows`:
    of this input. `encoding`: of the data set, once it is encoded.
    """
    need = need.model_copy(update={"work": need.work or work_name(recipe, need.stage)})
    if recipe.text is not None and need.stage == "preprocess":
        need = with_vocabulary(need, recipe.text)
    if recipe.image is not None:
        need = with_images(need, recipe.image, row_bytes)
    family, shape = family_of(recipe.train), recipe_shape(recipe, rows, row_bytes, encoding)
    if need.stage == "train":
        need = family.train_need(need, shape)
    if need.stage == "evaluate":
        need = family.evaluate_need(need, shape)
    if recipe.text is not None and need.stage == "evaluate":
        # It reads the test split alone. The baselines of texts take a second, and are made each time.
        test_us = need.cpu_us_per_row * recipe.split.test
        changed = {"cpu_us_per_row": test_us, "once_setup_s": 0.0, "once_cpu_us_per_row": 0.0}
        need = need.model_copy(update=changed)
    if not need.elastic:
        return need
    passes = min(need.passes, float(recipe.train.max_epochs)) * recipe.train.rows_share
    return need.model_copy(update={"passes": passes, "min_passes": min(need.min_passes, passes)})


def work_name(recipe: Recipe, stage: str) -> str:
    """Return the name under which the speed of a stage is learned: families of models differ in it."""
    return f"{recipe.name} {recipe.train.family}" if stage in FAMILY_STAGES else recipe.name


def with_vocabulary(need: Need, text: TextSettings) -> Need:
    """Return the need of preprocess for texts: it may train a vocabulary."""
    if text.vocabulary is None:
        return need
    row_bytes = text.row_tokens * text.bytes_per_token
    return need.model_copy(update={"cpu_us_per_row": BPE_US_PER_BYTE * row_bytes})


def with_min_memory(needs: tuple[Need, ...], rows: int, min_memory_gb: float) -> tuple[Need, ...]:
    """Return the needs with at least this much memory for the first stage."""
    more_gb = min_memory_gb - stage_memory_gb(needs[0], rows)
    if more_gb <= 0:
        return needs
    first = needs[0].model_copy(update={"memory_fixed_gb": needs[0].memory_fixed_gb + more_gb})
    return (first, *needs[1:])


def input_size(world: World, recipe: Recipe, upstream: str) -> InputSize:
    """Return the size of a stage's input, from the upstream manifest; the first stage's from the source
    files.
    """
    if not upstream:
        # Imported here: only the first stage's router needs the libraries that read source files.
        from shoestring.data.sources.files import estimate_size

        size = estimate_size(recipe, world.remote)
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
    cache_key: str
    cached: CachedResults
    known: KnownReceipts
    stockouts: tuple[StockOut, ...]
    notes: tuple[str, ...]


def read_context(world: World, request: StageRequest) -> QuestionContext:
    """Read the cluster, the prices, the cache and the receipts for a question."""
    recipe, store, now = request.recipe, world.store, world.clock.now()
    prices, pools = world.prices.book(), world.cluster.pools()
    size, work = input_size(world, recipe, request.inputs.upstream), stage_work(world, request)
    # Results of an external component are not cached here.
    keys = lookup_keys(world, work) if request.metered else ()
    limited = tuple(
        with_recipe_limits(
            without_paid_part(world, each, work), recipe, size.row_bytes, size.encoding, size.rows
        )
        for each in request.needs
    )
    known = known_receipts(store, request.run_id, [each.stage for each in limited], request.began_at)
    stockouts, stockout_notes = current_stockouts(store, now)
    unpriced = unpriced_note(size, prices.tariffs)
    return QuestionContext(
        now=now,
        pools=pools,
        prices=prices,
        size=size,
        needs=with_min_memory(limited, size.rows, request.min_memory_gb),
        cache_key=next(iter(keys), ""),
        cached=cached_results(world, request, keys),
        known=known,
        stockouts=stockouts,
        # The world notes unusable nodes and prices when they are read, so its notes come last.
        notes=(*world.notes, *known.notes, *stockout_notes, *unpriced, *request_notes(world, request)),
    )


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
