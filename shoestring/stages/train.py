"""The train stage: it trains inside the budget, and always leaves an annealed, usable model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.core.receipt import AdaptationChange, SpendForecast
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.formats.readers import open_rows
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest, open_blob, put_blob
from shoestring.stages.work import StageProgress, Work
from shoestring.training.model_record import ModelRecord

if TYPE_CHECKING:
    from shoestring.training.torch_.task import TrainingTask

ProgressReporter = Callable[
    [str, int, int, dict[str, float], tuple[AdaptationChange, ...], SpendForecast | None], None
]

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
    return {"train": recipe.train.model_dump(mode="json"), "seed": seed}


def run(work: Work) -> StageOutcome:
    """Train a model. Raises DataError, CorruptObject, StoreFull, StageFailed, StageStopped."""
    from shoestring.training.torch_.loop import Training
    from shoestring.training.torch_.training_state import depends_on_limits

    manifest = load_manifest(work.store, work.inputs["data"])
    task = make_task(work, manifest)
    trained = Training(task).run()
    state = trained.state
    weights_sha256 = put_blob(work.store, trained.weights)
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
        weights_source=trained.weights_source,
        stop_reason=trained.stop_reason,
        data_wait_share=trained.data_wait_share,
        validation_share=state.validation_share,
        sample_ranges=state.sample_ranges,
    )
    records = store_records(work.store, model)
    return StageOutcome(
        key=records["model.json"],
        artifact=store_layout.blob(weights_sha256),
        rows=len(task.train),
        samples=state.samples,
        metrics={} if trained.val_loss is None else {f"val_{task.metric}": trained.val_loss},
        stop_reason=trained.stop_reason,
        only_its_run=depends_on_limits(state) or trained.val_loss is None,
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
    from shoestring.training.torch_.task import TrainingTask

    if manifest.encoding is None:
        raise DataError(f"{work.inputs['data']} is not encoded: train reads what preprocess wrote")
    work.recipe.metric_for(manifest.encoding.task)
    paths = {
        name: [open_blob(work.store, part.sha256) for part in manifest.splits[name]]
        for name in ("train", "val")
    }
    splits = {name: open_rows(found, manifest.format) for name, found in paths.items()}
    for name, rows in splits.items():
        if not len(rows):
            raise DataError(
                f"the {name} split of {work.inputs['data']} has no rows: "
                "give it a larger share in the recipe, or use more data"
            )
    max_samples = work.recipe.train.max_epochs * len(splits["train"])
    return TrainingTask(
        run_id=work.run_id,
        seed=work.seed,
        encoding=manifest.encoding,
        settings=work.recipe.train,
        train=splits["train"],
        validation=splits["val"],
        metric="rmse" if manifest.encoding.task == "regression" else "log_loss",
        store=work.store,
        meter=work.meter,
        clock=work.clock,
        cores=work.cores,
        report_progress=progress_reporter(work, max_samples),
        should_stop=work.should_stop,
        adaptation_limits=work.policy.adaptation_limits,
        guardrails=work.policy.guardrails,
        planned_samples=work.planned_samples,
    )


def progress_reporter(work: Work, max_samples: int) -> ProgressReporter:
    """Return the function through which training reports its progress. `max_samples`: those that the recipe
    allows.
    """

    def report(
        phase: str,
        samples: int,
        resumed_samples: int,
        quality: dict[str, float],
        changes: tuple[AdaptationChange, ...],
        forecast: SpendForecast | None,
    ) -> None:
        progress = StageProgress(
            phase=phase,
            samples=samples,
            resumed_samples=resumed_samples,
            total=forecast.planned_samples if forecast else max_samples,
            quality=quality,
            changes=changes,
            forecast=forecast,
        )
        work.report_progress(progress)

    return report
