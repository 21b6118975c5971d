"""The predict stage: it predicts the rows of the recipe's source with the model of an earlier run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record, read_run_record
from shoestring.data.storage.blobs import put_blob
from shoestring.models.run_models import PREDICTIONS_FILE, PREDICTIONS_RECORD, RunPredictions
from shoestring.stages.work import StageProgress, Work
from shoestring.training.model_record import ModelRecord

if TYPE_CHECKING:
    from shoestring.models.model import FittedModel

# Measured on flights, with a small network: 20,000 rows take 1.0 s of CPU, most of it imports in two
# processes, and 336,776 rows 1.6 s and 300 MB of memory, since they are predicted in batches. Forests take
# longer: a blend took 2.8 s.
NEED = Need(stage="predict", setup_s=2.5, cpu_us_per_row=5.0, memory_fixed_gb=0.7, image="train")


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """Return the settings that the result depends on. The model and the rows are inputs."""
    image = None if recipe.image is None else recipe.image.model_dump(mode="json")
    return {"main": recipe.main, "keep": [*recipe.keep], "image": image}


def run(work: Work) -> StageOutcome:
    """Predict the rows. Raises RecipeError, UsageError, DataError, CorruptObject, StoreError, StageFailed,
    StageStopped."""
    from shoestring.models.predict_file import predict_source

    def report(rows: int) -> None:
        work.report_progress(StageProgress(phase="predicting", samples=rows))
        if work.should_stop():
            raise StageStopped(f"at {rows} rows")

    model, file = fitted_model(work), work.scratch / PREDICTIONS_FILE
    found = predict_source(model, work.recipe, work.store, work.remote, file, report)
    predictions = RunPredictions(
        model_run_id=model.record.model.run_id,
        rows=found.rows,
        sha256=put_blob(work.store, file),
        notes=found.notes,
        unknown_shares=found.unknown_shares,
    )
    data = record_bytes(predictions)
    work.store.put(store_layout.result_record(work.run_id, PREDICTIONS_RECORD), data)
    key = store_layout.blob(put_blob(work.store, data))
    return StageOutcome(
        key=key,
        artifact=store_layout.blob(predictions.sha256),
        rows=found.rows,
        records={PREDICTIONS_RECORD: key},
    )


def fitted_model(work: Work) -> FittedModel:
    """Return the model of the run that the recipe names, from its objects in the store."""
    from shoestring.models.folder.write_folder import write_model
    from shoestring.models.model import model_at

    run_id = work.recipe.model
    if not run_id:
        raise StageFailed("the recipe names no `model`, which is done where predict is the first stage")
    recipe = read_run_record(work.store, run_id).recipe
    if recipe is None:
        raise StageFailed(f"{run_id} is a run of a command, which has no model of Shoestring's")
    model = read_record(work.store, store_layout.model(run_id), ModelRecord)
    write_model(work.store, model, recipe, b"{}", work.scratch / "model")
    return model_at(work.scratch / "model")
