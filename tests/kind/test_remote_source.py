"""A recipe whose data is in a bucket of another server than the store's, on images that do not contain it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import receipts, wait_for_decision
from engine_scenarios.engine import Job, StartedRun
from engine_scenarios.recipes import IN_THE_IMAGE, RAIN, write_recipe
from kind_cluster import Kind
from kind_documentation import DATA_SECRET_COMMAND, Documentation
from minio import Minio

from shoestring.backends.kubernetes.port_forward import Service, forward_port
from shoestring.backends.sources.data_variables import DATA_SECRET, KEY_VARIABLE, SECRET_KEY_VARIABLE
from shoestring.data.recipe_files import find_recipe
from shoestring.routing.decision import Decision

pytestmark = pytest.mark.kind

SERVER = str(Path(__file__).parent / "data_server.yaml")
BUCKET, KEY, SECRET_KEY, ENDPOINT = "measurements", "ann", "anns-secret", "http://lake.default:9000"
# The port of the data, which docs/cluster.md opens by a patch.
OPEN_PORT = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: lake}
spec: {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 9000, protocol: TCP}]}]}
"""


@pytest.fixture
def lake(kind: Kind) -> Iterator[Minio]:
    """A client of the data's server, which has an empty bucket."""
    try:
        kind.apply(OPEN_PORT)
        kind.kubectl("apply", "--filename", SERVER, namespace="default")
        kind.kubectl("wait", "--for=condition=Ready", "pod/lake", "--timeout=120s", namespace="default")
        address = forward_port(kind.context, Service("default", "lake", 9000))
        client = Minio(address, access_key=KEY, secret_key=SECRET_KEY, secure=False)
        client.make_bucket(BUCKET)
        yield client
    finally:
        kind.kubectl("delete", "--ignore-not-found", f"secret/{DATA_SECRET}", "networkpolicy/lake")
        kind.kubectl("delete", "--ignore-not-found", "--filename", SERVER, namespace="default")


def create_secret(kind: Kind, documentation: Documentation) -> None:
    """Run the documented command with the keys and the address of the data's server."""
    line = documentation.command(DATA_SECRET_COMMAND).replace("https://s3.data.example.org", ENDPOINT)
    for name, value in ((SECRET_KEY_VARIABLE, SECRET_KEY), (KEY_VARIABLE, KEY)):
        line = line.replace(f"{name}=...", f"{name}={value}")
    kind.kubectl(*line.split()[1:])


def stop_when_routed(engine: ArgoEngine, run: StartedRun, stage: str) -> Decision:
    """Terminate a run when a stage is routed, so that the one before it has ended; return the decision."""
    made = wait_for_decision(engine, run.run_id, stage)
    engine.terminate(run.engine_id)
    run.wait().not_done()
    return made


def test_data_on_another_s3_server_are_ingested_with_the_data_secret_and_a_second_run_finds_the_result(
    engine: ArgoEngine, kind: Kind, lake: Minio, documentation: Documentation, tmp_path: Path
) -> None:
    weather = find_recipe(write_recipe(tmp_path, RAIN)).source["weather"].locate().read_bytes()
    header, *rows = weather.splitlines(keepends=True)
    for part in range(2):
        text = header + b"".join(rows[part::2])
        lake.put_object(BUCKET, f"weather/{part}.csv", io.BytesIO(text), len(text))
    assert IN_THE_IMAGE in RAIN
    url = f"{{url: 's3://{BUCKET}/weather'}}"
    recipe = write_recipe(tmp_path, RAIN.replace(IN_THE_IMAGE, url))

    lacking = engine.start(Job(recipe)).wait()
    assert lacking.code == 1 and f"set {KEY_VARIABLE} and {SECRET_KEY_VARIABLE}" in lacking.err
    assert f"in Secret {DATA_SECRET}" in lacking.err

    create_secret(kind, documentation)
    first = engine.start(Job(recipe))
    stop_when_routed(engine, first, "preprocess")
    (receipt,) = receipts(engine, first.run_id, "ingest")
    assert receipt.outcome and receipt.outcome.rows == len(rows)

    made = stop_when_routed(engine, engine.start(Job(recipe)), "ingest")
    assert made.choice and made.choice.cached
