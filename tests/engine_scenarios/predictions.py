"""A prediction of new rows in the store's bucket, with the model of a training on the same engine."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import yaml
from commands import flights_lines
from documented import ROOT, blocks
from engine_scenarios.books import check_artifacts, check_books, check_dollars, check_placement, receipts
from engine_scenarios.engine import Engine, Job, Pipeline, StartedRun
from same_predictions import check_same_predictions

from shoestring.core import store_layout
from shoestring.core.errors import Refused
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import read_record, read_run_record
from shoestring.models.run_models import PREDICTIONS_RECORD, RunPredictions, find_model_run
from shoestring.runtime.open_world import open_world_on
from shoestring.training.model_record import ModelRecord

PREDICT = Pipeline("shoestring.pipelines.predict:predict_pipeline", ROOT, "shoestring-predict")
ABSENT = ("arr_delay", "dep_time", "dep_delay", "arr_time", "air_time")
"""The target and the leaks, which new rows do not have."""
ROWS, FILES = 20_000, 2
KEPT = ("carrier", "flight")
URL = "s3://BUCKET/new/"
"""As the page has it."""


@dataclass(frozen=True)
class NewRows:
    """Rows in a folder of the store's bucket, and the page's recipe with that folder as its source."""

    table: pa.Table
    job: Job


def predictions(engine: Engine, package: Path) -> None:
    """New rows get a prediction each, in order, from the newest model of the flights: the one that the
    command computes on this machine.
    """
    model_run = trained_run(engine)
    rows = put_new_rows(engine)
    run = engine.start(rows.job)
    summary = run.wait().done()
    assert [(stage.name, stage.attempts) for stage in summary.stages] == [("predict", 1)]
    assert not summary.stages[0].cache_hit
    assert summary.spent_usd <= summary.budget_usd and summary.overrun_usd == 0
    assert engine.state(run.engine_id) == "succeeded"
    (receipt,) = receipts(engine, run.run_id, "predict")
    assert receipt.outcome is not None and (receipt.outcome.rows, receipt.cause) == (ROWS, "")
    check_placement(engine, run, "predict")
    check_dollars(engine, run, "predict")
    check_artifacts(engine, run.run_id)
    check_books(engine, run.run_id)
    listed = json.loads(engine.read("runs", "--name", "flights", "--status", "done", "--json").out)
    assert {run.run_id, model_run} <= {each["run_id"] for each in listed}
    check_predictions(engine, run, rows, model_run)


def trained_run(engine: Engine) -> str:
    """Return the id of the newest evaluated run of the flights; train them if there is none."""
    try:
        return find_model_run(engine.store, find_recipe("flights"))
    except Refused:
        return engine.start(Job("flights")).wait().done().run_id


def put_new_rows(engine: Engine) -> NewRows:
    """Write rows of the flights, in an order of their own and without their target, into the bucket, in two
    files.
    """
    world = yaml.safe_load(
        engine.place.kubectl(
            "get", "configmap", "shoestring-world", "--output", r"jsonpath={.data.world\.yaml}"
        )
    )
    bucket, prefix = world["store"]["bucket"], world["store"].get("prefix", "")
    folder = f"new-{uuid4().hex[:8]}"
    store = open_world_on(engine.place.context, engine.place.namespace, reads_only=False).store
    found = pa.csv.read_csv(io.BytesIO(b"".join(flights_lines(ROWS)))).drop_columns([*ABSENT])
    table = found.take(random.Random(folder).sample(range(ROWS), ROWS))
    for number in range(FILES):
        part = io.BytesIO()
        pa.csv.write_csv(table.slice(number * ROWS // FILES, ROWS // FILES), part)
        store.put(f"{folder}/{number}.csv", part.getvalue())
    (text,) = [each.text for each in blocks() if each.text.startswith("# score.yaml")]
    assert URL in text
    recipe = engine.scratch / f"{folder}.yaml"
    recipe.write_text(text.replace(URL, f"s3://{'/'.join(filter(None, (bucket, prefix, folder)))}/"))
    return NewRows(table, Job(str(recipe), PREDICT))


def check_predictions(engine: Engine, run: StartedRun, rows: NewRows, model_run: str) -> None:
    """The stored predictions are those of the rows in order, in the report's folder too."""
    record = read_record(
        engine.store, store_layout.result_record(run.run_id, PREDICTIONS_RECORD), RunPredictions
    )
    assert read_run_record(engine.store, run.run_id).recipe.model == model_run
    # A training that was found in the cache is that of an earlier run.
    trained_by = read_record(engine.store, store_layout.model(model_run), ModelRecord).run_id
    assert (record.rows, record.model_run_id) == (ROWS, trained_by)
    stored = pq.read_table(engine.store.fetch(store_layout.blob(record.sha256)))
    assert stored.num_rows == ROWS
    for name in KEPT:
        assert [*map(str, stored[name].to_pylist())] == [*map(str, rows.table[name].to_pylist())], name
    out = engine.scratch / run.run_id
    engine.read("report", run.run_id, "--out", str(out))
    assert pq.read_table(out / "predictions.parquet") == stored
    told = f"20,000 rows predicted with the model of run <code>{trained_by}</code>"
    assert told in (out / "report.html").read_text()
    data, here = engine.scratch / f"{run.run_id}.csv", engine.scratch / f"{run.run_id}.parquet"
    pa.csv.write_csv(rows.table, data)
    keep = ("--keep", KEPT[0], "--keep", KEPT[1])
    engine.read("predict", model_run, str(data), "--out", str(here), *keep)
    check_same_predictions(pq.read_table(here), stored)
