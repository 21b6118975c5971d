"""Train inside the budget; always leave an annealed, usable model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import JsonValue

from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError
from shoestring.core.receipt import AdaptationChange, SpendForecast
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.formats.readers import open_rows
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest, open_blob, put_blob
from shoestring.data.storage.cache import code_digest
from shoestring.stages.work import Progress, Work
from shoestring.training.model_record import ModelRecord

if TYPE_CHECKING:
    from shoestring.training.torch_.task import TrainingTask

SHARED = False

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
"""Set-up is the frame's start, importing torch, the last look at validation, and leaving.

Measured on flights: a quiet core takes 70,000 rows a second, looks and checkpoints included; two take 60,000, since steps as small as these
lose more in waiting for each other's threads than they win.
"""


def code() -> str:
    """The digest of the code that computes this stage."""
    return code_digest(
        "adaptation_limits",
        "data.formats",
        "data.loader",
        "data.order",
        "spending.drift",
        "spending.guard",
        "stages.train",
        "training.curve",
        "training.outlay",
        "training.rails",
        "training.record",
        "training.schedule",
        "training.steering",
        "training.torch_.checkpoint",
        "training.torch_.course",
        "training.torch_.learner",
        "training.torch_.loop",
        "training.torch_.net",
        "training.torch_.remedies",
        "training.torch_.task",
    )


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """What else its result depends on."""
    return {"train": recipe.train.model_dump(mode="json"), "seed": seed}


def run(work: Work) -> StageOutcome:
    """Raises DataError, CorruptObject, StoreFull, StageFailed, StageStopped."""
    from shoestring.training.torch_.loop import Training

    manifest = load_manifest(work.store, work.inputs["data"])
    task = make_task(work, manifest)
    trained = Training(task).run()
    course = trained.state
    weights_sha256 = put_blob(work.store, trained.weights)
    model = ModelRecord(
        run_id=work.run_id,
        weights_sha256=weights_sha256,
        dataset_key=work.inputs["data"],
        encoding=task.encoding,
        settings=task.settings,
        seed=work.seed,
        samples=course.samples,
        epochs=course.samples / len(task.train),
        training_s=course.training_s,
        cores=work.cores,
        val_loss=trained.val_loss,
        weights_source=trained.weights_source,
        stop_reason=trained.stop_reason,
        data_wait_share=trained.data_wait_share,
        validation_share=course.validation_share,
        sample_ranges=course.sample_ranges,
    )
    key = f"runs/{work.run_id}/model.json"
    work.store.put(key, record_bytes(model))
    return StageOutcome(
        key=key,
        artifact=f"blobs/{weights_sha256}",
        rows=len(task.train),
        samples=course.samples,
        metrics={} if trained.val_loss is None else {f"val_{task.metric}": trained.val_loss},
        stop_reason=trained.stop_reason,
    )


def make_task(work: Work, manifest: Manifest) -> TrainingTask:
    """What training needs of the work; of the data, the test split is not even opened."""
    from shoestring.training.torch_.task import TrainingTask

    if manifest.encoding is None:
        raise DataError(f"{work.inputs['data']} is not encoded: train reads what preprocess wrote")
    work.recipe.metric_for(manifest.encoding.task)
    splits = [
        [open_blob(work.store, part.sha256) for part in manifest.splits[name]] for name in ("train", "val")
    ]
    train, signal = (open_rows(paths, manifest.format) for paths in splits)
    for name, rows in (("train", train), ("val", signal)):
        if not len(rows):
            raise DataError(
                f"the {name} split of {work.inputs['data']} has no rows: give it a larger share in the recipe, or more data"
            )
    most = work.recipe.train.max_epochs * len(train)

    def tell(
        phase: str,
        samples: int,
        began: int,
        quality: dict[str, float],
        changes: tuple[AdaptationChange, ...],
        forecast: SpendForecast | None,
    ) -> None:
        total = forecast.planned_samples if forecast else most
        work.progress(
            Progress(
                phase=phase,
                samples=samples,
                began=began,
                total=total,
                quality=quality,
                changes=changes,
                forecast=forecast,
            )
        )

    return TrainingTask(
        run_id=work.run_id,
        seed=work.seed,
        encoding=manifest.encoding,
        settings=work.recipe.train,
        train=train,
        validation=signal,
        metric="rmse" if manifest.encoding.task == "regression" else "log_loss",
        store=work.store,
        meter=work.meter,
        clock=work.clock,
        cores=work.cores,
        report_progress=tell,
        should_stop=work.stopping,
        adaptation_limits=work.rules.adaptation_limits,
        guardrails=work.rules.guardrails,
    )
