"""Upload a compiled pipeline to a Kubeflow Pipelines server with KFP's client, and run it there.

The errors of KFP's client are renamed here, because the rest of shoestring does not import kfp.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kfp_server_api
import urllib3
from kfp import Client

from shoestring.core.errors import ClusterError, ShoestringError, UsageError

# The newest feature that a compiled pipeline uses is a task's user (`securityContext`): servers before 2.16
# fail at it as an unknown field (kubeflow/pipelines#12832, kubeflow/kale#687). Node affinity from a router's
# output came with 2.14.
MIN_VERSION = (2, 16)
TIMEOUT_S = 20
CA_VARIABLE = "SSL_CERT_FILE"


@dataclass(frozen=True)
class KfpServer:
    """A server and the account on it.

    Empty: no token, no namespace. `token_variable`: the environment variable of the token.
    """

    host: str
    namespace: str = ""
    token: str = ""
    token_variable: str = ""


@dataclass(frozen=True)
class UploadedPipeline:
    """A pipeline and a version of it on a server. `is_new`: this upload created the version."""

    pipeline: str
    pipeline_id: str
    version: str
    version_id: str
    is_new: bool


def connect(server: KfpServer) -> Client:
    """Return a client of a server, after checks of its version and of whether it has namespaces.

    Raises:
        UsageError: --host is not a KFP server, or --namespace is missing or superfluous.
        ClusterError: the server cannot be reached, denies access or is too old.
    """
    if not re.match(r"https?://[^/]", server.host):
        raise UsageError(
            f"--host {server.host!r}: it must begin with http:// or https://, as in http://localhost:8080"
        )
    with plain_errors(server):
        health = get_health(server)
        tag = str(health.get("tag_name", ""))
        if (found := re.match(r"v?(\d+)\.(\d+)", tag)) and (int(found[1]), int(found[2])) < MIN_VERSION:
            raise ClusterError(f"{server.host} is Kubeflow Pipelines {tag}: {version_requirement()}")
        if health.get("multi_user") and not server.namespace:
            raise UsageError(f"{server.host} is multi-user: name your namespace with --namespace")
        if server.namespace and not health.get("multi_user"):
            raise UsageError(f"{server.host} is single-user: omit --namespace")
        return Client(
            host=server.host,
            namespace=server.namespace,
            existing_token=server.token or None,
            ssl_ca_cert=os.environ.get(CA_VARIABLE),
        )


def version_requirement() -> str:
    return f"{'.'.join(map(str, MIN_VERSION))} or newer is needed, in which a pipeline can set its pods' user"


def get_health(server: KfpServer) -> dict[str, Any]:
    """Return a KFP server's health: its version, and whether users have namespaces.

    This request comes before KFP's client makes its own, which would be retried for 25 s.
    """
    with api_client(server) as client:

        def get(path: str) -> Any:
            return client.call_api(
                path,
                "GET",
                response_type="object",
                auth_settings=["Bearer"],
                _return_http_data_only=True,
                _request_timeout=TIMEOUT_S,
            )

        try:
            answer = get("/apis/v2beta1/healthz")
        except kfp_server_api.ApiException as error:
            if error.status != 404:
                raise
            with contextlib.suppress(kfp_server_api.ApiException):
                if isinstance(get("/apis/v1beta1/healthz"), dict):
                    raise ClusterError(
                        f"{server.host} is Kubeflow Pipelines version 1: {version_requirement()}"
                    ) from None
            answer = None
    if not isinstance(answer, dict) or "multi_user" not in answer:
        raise UsageError(
            f"{server.host} answers, but is not a Kubeflow Pipelines server: give the address of its API, "
            "which differs from that of the web page behind a login"
        )
    return answer


def api_client(server: KfpServer) -> kfp_server_api.ApiClient:
    """Return a client of the server's API that does not retry."""
    settings = kfp_server_api.Configuration(host=server.host.rstrip("/"))
    settings.ssl_ca_cert = os.environ.get(CA_VARIABLE)
    settings.retries = urllib3.Retry(connect=0, read=0, other=0, redirect=3)
    if server.token:
        settings.api_key, settings.api_key_prefix = (
            {"authorization": server.token},
            {"authorization": "Bearer"},
        )
    return kfp_server_api.ApiClient(settings)


