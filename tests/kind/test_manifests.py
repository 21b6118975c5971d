"""The manifests on a real API server: which are accepted, what runs, and what is refused."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
import yaml
from engine_scenarios.recipes import RAIN
from kind_cluster import NAMESPACE, CommandFailed, Kind, base_pod, render_overlay
from world_changes import reap_now

from shoestring.backends.local import WallClock
from shoestring.config.world import IMAGES
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.data.job import job_of_recipe
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import RunRecord, RunStart
from shoestring.runtime.open_world import open_world_on
from shoestring.spending.ledger.ledger import Ledger

pytestmark = pytest.mark.kind

# The first request of a pod, to the store of its world.
ASK_THE_STORE = """
import pathlib, uuid
from shoestring.backends.local import WallClock
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import open_s3_store
location = S3Location(endpoint="s3:8333", bucket="shoestring", secure=False)
store = open_s3_store(location, pathlib.Path("/tmp/store"), WallClock())
key = f"smoke/{uuid.uuid4()}"
wins = store.put(key, b"one", if_absent=True), store.put(key, b"two", if_absent=True)
print(*wins, store.fetch(key).read_text())
"""

# The same credentials with another client.
DELETE = """
import os, io, minio
keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
s3 = minio.Minio("s3:8333", *keys, secure=False, region="us-east-1")
s3.put_object("shoestring", "smoke/kept", io.BytesIO(b"1"), 1)
try:
    s3.remove_object("shoestring", "smoke/kept")
except minio.S3Error as error:
    print(error.code)
"""

# Every account may ask for its identity and its rights.
COMMON_GROUPS = {"authentication.k8s.io", "authorization.k8s.io"}
EXECUTOR = {"create workflowtaskresults", "patch workflowtaskresults"}
RIGHTS = {
    "shoestring-router": {"list nodes", "list pods", "get pods"} | EXECUTOR,
    "shoestring-stage": {"get pods"} | EXECUTOR,
    "shoestring-settle": {"get pods", "list pods", "get workflows"} | EXECUTOR,
    "shoestring-reaper": {"get pods", "list pods", "patch pods", "patch pods/status", "get workflows"},
}


@pytest.mark.parametrize("overlay", ["argo", "kind", "kubeflow"])
def test_the_api_server_accepts_every_overlay(kind: Kind, overlay: str) -> None:
    documents = list(yaml.safe_load_all(render_overlay(overlay)))
    (namespace,) = {
        document["metadata"]["namespace"] for document in documents if "namespace" in document["metadata"]
    }
    if namespace != NAMESPACE:
        kind.kubectl("create", "namespace", namespace)
    try:
        kind.apply(render_overlay(overlay), "--dry-run=server", namespace=namespace)
    finally:
        if namespace != NAMESPACE:
            kind.kubectl("delete", "namespace", namespace)


def test_a_misspelt_field_is_refused(kind: Kind) -> None:
    misspelt = render_overlay("kind").replace("readinessProbe", "readynessProbe")
    with pytest.raises(CommandFailed, match="readynessProbe"):
        kind.apply(misspelt, "--dry-run=server")


def test_a_pod_of_the_base_image_runs_under_the_restricted_level(kind: Kind) -> None:
    assert "Machine-learning pipelines that stay inside their budget" in kind.pod_output(
        "smoke-help", base_pod("shoestring", "--help")
    )
    # What KFP's launcher calls.
    assert kind.pod_output(
        "smoke-kfp",
        base_pod("sh", "-c", "python3 -c 'import kfp.dsl.executor_main as it; print(it.__name__)'"),
    )


def test_exactly_one_of_two_conditional_writers_succeeds(kind: Kind) -> None:
    assert kind.pod_output("smoke-store", base_pod("python3", "-c", ASK_THE_STORE)).split() == [
        "True",
        "False",
        "one",
    ]


def test_the_credentials_of_a_stage_cannot_delete(kind: Kind) -> None:
    assert kind.pod_output("smoke-delete", base_pod("python3", "-c", DELETE)).split() == ["AccessDenied"]


def test_a_pod_that_runs_as_root_is_refused(kind: Kind) -> None:
    with pytest.raises(CommandFailed, match='violates PodSecurity "restricted'):
        kind.kubectl("run", "smoke-root", f"--image={IMAGES['base']}", "--restart=Never", "--", "id")


class DaysAgo(WallClock):
    def now(self) -> datetime:
        return super().now() - timedelta(days=2)


def write_abandoned_run(store: Store, run_id: str) -> str:
    """Write a run of two days ago with a reservation and without an exit step; return its month."""
    ledger, now, recipe = (
        Ledger(store, DaysAgo()),
        DaysAgo().now(),
        Recipe.model_validate(yaml.safe_load(RAIN)),
    )
    began = RunRecord(
        run_id=run_id,
        job=job_of_recipe(recipe, seed=0),
        recipe=recipe,
        world="kind",
        world_sha256="",
        created_at=now,
        environment={},
    )
    start = RunStart(
        number=1,
        account=run_id,
        budget_usd=Decimal("0.01"),
        started_at=now,
        deadline_at=None,
        launcher=None,
    )
    store.put(f"runs/{run_id}/run.json", record_bytes(began))
    store.put(f"runs/{run_id}/starts/1.json", record_bytes(start))
    ledger.open(run_id, start.budget_usd)
    ledger.reserve(run_id, "overhead-1", "overhead", 1, Decimal("0.001"))
    return f"{now:%Y-%m}"


def test_the_reaper_settles_a_run_without_an_exit_step(kind: Kind) -> None:
    run_id = f"left-{uuid.uuid4().hex[:8]}"
    store = open_world_on(kind.context, NAMESPACE, reads_only=False).store
    month = write_abandoned_run(store, run_id)
    assert run_id in Ledger(store, WallClock()).state(month).reservations
    # The cluster's own reaper may be first.
    reap_now(kind)
    state = Ledger(store, WallClock()).state(run_id)
    assert (state.closed, state.reservations, state.spent_usd) == (True, {}, 0)
    assert run_id not in Ledger(store, WallClock()).state(month).reservations


@pytest.mark.parametrize("account", RIGHTS)
def test_an_account_has_exactly_the_rights_that_its_code_uses(kind: Kind, account: str) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": NAMESPACE},
    }
    user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    asked = json.loads(
        kind.kubectl(
            "create",
            "--validate=false",
            "--filename",
            "-",
            "--output",
            "json",
            user,
            stdin=json.dumps(review),
        )
    )
    rules = [rule for rule in asked["status"]["resourceRules"] if not set(rule["apiGroups"]) <= COMMON_GROUPS]
    assert {
        f"{verb} {what}" for rule in rules for verb in rule["verbs"] for what in rule["resources"]
    } == RIGHTS[account]


def test_the_simulated_gpus_are_allocatable(kind: Kind) -> None:
    nodes = kind.get("nodes", "--selector", "shoestring.dev/pool=gpu-spot")["items"]
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == ["2"]
