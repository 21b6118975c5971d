"""Send a compiled pipeline to a Kubeflow Pipelines server, with KFP's own client, and have it run there.

KFP's client has errors of its own, which are renamed here: kfp is not known in shoestring/, where others are.
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

# A task's user (`securityContext`) is the newest thing in a compiled pipeline: before 2.16 the server takes it for an unknown field
# and fails (kubeflow/pipelines#12832, kubeflow/kale#687). Node affinity from a router's output came with 2.14.
OLDEST = (2, 16)
ANSWERS_WITHIN_S = 20
CA_VARIABLE = "SSL_CERT_FILE"


@dataclass(frozen=True)
class Server:
    """Where to, and as whom. `token` and `namespace` empty: none; `token_variable`: where the token came from."""

    host: str
    namespace: str = ""
    token: str = ""
    token_variable: str = ""


@dataclass(frozen=True)
class Uploaded:
    """What is on the server now."""

    pipeline: str
    pipeline_id: str
    version: str
    version_id: str
    is_new: bool


def connect(server: Server) -> Client:
    """A client of a server that answered, is a KFP of a fit age, and has namespaces if and only if one is named.

    Raises:
        UsageError: --host is no KFP, or --namespace does not fit it.
        ClusterError: it cannot be reached, does not let us in, or is too old.
    """
    if not re.match(r"https?://[^/]", server.host):
        raise UsageError(
            f"--host {server.host!r}: begin it with http:// or https://, as in http://localhost:8080"
        )
    with said_plainly(server):
        health = ask_health(server)
        tag = str(health.get("tag_name", ""))
        if (found := re.match(r"v?(\d+)\.(\d+)", tag)) and (int(found[1]), int(found[2])) < OLDEST:
            raise ClusterError(f"{server.host} is Kubeflow Pipelines {tag}: {needed()}")
        if health.get("multi_user") and not server.namespace:
            raise UsageError(
                f"{server.host} keeps every user's pipelines in a namespace: name yours with --namespace"
            )
        if server.namespace and not health.get("multi_user"):
            raise UsageError(f"{server.host} has no namespaces for its users: leave --namespace out")
        return Client(
            host=server.host,
            namespace=server.namespace,
            existing_token=server.token or None,
            ssl_ca_cert=os.environ.get(CA_VARIABLE),
        )


def needed() -> str:
    return f"{'.'.join(map(str, OLDEST))} or newer is needed, where a pipeline can say as which user its pods run"


def ask_health(server: Server) -> dict[str, Any]:
    """What a KFP server says of itself: its version, and whether users have namespaces.

    Asked before KFP's client asks, which would try for 25 s.
    """
    settings = kfp_server_api.Configuration(host=server.host.rstrip("/"))
    settings.ssl_ca_cert = os.environ.get(CA_VARIABLE)
    settings.retries = urllib3.Retry(connect=0, read=0, other=0, redirect=3)
    if server.token:
        settings.api_key, settings.api_key_prefix = (
            {"authorization": server.token},
            {"authorization": "Bearer"},
        )
    with kfp_server_api.ApiClient(settings) as client:

        def get(path: str) -> Any:
            return client.call_api(
                path,
                "GET",
                response_type="object",
                auth_settings=["Bearer"],
                _return_http_data_only=True,
                _request_timeout=ANSWERS_WITHIN_S,
            )

        try:
            answer = get("/apis/v2beta1/healthz")
        except kfp_server_api.ApiException as error:
            if error.status != 404:
                raise
            with contextlib.suppress(kfp_server_api.ApiException):
                if isinstance(get("/apis/v1beta1/healthz"), dict):
                    raise ClusterError(
                        f"{server.host} is a Kubeflow Pipelines of version 1: {needed()}"
                    ) from None
            answer = None
    if not isinstance(answer, dict) or "multi_user" not in answer:
        raise UsageError(
            f"{server.host} answers, but not as a Kubeflow Pipelines server: name the address of its API, "
            "which behind a login is not that of the page that you see"
        )
    return answer


def upload(client: Client, server: Server, compiled: Path, name: str) -> Uploaded:
    """Make the pipeline, or a new version of it, unless a version of the very same content is there. Raises ClusterError.

    The version that a pipeline is made with has the pipeline's name, so that its content cannot be told: it may be sent once more.
    """
    digest = hashlib.sha256(compiled.read_bytes()).hexdigest()[:12]
    version_name = f"{version('shoestring')}-{digest}"
    with said_plainly(server):
        found = client.list_pipelines(filter=named(name), namespace=server.namespace or None).pipelines
        if not found:
            pipeline = client.upload_pipeline(str(compiled), name, namespace=server.namespace or None)
            first = client.list_pipeline_versions(
                pipeline.pipeline_id, page_size=1, sort_by="created_at desc"
            ).pipeline_versions[0]
            return Uploaded(name, pipeline.pipeline_id, first.display_name, first.pipeline_version_id, True)
        pipeline_id = found[0].pipeline_id
        there = client.list_pipeline_versions(pipeline_id, filter=named(version_name)).pipeline_versions
        made = there[0] if there else client.upload_pipeline_version(str(compiled), version_name, pipeline_id)
        return Uploaded(name, pipeline_id, version_name, made.pipeline_version_id, not there)


def start(client: Client, server: Server, uploaded: Uploaded, arguments: dict[str, Any]) -> str:
    """Run it now; the run's id. Raises ClusterError."""
    with said_plainly(server):
        experiment = client.create_experiment(uploaded.pipeline, namespace=server.namespace or None)
        run = client.run_pipeline(
            experiment.experiment_id,
            f"{uploaded.pipeline} {uploaded.version}",
            params=arguments,
            pipeline_id=uploaded.pipeline_id,
            version_id=uploaded.version_id,
        )
        return str(run.run_id)


