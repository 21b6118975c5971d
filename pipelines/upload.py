"""Upload a compiled pipeline to a Kubeflow Pipelines server, run it there, and wait for its end."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kfp_server_api
from kfp import Client

from shoestring.pipelines.kfp_client import KfpServer, ServerAway, api_client, plain_errors

FIRST_POLL_S, POLL_INTERVAL_S, POLL_GROWTH = 0.25, 2.0, 1.5
"""Seconds between the first two reads of a run's state, the most between two, and the growth from one to the
next.
"""
MAX_AWAY_S = 600.0
"""For how long a server may be away while a run's end is awaited."""
FINISHED_STATES = ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED")


@dataclass(frozen=True)
class UploadedPipeline:
    """A pipeline and a version of it on a server. `is_new`: this upload created the version."""

    pipeline: str
    pipeline_id: str
    version: str
    version_id: str
    is_new: bool


def upload(client: Client, server: KfpServer, compiled: Path, name: str) -> UploadedPipeline:
    """Create the pipeline if it is new, and a version of it unless one of the same content exists.

    A version is named after its content. The first one is therefore sent as a version too: KFP names a
    version that is sent with its pipeline after the pipeline. Raises ClusterError.
    """
    digest = hashlib.sha256(compiled.read_bytes()).hexdigest()[:12]
    version_name = f"{version('shoestring')}-{digest}"
    with plain_errors(server):
        pipeline_id = find_or_create_pipeline(client, server, name)
        existing = client.list_pipeline_versions(
            pipeline_id, filter=name_filter(version_name)
        ).pipeline_versions
        made = (
            existing[0]
            if existing
            else client.upload_pipeline_version(str(compiled), version_name, pipeline_id)
        )
    return UploadedPipeline(name, pipeline_id, version_name, made.pipeline_version_id, not existing)


def find_or_create_pipeline(client: Client, server: KfpServer, name: str) -> str:
    """Return the id of the pipeline of this name. A new one has no version yet."""
    found = client.list_pipelines(filter=name_filter(name), namespace=server.namespace or None).pipelines
    if found:
        return str(found[0].pipeline_id)
    # KFP's client has no function for a pipeline without a version.
    with api_client(server) as api:
        new = kfp_server_api.V2beta1Pipeline(display_name=name, namespace=server.namespace or None)
        return str(kfp_server_api.PipelineServiceApi(api).pipeline_service_create_pipeline(new).pipeline_id)


def start(client: Client, server: KfpServer, uploaded: UploadedPipeline, arguments: dict[str, Any]) -> str:
    """Run the pipeline once; return the run's id. Raises ClusterError."""
    with plain_errors(server):
        experiment = client.create_experiment(uploaded.pipeline, namespace=server.namespace or None)
        run = client.run_pipeline(
            experiment.experiment_id,
            f"{uploaded.pipeline} {uploaded.version}",
            params=arguments,
            pipeline_id=uploaded.pipeline_id,
            version_id=uploaded.version_id,
        )
        return str(run.run_id)


def wait(client: Client, server: KfpServer, run_id: str, max_away_s: float = MAX_AWAY_S) -> str:
    """Wait until a run is over, and return its final state, in Kubeflow's words.

    Raises:
        ServerAway: the server was away for `max_away_s`, without one answer.
        ClusterError: it refuses the request.
    """
    answered_s, interval_s = time.monotonic(), FIRST_POLL_S
    while True:
        try:
            with plain_errors(server):
                state = str(client.get_run(run_id).state)
            answered_s = time.monotonic()
            if state in FINISHED_STATES:
                return state
        except ServerAway:
            if time.monotonic() - answered_s >= max_away_s:
                raise
        time.sleep(interval_s)
        interval_s = min(POLL_GROWTH * interval_s, POLL_INTERVAL_S)


def schedule(
    client: Client, server: KfpServer, uploaded: UploadedPipeline, arguments: dict[str, Any], cron: str
) -> str:
    """Run the pipeline on a schedule; return the schedule's id.

    It replaces an earlier schedule, since two would spend twice.

    `cron` has KFP's six fields, of which the first is seconds. Each run has its own account: its id is the
    engine's, because `arguments` has no `run_id`. Raises ClusterError.
    """
    with plain_errors(server):
        experiment = client.create_experiment(uploaded.pipeline, namespace=server.namespace or None)
        before = (
            client.list_recurring_runs(
                experiment_id=experiment.experiment_id, filter=name_filter(uploaded.pipeline)
            ).recurring_runs
            or []
        )
        made = client.create_recurring_run(
            experiment.experiment_id,
            uploaded.pipeline,
            cron_expression=cron,
            no_catchup=True,
            params=arguments,
            pipeline_id=uploaded.pipeline_id,
            version_id=uploaded.version_id,
        )
        for old in before:
            client.delete_recurring_run(old.recurring_run_id)
        return str(made.recurring_run_id)


def name_filter(name: str) -> str:
    """Return a filter of a list by display name, in KFP's JSON."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
