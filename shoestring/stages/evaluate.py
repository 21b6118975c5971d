"""The evaluate stage: it opens the sealed test split once, and compares the model with its baselines."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.errors import StageStopped
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import put_blob
from shoestring.evaluation import evaluate
from shoestring.evaluation.fitted_baseline import FITTING_MODULE, baseline_key_fields, is_fitted
from shoestring.stages.work import StageProgress, Work

ONCE_MODULE = FITTING_MODULE
"""The module whose import closure is the code of the part that is paid once: the baseline."""

# Measured on flights: 3.2 s with the baseline in the store, most of them imports in two processes and that of
# torch. The first evaluation also imports scikit-learn (1.4 CPU-seconds) and fits the baseline (4.1 to 5.1
# CPU-seconds on one core).
NEED = Need(
    stage="evaluate",
    setup_s=5.0 + evaluate.FIT_S,
    cpu_us_per_row=round((evaluate.FIT_S_PER_ROW + evaluate.FINISH_S_PER_ROW) * 1e6, 3),
    once_setup_s=1.5 + evaluate.FIT_S,
    once_cpu_us_per_row=round(evaluate.FIT_S_PER_ROW * 1e6, 3),
    reads="scan",
    memory_fixed_gb=0.6,
    memory_bytes_per_row=400.0,
    image="train",
)


def is_paid(store: Store, dataset_key: str, seed: int, code: str, libraries: Mapping[str, str]) -> bool:
    """Return whether the part of NEED that is paid once is in the store: the baseline for this data and seed.

    `code` and `libraries` are those of ONCE_MODULE.
    """
    return is_fitted(store, baseline_key_fields(dataset_key, seed, code, libraries))


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """Return the settings that the result depends on: the metric, and the seed of the resampling."""
    return {"metric": recipe.metric, "seed": seed}


def run(work: Work) -> StageOutcome:
    """Evaluate the run's model. Raises DataError, StoreFull, StageStopped."""
    from shoestring.training.predict import predict

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
        predict=predict,
        metric_for=work.recipe.metric_for,
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
        # A run with more money could fit the baseline that is missing.
        only_its_run=bool(results.skipped_baselines),
        records={"evaluation.json": key},
    )