def schedule(client: Client, server: Server, uploaded: Uploaded, arguments: dict[str, Any], cron: str) -> str:
    """Run it again and again; the schedule's id. It takes the place of the pipeline's schedule, if there is one: two would spend twice.

    `cron` begins with seconds, as KFP's do. Each run has an account of its own: its id is the engine's, as no `run_id` is among its
    arguments. Raises ClusterError.
    """
    with said_plainly(server):
        experiment = client.create_experiment(uploaded.pipeline, namespace=server.namespace or None)
        before = (
            client.list_recurring_runs(
                experiment_id=experiment.experiment_id, filter=named(uploaded.pipeline)
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


def named(name: str) -> str:
    """A filter of a list, in KFP's JSON."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})


@contextlib.contextmanager
def said_plainly(server: Server) -> Iterator[None]:
    """Keep the client's prints and warnings off the terminal, and turn its errors into sentences."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except kfp_server_api.ApiException as error:
        raise refusal(server, error) from None
    except urllib3.exceptions.HTTPError as error:
        raise ClusterError(f"{server.host} cannot be reached: {network(error)}") from None


def refusal(server: Server, error: kfp_server_api.ApiException) -> ShoestringError:
    said = " ".join(str(message(error.body) or error.reason).split())
    if error.status == 401:
        how = (
            f"the token in ${server.token_variable} is not, or no longer, good"
            if server.token
            else "name a token with --token-env"
        )
        return ClusterError(f"{server.host} asks who you are: {how} ({said})")
    if error.status == 403:
        where = f" in the namespace {server.namespace}" if server.namespace else ""
        return ClusterError(
            f"{server.host} does not let you do that{where}: ask whoever keeps it for the right ({said})"
        )
    return ClusterError(f"{server.host} would not (HTTP {error.status}): {said}")


def message(body: Any) -> str:
    """What KFP says is wrong: in `message` or `error_message` of a JSON body, or the body itself."""
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


def network(error: urllib3.exceptions.HTTPError) -> str:
    reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
    match reason:
        case urllib3.exceptions.NameResolutionError():
            return "no such host; is its name right?"
        case urllib3.exceptions.NewConnectionError():
            return "nothing listens there; is the server up, or its port forwarded?"
        case urllib3.exceptions.TimeoutError():
            return f"no answer within {ANSWERS_WITHIN_S} s"
        case urllib3.exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return (
                f"its certificate is not trusted ({reason}): name the file of its authority in ${CA_VARIABLE}"
            )
        case _:
            return " ".join(str(reason).split())
