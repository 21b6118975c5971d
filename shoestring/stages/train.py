"""The train stage: it trains inside the budget, and always leaves an annealed, usable model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.datasets import LossMetric, Manifest
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.loading.open_split import open_split, require_encoding
from shoestring.data.loading.samples import SampleReader
from shoestring.data.loading.selection import choose_samples, read_selection, store_selection
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest, put_blob
from shoestring.stages.work import StageProgress, Work
from shoestring.training.contracts import TrainingProgress
from shoestring.training.model_record import ModelRecord

if TYPE_CHECKING:
    from shoestring.training.families.data_shape import DataShape
    from shoestring.training.task import TrainingTask

# Set-up is the supervisor's start, the import of torch, the last validation, and the exit.
#
# Measured on flights: a quiet core takes 70,000 rows a second, validation and checkpoints included; two cores
# take 60,000: with steps this small, synchronising a second thread costs more than it gains.
NEED = Need(
    stage="train",
    elastic=True,
    setup_s=4.5,
    cpu_us_per_row=14.5,
    reads="shuffled",
    passes=1000.0,
    min_passes=0.1,
    memory_fixed_gb=0.7,
    memory_bytes_per_row=300.0,
    checkpoint_s=0.2,
    image="train",
)


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """Return the settings that the result depends on.

    No budget, deadline or guardrail is one of them: a training that one of them ended, or whose learning rate
    it lowered, is the result of its own run only.
    """
    loss = recipe.loss.model_dump(mode="json")
    return {"train": recipe.train.model_dump(mode="json"), "loss": loss, "seed": seed}


def run(work: Work) -> StageOutcome:
    """Train a model. Raises DataError, CorruptObject, StoreFull, StageFailed, StageStopped."""
    from shoestring.training.families.train_family import train_family

    manifest = load_manifest(work.store, work.inputs["data"])
    task = make_task(work, manifest)
    trained = train_family(task)
    state, weights_sha256 = trained.state, put_blob(work.store, trained.weights)
    model = ModelRecord(
        run_id=work.run_id,
        weights_sha256=weights_sha256,
        dataset_key=work.inputs["data"],
        encoding=task.encoding,
        settings=task.settings,
        seed=work.seed,
        samples=state.samples,
        epochs=state.samples / len(task.train),
        training_s=state.training_s,
        cores=work.cores,
        val_loss=trained.val_loss,
        inverse_temperature=trained.inverse_temperature,
        weights_source=trained.weights_source,
        stop_reason=trained.stop_reason,
        data_wait_share=trained.data_wait_share,
        validation_share=1.0 if trained.uses_all_validation else state.controller.validation_share,
        sample_ranges=state.sample_ranges,
        selection=state.cursor.selection,
        shuffle_quality=task.train.shuffle_quality(work.seed),
    )
    records = store_records(work.store, model)
    return StageOutcome(
        key=records["model.json"],
        artifact=store_layout.blob(weights_sha256),
        rows=len(task.train),
        samples=state.samples,
        metrics={} if trained.val_loss is None else {f"val_{task.encoding.loss_metric}": trained.val_loss},
        stop_reason=trained.stop_reason,
        only_its_run=trained.depends_on_limits or trained.val_loss is None,
        records=records,
    )


def store_records(store: Store, model: ModelRecord) -> dict[str, str]:
    """Store the model's record; return the names of the run's records of its training, and the keys of their
    contents.

    These keys stay valid for other runs, whatever becomes of this run.
    """
    data, curve = record_bytes(model), store.fetch(store_layout.curve(model.run_id)).read_bytes()
    store.put(store_layout.model(model.run_id), data)
    return {
        name: store_layout.blob(put_blob(store, content))
        for name, content in (("model.json", data), ("curve.json", curve))
    }


def make_task(work: Work, manifest: Manifest) -> TrainingTask:
    """Return what training needs of the work. The test split is not opened."""
    from shoestring.training.families.data_shape import encoded_shape
    from shoestring.training.task import TrainingTask

    encoding = require_encoding(manifest).model_copy(update={"loss": work.recipe.loss})
    work.recipe.metric_for(encoding.task)
    train, selection = selected_rows(work, open_split(work.store, manifest, "train", work.scratch))
    validation = open_split(work.store, manifest, "val")
    max_samples = work.recipe.train.most_epochs() * len(train)
    metric = encoding.loss_metric
    return TrainingTask(
        run_id=work.run_id,
        seed=work.seed,
        encoding=encoding,
        settings=work.recipe.train,
        train=train,
        validation=validation,
        store=work.store,
        meter=work.meter,
        clock=work.clock,
        cores=work.cores,
        device=work.device,
        report_progress=partial(report, work, metric, max_samples),
        should_stop=work.should_stop,
        adaptation_limits=work.policy.adaptation_limits,
        guardrails=work.policy.guardrails,
        half_rows=half_rows_by_family(work, encoded_shape(encoding, len(train))),
        planned_samples=work.planned_samples,
        sudden_ends_per_hour=work.sudden_ends_per_hour,
        attempt=work.attempt,
        selection=selection,
    )


def half_rows_by_family(work: Work, shape: DataShape) -> dict[str, int]:
    """Return the rows of a step that takes twice its fixed time on the pool, by the family that trains."""
    from shoestring.pricing.throughput import half_rows
    from shoestring.training.families.registry import family_of

    settings, pool = work.recipe.train, work.pool
    if pool is None:
        return {}
    trained = settings.members_for(shape.rows) or (settings,)
    return {each.family: half_rows(family_of(each).train_need(NEED, shape), pool) for each in trained}


def selected_rows(work: Work, train: SampleReader) -> tuple[SampleReader, str]:
    """Return the rows to train on and the digest of their selection; all rows and "" without one.

    A training that is resumed keeps the selection that its checkpoint names.
    """
    from shoestring.training.checkpoints import read_pointer

    share = work.recipe.train.rows_share
    if share == 1:
        return train, ""
    selection = read_pointer(work.store, work.run_id).selection
    if not selection:
        selection = store_selection(work.store, choose_samples(train, work.seed, share))
    return train.subset(read_selection(work.store, selection, len(train))), selection


def report(work: Work, metric: LossMetric, max_samples: int, progress: TrainingProgress) -> None:
    """Report the progress of a training. `max_samples`: those that the recipe allows."""
    forecast, best_loss = progress.forecast, progress.best_loss
    work.report_progress(
        StageProgress(
            phase=progress.phase,
            samples=progress.samples,
            resumed_samples=progress.resumed_samples,
            total=forecast.planned_samples if forecast else max_samples,
            quality={} if best_loss is None else {metric: best_loss},
            changes=progress.changes,
            forecast=forecast,
            time_shares=progress.time_shares,
        )
    )
