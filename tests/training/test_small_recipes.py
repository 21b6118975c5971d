"""A multiclass and a regression recipe on small real tables, with each family, through all stages."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from sklearn.datasets import load_diabetes, load_wine

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.core.types import Format, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.evaluation.results import EvaluationResults
from shoestring.spending.meter import Meter
from shoestring.stages import evaluate, ingest, preprocess, train
from shoestring.stages.work import Work


def stages(folder: Path, table: pa.Table, family: str) -> tuple[FolderStore, StageOutcome, StageOutcome]:
    """Run all stages on a table with the target `y`. Returns the outcomes of train and evaluate."""
    pa.csv.write_csv(table, folder / "rows.csv")
    source, train_keys = {"rows": {"path": folder / "rows.csv"}}, {"family": family}
    recipe = Recipe.model_validate(
        {"name": "small", "source": source, "target": {"column": "y"}, "train": train_keys}
    )
    clock, store = WallClock(), FolderStore(folder / "store")

    def work(stage: str, **inputs: str) -> Work:
        return Work(
            run_id="one",
            stage=stage,
            attempt=1,
            seed=0,
            inputs=inputs,
            recipe=recipe,
            format=Format.PACKED,
            cores=1,
            store=store,
            meter=Meter(Decimal("0.04"), clock.monotonic_s(), Decimal("0.001"), None),
            clock=clock,
            scratch=folder,
            report_progress=lambda progress: None,
            should_stop=lambda: False,
        )

    raw = ingest.run(work("ingest"))
    data = preprocess.run(work("preprocess", data=raw.key))
    model = train.run(work("train", data=data.key))
    return store, model, evaluate.run(work("evaluate", data=data.key, model=model.key))


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
