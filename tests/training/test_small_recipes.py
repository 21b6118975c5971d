"""A multiclass and a regression recipe on small real tables, with each family, through all stages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from sklearn.datasets import load_diabetes, load_wine
from stage_work import stage_work

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.evaluation.results import EvaluationResults
from shoestring.stages import evaluate, ingest, preprocess, train


def stages(folder: Path, table: pa.Table, family: str) -> tuple[FolderStore, StageOutcome, StageOutcome]:
    """Run all stages on a table with the target `y`. Returns the outcomes of train and evaluate."""
    pa.csv.write_csv(table, folder / "rows.csv")
    source, train_keys = {"rows": {"path": folder / "rows.csv"}}, {"family": family}
    recipe = Recipe.model_validate(
        {"name": "small", "source": source, "target": {"column": "y"}, "train": train_keys}
    )
    work = partial(stage_work, folder, recipe)
    raw = ingest.run(work("ingest"))
    data = preprocess.run(work("preprocess", data=raw.key))
    model = train.run(work("train", data=data.key))
    done = evaluate.run(work("evaluate", data=data.key, model=model.key))
    return FolderStore(folder / "store"), model, done


def columns(values: np.ndarray, names: list[str]) -> dict[str, Any]:
    return dict(zip(names, values.T, strict=True))


FAMILIES = pytest.mark.parametrize("family", ["table_net", "boosted", "linear", "blend"])


@FAMILIES
def test_wines_are_classified_better_than_by_the_prior(tmp_path: Path, family: str) -> None:
    wine = load_wine()
    cultivars = np.array(["barolo", "grignolino", "barbera"])[wine.target]
    store, model, evaluated = stages(
        tmp_path, pa.table({**columns(wine.data, wine.feature_names), "y": cultivars}), family
    )
    assert model.metrics["val_log_loss"] < 0.5 < np.log(3)
    card = read_record(store, evaluated.key, EvaluationResults)
    assert card.task == "multiclass"
    assert card.quality["log_loss"] < card.baselines[0].scores["log_loss"].value / 2


@FAMILIES
def test_diabetes_progress_is_predicted_in_its_own_unit(tmp_path: Path, family: str) -> None:
    """The standard deviation of `y` is 77; linear regression leaves about 54."""
    data = load_diabetes()
    store, model, evaluated = stages(
        tmp_path, pa.table({**columns(data.data, data.feature_names), "y": data.target}), family
    )
    assert 40 < model.metrics["val_rmse"] < 70
    card = read_record(store, evaluated.key, EvaluationResults)
    assert card.task == "regression"
    assert card.model.description.startswith(family)
    assert card.quality["rmse"] < card.baselines[0].scores["rmse"].value
