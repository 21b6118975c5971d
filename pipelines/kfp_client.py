"""Connect to a Kubeflow Pipelines server with KFP's client.

The errors of KFP's client are renamed here, because the rest of shoestring does not import kfp.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
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


class ServerAway(ClusterError):
    """The server did not answer, or answered that it cannot at the moment: a later request may succeed."""


@dataclass(frozen=True)
class KfpServer:
    """A server and the account on it.

    Empty: no token, no namespace. `token_variable`: the environment variable of the token.
    """

    host: str
    namespace: str = ""
    token: str = ""
    token_variable: str = ""


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
        raise ServerAway(f"{server.host} cannot be reached: {network_problem(error)}") from None


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
    kind = ServerAway if error.status == 429 or error.status >= 500 else ClusterError
    return kind(f"{server.host} refused the request (HTTP {error.status}): {message}")


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
