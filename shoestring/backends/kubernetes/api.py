"""A client of a cluster's API, over one connection that is kept open.

The kubernetes package takes 1 s to import and builds an object for every field of every pod. A stage's pod
finds its address and token in two well-known places and reads two kinds of object, so it uses urllib3
directly. The package only reads a user's kubeconfig.
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

from shoestring.backends.kubernetes.rights import Right, missing_right
from shoestring.core.errors import ClusterError, NotAllowed, UsageError

# https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_SIZE = 500
RETRY_STATUSES = (429, 500, 502, 503, 504)
RETRIES = urllib3.Retry(total=4, backoff_factor=0.2, status_forcelist=RETRY_STATUSES, raise_on_status=False)
TIMEOUT = urllib3.Timeout(connect=5.0, read=30.0)

Item = dict[str, Any]
"""An object of the API, as its JSON."""


class KubeApi:
    """The API of one cluster.

    `headers` is called before every request, since tokens are renewed while a process runs. `server_time` is
    the server's clock at its last response, to the second. `account` is who asks, in the words of an error
    message.
    """

    def __init__(
        self,
        host: str,
        http: urllib3.PoolManager,
        headers: Callable[[], dict[str, str]],
        account: str = "you",
        *,
        timeout: urllib3.Timeout = TIMEOUT,
        retries: urllib3.Retry = RETRIES,
    ) -> None:
        self._host, self._http, self._headers, self._account = host, http, headers, account
        self._timeout, self._retries = timeout, retries
        self.server_time: datetime | None = None

    def impatient(self, timeout_s: float) -> KubeApi:
        """Return a client of the same API that asks once, and waits `timeout_s` for the answer."""
        timeout, once = urllib3.Timeout(total=timeout_s), urllib3.Retry(total=0)
        return KubeApi(self._host, self._http, self._headers, self._account, timeout=timeout, retries=once)

    def get(self, path: str, right: Right) -> Item | None:
        """Return one object; None if it does not exist. Raises NotAllowed, ClusterError."""
        return self._request("GET", path, right)

    def create(self, path: str, item: Item, right: Right) -> Item | None:
        """Create one object and return it; None if the cluster has no such path.

        Raises NotAllowed, ClusterError.
        """
        return self._request("POST", path, right, body=item)

    def patch(self, path: str, change: Item, right: Right, *, uid: str, version: str = "") -> bool:
        """Change one object; return False if it is another one now, or went away.

        `version`: also if it changed since it was read. Raises NotAllowed, ClusterError.
        """
        same = {"uid": uid} | ({"resourceVersion": version} if version else {})
        body = change | {"metadata": change.get("metadata", {}) | same}
        return self._request("PATCH", path, right, body=body, missing=(404, 409)) is not None

    def list(self, path: str, right: Right, **query: str) -> Iterator[Item]:
        """Yield all objects under a path, which are read in pages. Raises NotAllowed, ClusterError."""
        # Without resourceVersion=0: a list from the server's cache ignores `limit`, and 5,000 pods are 40 MB
        # of JSON at once, 300 MB when parsed.
        token: str | None = ""
        while token is not None:
            page = query | {"limit": str(PAGE_SIZE)} | ({"continue": token} if token else {})
            found = self._request("GET", path, right, page) or {}
            yield from found.get("items") or []
            token = found.get("metadata", {}).get("continue") or None

    def _request(
        self,
        verb: str,
        path: str,
        right: Right,
        query: dict[str, str] | None = None,
        body: Item | None = None,
        missing: tuple[int, ...] = (404,),
    ) -> Item | None:
        """Return the response's JSON; None if its status is one of `missing`."""
        url = f"{self._host}{path}?{urlencode(query)}" if query else self._host + path
        try:
            content_type = {"content-type": "application/merge-patch+json"} if verb == "PATCH" else {}
            response = self._http.request(
                verb,
                url,
                json=body,
                headers=self._headers() | content_type,
                retries=self._retries,
                timeout=self._timeout,
            )
            content: Item = from_json(response.data) if response.data else {}
            self.server_time = response_time(response.headers)
        except HTTPError as error:
            raise ClusterError(f"the cluster at {self._host} does not answer: {error}") from error
        except ValueError:
            raise ClusterError(
                f"{self._host} is not a Kubernetes API: it answered with status {response.status} and no JSON"
            ) from None
        message = str(content.get("message") or response.reason)
        if response.status == 401:
            raise NotAllowed(
                f"the cluster at {self._host} does not accept the credentials ({message}): renew them"
            )
        if response.status == 403:
            raise missing_right(right, message, self._account)
        if response.status in missing:
            return None
        if response.status not in (200, 201, 202):
            raise ClusterError(f"the cluster at {self._host} answered {response.status} to {path}: {message}")
        return content


def response_time(headers: Mapping[str, str]) -> datetime | None:
    """Return the server's clock from the Date header; None if the header is missing or malformed."""
    try:
        return parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError):
        return None


def connect(context: str | None = None) -> KubeApi:
    """Connect to the cluster of a kubeconfig's context; without one, to the cluster that this pod runs in.

    Outside a pod, the default is the kubeconfig's current context.

    Raises:
        ClusterError: there is neither a service account nor a kubeconfig.
        UsageError: the kubeconfig lacks the context.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if context is not None or not host:
        return _from_kubeconfig(context)
    token, authority = SERVICE_ACCOUNT_DIR / "token", SERVICE_ACCOUNT_DIR / "ca.crt"
    if not token.is_file():
        raise ClusterError(
            f"this pod has no {token}: give it a service account, and do not set "
            "automountServiceAccountToken to false"
        )
    address = f"[{host}]" if ":" in host else host
    http = urllib3.PoolManager(ca_certs=str(authority), cert_reqs="CERT_REQUIRED")
    return KubeApi(
        f"https://{address}:{port}",
        http,
        lambda: {"authorization": f"Bearer {token.read_text().strip()}"},
        "this service account",
    )


def _from_kubeconfig(context: str | None) -> KubeApi:
    # Imported here: the import takes 1 s, which pods do not need to pay for.
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
        # The kubeconfig turned verification off; without this, urllib3 would warn at every request.
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

    return KubeApi(found.host, http, headers)
