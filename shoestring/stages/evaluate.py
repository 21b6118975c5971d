"""The evaluate stage: it opens the sealed test split once, and compares the model with its baselines."""

from __future__ import annotations

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.errors import StageStopped
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.cache import code_digest
from shoestring.evaluation import evaluate
from shoestring.stages.work import StageProgress, Work

SHARED = False

# Set-up is the import of torch and scikit-learn, and the baseline's first seconds. Nearly all of the rest is
# the fit of the baseline, which ends by the clock on any number of cores.
NEED = Need(
    stage="evaluate",
    setup_s=4.0 + evaluate.BASELINE_S,
    cpu_us_per_row=round((evaluate.BASELINE_S_PER_ROW + evaluate.FINISH_S_PER_ROW) * 1e6, 3),
    reads="scan",
    memory_fixed_gb=0.6,
    memory_bytes_per_row=400.0,
    image="train",
)


def code() -> str:
    """Return the digest of the code that computes this stage."""
    return code_digest(
        "data.formats.readers",
        "evaluation.baselines",
        "evaluation.evaluate",
        "evaluation.metrics",
        "evaluation.resampling",
        "evaluation.results",
        "evaluation.significance",
        "evaluation.split_rows",
        "stages.evaluate",
        "training.torch_.net",
        "training.torch_.predict",
    )


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """Return the settings that the result depends on: the metric, and the seed of the resampling."""
    return {"metric": recipe.metric, "seed": seed}


def run(work: Work) -> StageOutcome:
    """Evaluate the run's model. Raises DataError, StoreFull, StageStopped."""
    from shoestring.training.torch_.predict import predict

    def report(phase: str, done: int) -> None:
        work.report_progress(StageProgress(phase=phase, samples=done))
        if work.should_stop():
            raise StageStopped(f"while {phase}")

    request = evaluate.EvaluationRequest(
        run_id=work.run_id,
        dataset_key=work.inputs["data"],
        model_key=work.inputs["model"],
        predict=predict,
        metric_for=work.recipe.metric_for,
        seed=work.seed,
        cores=work.cores,
        meter=work.meter,
    )
    results = evaluate.evaluate(request, work.store, work.clock, report)
    key = store_layout.evaluation(work.run_id)
    work.store.put(key, record_bytes(results))
    return StageOutcome(key=key, rows=results.rows, metrics=results.quality)
