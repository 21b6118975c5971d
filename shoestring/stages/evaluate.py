"""The evaluate stage: it opens the sealed test split once, and compares the model with its baselines."""

from __future__ import annotations

from functools import partial

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.errors import StageStopped
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import put_blob
from shoestring.evaluation import evaluate
from shoestring.evaluation.resampling import RESAMPLES
from shoestring.stages.work import StageProgress, Work

# Measured on flights: 2.2 s with a network, and 1.7 s more with trees for the import of LightGBM; most of the
# former are imports, too, in two processes. The route step adds the training of the baseline, where the store
# does not have it.
NEED = Need(
    stage="evaluate",
    setup_s=3.5,
    cpu_us_per_row=1.0,
    reads="scan",
    memory_fixed_gb=0.6,
    memory_bytes_per_row=400.0,
    image="train",
)


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """Return the settings that the result depends on: the metric, and the seed of the resampling."""
    return {"metric": recipe.metric, "loss": recipe.loss.model_dump(mode="json"), "seed": seed}


def run(work: Work) -> StageOutcome:
    """Evaluate the run's model. Raises DataError, StoreFull, StageStopped."""
    from shoestring.training.families.predict import predict

    def report(phase: str, done: int) -> None:
        work.report_progress(StageProgress(phase=phase, samples=done))
        if work.should_stop():
            raise StageStopped(f"while {phase}")

    request = evaluate.EvaluationRequest(
        run_id=work.run_id,
        split=work.recipe.split,
        split_seed=work.recipe.seed,
        dataset_key=work.inputs["data"],
        model_key=work.inputs["model"],
        predict=partial(predict, device=work.device),
        metric_for=work.recipe.metric_for,
        loss=work.recipe.loss,
        seed=work.seed,
        cores=work.cores,
        meter=work.meter,
    )
    results = evaluate.evaluate(request, work.store, work.clock, report)
    data = record_bytes(results)
    work.store.put(store_layout.evaluation(work.run_id), data)
    key = store_layout.blob(put_blob(work.store, data))
    return StageOutcome(
        key=key,
        rows=results.rows,
        metrics=results.quality,
        # A run with more money could train the baseline that is missing, or resample more often.
        only_its_run=results.resamples < RESAMPLES
        or any(each.startswith(evaluate.NO_TIME) for each in results.skipped_baselines.values()),
        records={"evaluation.json": key},
    )