def upload(client: Client, server: KfpServer, compiled: Path, name: str) -> UploadedPipeline:
    """Create the pipeline, or a new version of it, unless a version of the same content exists.

    Raises ClusterError.

    A pipeline's first version has the pipeline's name, which does not show its content: the same content may
    be uploaded once more.
    """
    digest = hashlib.sha256(compiled.read_bytes()).hexdigest()[:12]
    version_name = f"{version('shoestring')}-{digest}"
    with plain_errors(server):
        found = client.list_pipelines(filter=name_filter(name), namespace=server.namespace or None).pipelines
        if not found:
            pipeline = client.upload_pipeline(str(compiled), name, namespace=server.namespace or None)
            first = client.list_pipeline_versions(
                pipeline.pipeline_id, page_size=1, sort_by="created_at desc"
            ).pipeline_versions[0]
            return UploadedPipeline(
                name, pipeline.pipeline_id, first.display_name, first.pipeline_version_id, True
            )
        pipeline_id = found[0].pipeline_id
        existing = client.list_pipeline_versions(
            pipeline_id, filter=name_filter(version_name)
        ).pipeline_versions
        made = (
            existing[0]
            if existing
            else client.upload_pipeline_version(str(compiled), version_name, pipeline_id)
        )
        return UploadedPipeline(name, pipeline_id, version_name, made.pipeline_version_id, not existing)


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


@contextlib.contextmanager
def plain_errors(server: KfpServer) -> Iterator[None]:
    """Keep the client's prints and warnings off the terminal, and rename its errors. Raises ClusterError."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except kfp_server_api.ApiException as error:
        raise server_error(server, error) from None
    except urllib3.exceptions.HTTPError as error:
        raise ClusterError(f"{server.host} cannot be reached: {network_problem(error)}") from None


def server_error(server: KfpServer, error: kfp_server_api.ApiException) -> ShoestringError:
    message = " ".join(str(error_message(error.body) or error.reason).split())
    if error.status == 401:
        fix = (
            f"the token in ${server.token_variable} is invalid or expired"
            if server.token
            else "name a token's environment variable with --token-env"
        )
        return ClusterError(f"{server.host} requires authentication: {fix} ({message})")
    if error.status == 403:
        where = f" in the namespace {server.namespace}" if server.namespace else ""
        return ClusterError(
            f"{server.host} denies permission{where}: ask its administrator for the right ({message})"
        )
    return ClusterError(f"{server.host} refused the request (HTTP {error.status}): {message}")


def error_message(body: Any) -> str:
    """Return KFP's message: `message` or `error_message` of a JSON body, else the first 300 characters of the
    body.
    """
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")
    try:
        found = json.loads(text)
    except ValueError:
        return text[:300]
    return (
        str(found.get("message") or found.get("error_message") or text)
        if isinstance(found, dict)
        else text[:300]
    )


def network_problem(error: urllib3.exceptions.HTTPError) -> str:
    """Return why a server cannot be reached, with the likely fix."""
    reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
    match reason:
        case urllib3.exceptions.NameResolutionError():
            return "no such host; check its name"
        case urllib3.exceptions.NewConnectionError():
            return "the connection was refused; check that the server runs and that its port is forwarded"
        case urllib3.exceptions.TimeoutError():
            return f"no answer within {TIMEOUT_S} s"
        case urllib3.exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return (
                f"its certificate is not trusted ({reason}): set ${CA_VARIABLE} to the file of its authority"
            )
        case _:
            return " ".join(str(reason).split())
