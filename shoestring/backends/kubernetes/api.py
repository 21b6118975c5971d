"""Reading a cluster's API, over one kept connection; its errors renamed.

The kubernetes package takes a second to import and builds an object for every field of every pod. A pod of ours has its address and
its token in two well-known places and wants two kinds of object, so it asks by itself; a person's kubeconfig is read by the package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from pydantic_core import from_json
from urllib3.exceptions import HTTPError

from shoestring.core.errors import ClusterError, NotAllowed, UsageError

# https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500
AGAIN = (429, 500, 502, 503, 504)
RETRIES = urllib3.Retry(total=4, backoff_factor=0.2, status_forcelist=AGAIN, raise_on_status=False)
TIMEOUT = urllib3.Timeout(connect=5.0, read=30.0)

Item = dict[str, Any]


class Kube:
    """One cluster's API. `headers` is asked before every request: tokens are renewed under a running process.

    `answered_at`: what its clock said with the last answer, to the second.
    """

    def __init__(self, host: str, http: urllib3.PoolManager, headers: Callable[[], dict[str, str]]) -> None:
        self._host, self._http, self._headers = host, http, headers
        self.answered_at: datetime | None = None

    def get(self, path: str, right: str) -> Item | None:
        """One object; None when there is none. `right`: what the caller needs for it, as a message calls it. Raises ClusterError."""
        return self._ask("GET", path, right)

    def create(self, path: str, item: Item, right: str) -> Item | None:
        """Make one object; returns it as it is then, None where the cluster knows no such path. Raises ClusterError."""
        return self._ask("POST", path, right, body=item)

    def set_status(self, path: str, status: Item, right: str, *, uid: str, version: str) -> bool:
        """Change what is said of one object, if it is still as it was read; False when it is not. Raises ClusterError."""
        change = {"metadata": {"uid": uid, "resourceVersion": version}, "status": status}
        return self._ask("PATCH", f"{path}/status", right, body=change, missing=(404, 409)) is not None

    def list(self, path: str, right: str, **query: str) -> Iterator[Item]:
        """All objects under a path, a page at a time. Raises ClusterError."""
        # Asked for what its cache holds (resourceVersion=0), the server ignores the limit: 5,000 pods are 40 MB at once, and 300 as values.
        token: str | None = ""
        while token is not None:
            found = (
                self._ask(
                    "GET", path, right, query | {"limit": str(PAGE)} | ({"continue": token} if token else {})
                )
                or {}
            )
            yield from found.get("items") or []
            token = found.get("metadata", {}).get("continue") or None

    def _ask(
        self,
        verb: str,
        path: str,
        right: str,
        query: dict[str, str] | None = None,
        body: Item | None = None,
        missing: tuple[int, ...] = (404,),
    ) -> Item | None:
        url = f"{self._host}{path}?{urlencode(query)}" if query else self._host + path
        try:
            kind = {"content-type": "application/merge-patch+json"} if verb == "PATCH" else {}
            answer = self._http.request(
                verb, url, json=body, headers=self._headers() | kind, retries=RETRIES, timeout=TIMEOUT
            )
            said: Item = from_json(answer.data) if answer.data else {}
            self.answered_at = moment_of(answer.headers)
        except HTTPError as error:
            raise ClusterError(f"the cluster at {self._host} does not answer: {error}") from error
        except ValueError:
            raise ClusterError(
                f"what answers at {self._host} is no Kubernetes API: status {answer.status}, not JSON"
            ) from None
        if answer.status in (401, 403):
            raise NotAllowed(right, str(said.get("message") or answer.reason))
        if answer.status in missing:
            return None
        if answer.status not in (200, 201, 202):
            raise ClusterError(
                f"the cluster at {self._host} answered {answer.status} to {path}: {said.get('message', answer.reason)}"
            )
        return said


def moment_of(headers: Mapping[str, str]) -> datetime | None:
    """When a server answered, by its own clock; None where it does not say."""
    try:
        return parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError):
        return None


def connect(context: str | None = None) -> Kube:
    """The cluster that this pod is in; elsewhere the one that a kubeconfig names.

    Raises:
        ClusterError, and UsageError for a context that the kubeconfig lacks.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if context is not None or not host:
        return _by_kubeconfig(context)
    token, authority = ACCOUNT / "token", ACCOUNT / "ca.crt"
    if not token.is_file():
        raise ClusterError(
            f"this pod has no {token}: give it a service account, and do not set automountServiceAccountToken to false"
        )
    address = f"[{host}]" if ":" in host else host
    http = urllib3.PoolManager(ca_certs=str(authority), cert_reqs="CERT_REQUIRED")
    return Kube(
        f"https://{address}:{port}", http, lambda: {"authorization": f"Bearer {token.read_text().strip()}"}
    )


def _by_kubeconfig(context: str | None) -> Kube:
    # Here, because it takes a second that no pod should pay for.
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config

    found = Configuration()
    try:
        load_kube_config(context=context, client_configuration=found)
    except (ConfigException, OSError) as error:
        where = f"($KUBECONFIG, else ~/.kube/config): {error}"
        if context is not None:
            raise UsageError(f"no kubeconfig with a context {context!r} {where}") from None
        raise ClusterError(f"not in a pod, and no kubeconfig with a current context {where}") from None
    if not found.verify_ssl:
        # The kubeconfig says so once; urllib3 would with every request.
        urllib3.disable_warnings()
    http = urllib3.PoolManager(
        ca_certs=found.ssl_ca_cert,
        cert_reqs="CERT_REQUIRED" if found.verify_ssl else "CERT_NONE",
        cert_file=found.cert_file,
        key_file=found.key_file,
        server_hostname=found.tls_server_name,
    )

    def headers() -> dict[str, str]:
        token = found.get_api_key_with_prefix("authorization")
        return {"authorization": token} if token else {}

    return Kube(found.host, http, headers)
