"""The sealed test split, opened once: the model beside what it has to beat."""

from __future__ import annotations

from pydantic import JsonValue

from shoestring.core.errors import StageStopped
from shoestring.core.record import record_bytes
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.storage.cache import code_digest
from shoestring.evaluation import evaluate
from shoestring.stages.work import Progress, Work

SHARED = False

NEED = Need(
    stage="evaluate",
    setup_s=4.0 + evaluate.BASELINE_S,
    cpu_us_per_row=round((evaluate.BASELINE_S_PER_ROW + evaluate.FINISH_S_PER_ROW) * 1e6, 3),
    reads="scan",
    memory_fixed_gb=0.6,
    memory_bytes_per_row=400.0,
    image="train",
)
"""Set-up is torch, scikit-learn and the baseline's first seconds. The rest is nearly all its fit, which ends by the clock on any cores."""


def code() -> str:
    """The digest of the code that computes this stage."""
    return code_digest(
        "data.formats",
        "evaluation.baselines",
        "evaluation.evaluate",
        "evaluation.judging",
        "evaluation.metrics",
        "evaluation.resampling",
        "evaluation.rows",
        "evaluation.scorecard",
        "stages.evaluate",
        "training.torch_.net",
        "training.torch_.predict",
    )


def settings(recipe: Recipe, seed: int) -> dict[str, JsonValue]:
    """What else its result depends on: the metric that counts, and the seed of the draws."""
    return {"metric": recipe.metric, "seed": seed}


def run(work: Work) -> StageOutcome:
    """Raises DataError, StoreFull, StageStopped."""
    from shoestring.training.torch_.predict import predict

    def tell(phase: str, done: int) -> None:
        work.progress(Progress(phase=phase, samples=done))
        if work.stopping():
            raise StageStopped(f"while {phase}")

    asked = evaluate.EvaluationRequest(
        run_id=work.run_id,
        dataset_key=work.inputs["data"],
        model_key=work.inputs["model"],
        predict=predict,
        metric_for=work.recipe.metric_for,
        seed=work.seed,
        cores=work.cores,
        meter=work.meter,
    )
    card = evaluate.evaluate(asked, work.store, work.clock, tell)
    key = f"runs/{work.run_id}/evaluation.json"
    work.store.put(key, record_bytes(card))
    return StageOutcome(key=key, rows=card.rows, metrics=card.quality)
