"""The facts of a question, read from the cluster, the prices, the cache and the receipts: each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil

from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook, World
from shoestring.core import store_layout
from shoestring.core.datasets import Encoding
from shoestring.core.errors import Refused
from shoestring.core.interfaces import Store
from shoestring.core.types import STANDARD_CLASS, Format, Need, Pool, StockOut
from shoestring.data.job import Command
from shoestring.data.needs.table_needs import NO_TABLES, TableSizes, sizes_of_raw
from shoestring.data.storage.blobs import load_manifest
from shoestring.pricing.learned.learning import learn
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.question_parts import FamilyOption, stage_memory_gb
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
from shoestring.runtime.records.receipt_history import KnownReceipts, current_stockouts, known_receipts
from shoestring.training.families.recipe_needs import RecipeNeeds

UNMETERED = (
    "nothing in its pod meters it: it gets no budget file and keeps no checkpoint, the reaper ends it when "
    "its money is used up, and it pays for its pod's own times"
)


@dataclass(frozen=True, slots=True)
class InputSize:
    """The size of what a stage will read. `format` None: the source's own files."""

    rows: int
    row_bytes: int
    format: Format | None
    storage_class: str = STANDARD_CLASS
    encoding: Encoding | None = None
    tables: TableSizes = NO_TABLES


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
        return InputSize(size.rows_estimate, size.row_bytes, None, tables=size.tables)
    manifest = load_manifest(world.store, upstream)
    if recipe.text is not None and manifest.encoding is None:
        # The rows that preprocess makes of these documents decide what the stages after it cost.
        rows = recipe.text.expected_rows(manifest.rows * manifest.row_bytes)
        row_bytes = recipe.text.row_tokens * recipe.text.bytes_per_token
        return InputSize(rows, row_bytes, manifest.format, manifest.storage_class)
    return InputSize(
        manifest.rows,
        manifest.row_bytes,
        manifest.format,
        manifest.storage_class,
        manifest.encoding,
        sizes_of_raw(manifest.columns),
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
    if request.command is not None:
        return command_context(world, request, request.command)
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
        size.tables,
        has_baseline=is_evaluation and has_baseline(world, work),
        on_gpus=world.trains_on_gpus,
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


def command_context(world: World, request: StageRequest, command: Command) -> QuestionContext:
    """Read the pools and prices for a question about a command: it reads no data set, and its earlier runs
    do not predict its time.

    Raises Refused: no pool is what the command asks for.
    """
    now, prices = world.clock.now(), world.prices.book()
    stockouts, notes = current_stockouts(world.store, now)
    pools = world.cluster.pools()
    if request.engine.engine == "local":
        pools = pools_of(command, pools)
    return QuestionContext(
        now=now,
        pools=pools,
        prices=prices,
        size=InputSize(core_seconds(request, pools, prices), 0, None),
        needs=with_min_memory(request.needs, 0, request.min_memory_gb),
        families=(),
        cache_key="",
        cached=CachedResults(),
        known=KnownReceipts((), 0, ()),
        stockouts=stockouts,
        notes=(*world.notes, *notes, *request_notes(world, request)),
    )


def core_seconds(request: StageRequest, pools: tuple[Pool, ...], prices: PriceBook) -> int:
    """Return the most samples that the money and the time of a request buy on a pool: seconds of a reference
    core, or 1e12 operations of a GPU where a stage needs one; at least 1, and 1 where a pool has no price."""
    left_usd = float(request.budget_usd - request.spent_usd - request.held_usd)
    left_s = float("inf") if request.deadline_left_s is None else request.deadline_left_s
    on_gpu = any(need.by_time and need.gpu == "must" for need in request.needs)
    speeds = {
        pool.name: pool.gpu_count * pool.gpu_tflops if on_gpu else pool.cores * pool.core_speed
        for pool in pools
    }
    most = [
        speeds[quote.pool] * min(left_s, 3600 * left_usd / float(quote.usd_per_hour))
        for quote in prices.quotes
        if quote.pool in speeds and quote.usd_per_hour
    ]
    return max(1, ceil(max(most, default=1.0)))


def pools_of(command: Command, pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """Return the pools that a command may have: of as many cores as it asks for, or else of the most.

    Raises Refused: there is none.
    """
    fitting = [pool for pool in pools if bool(pool.gpu_count) == command.gpu]
    most = max((pool.cores for pool in fitting), default=0)
    found = tuple(pool for pool in fitting if pool.cores == (command.cores or most))
    if not found:
        known = ", ".join(f"{pool.name} ({pool.cores} cores)" for pool in fitting) or "none"
        wanted = "a GPU" if command.gpu else "no GPU"
        cores = f"{command.cores} cores and " if command.cores else ""
        raise Refused(f"no pool of this world has {cores}{wanted}; those with {wanted}: {known}")
    return found


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
        of_family = replace(request, task=recipe.with_family(settings.family))
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
    unmetered = () if request.metered else (UNMETERED,)
    return (*request.notes, *unmetered, *world.policy.guardrails.sentences(reports_quality))
