"""The run whose model a pipeline predicts with, and the record of its predictions."""

from __future__ import annotations

from pydantic import Field

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore, Refused, UnknownName
from shoestring.core.interfaces import Store
from shoestring.core.record import Count, StoredRecord
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import RunRecord, read_record, read_records, read_run_record
from shoestring.training.model_record import ModelRecord

PREDICTIONS_RECORD, PREDICTIONS_FILE = "predictions.json", "predictions.parquet"


class RunPredictions(StoredRecord):
    """The predictions of a run. Stored at `runs/RUN_ID/predictions.json`."""

    model_run_id: str = Field(description="the run that trained the model")
    rows: Count
    sha256: str = Field(description="digest of the blob with the predictions, which is a Parquet file")
    notes: tuple[str, ...] = Field((), description="sentences about values that were read as missing")
    unknown_shares: dict[str, float] = Field(
        {},
        description="category -> the share of its values that the model does not know; above 0",
    )


def is_prediction(store: Store, run_id: str) -> bool:
    """Return whether a run is one of the pipeline `shoestring-predict`, by its decisions."""
    return any(store.list(store_layout.decisions(run_id, "predict")))


def find_model_run(store: Store, recipe: Recipe) -> str:
    """Return the id of the run whose model predicts for a recipe: the one that `model` names, or else the
    newest evaluated run of the recipe's name.

    Raises Refused: there is no such run, it was not evaluated, its model is not stored any longer or predicts
    no rows.
    """
    run_id = recipe.model or _newest_evaluated(store, recipe.name)
    if recipe.model:
        _require_evaluated(store, run_id)
    try:
        model = read_record(store, store_layout.model(run_id), ModelRecord)
    except NotInStore:
        raise Refused(f"{run_id} has no model: name another run in `model` of the recipe") from None
    for key in (model.dataset_key, store_layout.blob(model.weights_sha256)):
        if not any(store.list(key)):
            raise Refused(f"{run_id} has no model any longer: {key} was deleted, so train again")
    if model.encoding.vocabulary is not None:
        raise Refused(
            f"{run_id} trained a model of texts, which predicts the next token: rows are predicted by models "
            "of tables and images"
        )
    return run_id


def _newest_evaluated(store: Store, name: str) -> str:
    run_ids = {key.split("/")[1] for key in store.list(store_layout.RUNS) if _is_evaluation(key)}
    records, _ = read_records(store, [store_layout.run_record(each) for each in sorted(run_ids)], RunRecord)
    found = [(each.created_at, each.run_id) for each in records if each.recipe and each.recipe.name == name]
    if not found:
        raise Refused(
            f"no run of {name} in this store was evaluated, so no model can predict: run its training "
            "pipeline first, or name a run of another recipe in `model`"
        )
    return max(found)[1]


def _is_evaluation(key: str) -> bool:
    return key == store_layout.evaluation(key.split("/")[1])


def _require_evaluated(store: Store, run_id: str) -> None:
    try:
        read_run_record(store, run_id)
    except UnknownName as error:
        raise Refused(f"`model` of the recipe: {error}") from None
    if not any(store.list(store_layout.evaluation(run_id))):
        raise Refused(
            f"`model` of the recipe: {run_id} was not evaluated, so how well it predicts is not known: "
            "resume that run, or name another"
        )
