"""A test server that answers reads of a Kubernetes API from a table of objects, and its kubeconfig."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

CONTEXT = "lab"


@dataclass
class KubeServer:
    """`objects`: by path. `denied`: parts of `VERB PATH` of requests that this account may not make, with
    VERB as in a rule of a role. `written`: requests that are not reads. `new_status`: the status that a
    created object gets. `signed_in`: whether the server accepts the account's credentials.
    """

    port: int
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    new_status: dict[str, Any] = field(default_factory=dict)
    signed_in: bool = True

    def kubeconfig(self, path: Path) -> Path:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "contexts": [{"name": CONTEXT, "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def put(self, namespace: str, kind: str, name: str, **content: Any) -> None:
        meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
        self.objects[f"/api/v1/namespaces/{namespace}/{kind}/{name}"] = {"metadata": meta, **content}

    def create(self, path: str, item: dict[str, Any]) -> None:
        self.objects[f"{path}/{item['metadata']['name']}"] = item | {"status": self.new_status}

    def refusal(self, method: str, path: str) -> str:
        """Return the API server's sentence on a request that is denied; empty: it is not."""
        namespace, *parts = path.partition("/namespaces/")[2].split("/")
        resource = [parts[0], *parts[2:]] if parts else [path.rpartition("/")[2]]
        verb = {"POST": "create", "PATCH": "patch"}.get(method) or ("get" if parts[1:] else "list")
        if not any(part in f"{verb} {path}" for part in self.denied):
            return ""
        named = f'{resource[0]} "{parts[1]}"' if parts[1:] else resource[0]
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        what = f'cannot {verb} resource "{"/".join(resource)}" in API group "{group}"'
        return f'{named} is forbidden: User "ann" {what} in the namespace "{namespace}"'

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if path in self.objects:
            return 200, self.objects[path]
        below = [each for key, each in self.objects.items() if key.rpartition("/")[0] == path]
        return (200, {"items": below, "metadata": {}}) if below else (404, {"message": "not found"})


class KubeHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kube: KubeServer = self.server.kube  # type: ignore[attr-defined]
        path, size = urlsplit(self.path).path, int(self.headers.get("Content-Length") or 0)
        if self.command != "GET":
            kube.written.append(f"{self.command} {self.path}")
        received = self.rfile.read(size)
        if not kube.signed_in:
            status, content = 401, {"message": "Unauthorized"}
        elif refusal := kube.refusal(self.command, path):
            status, content = 403, {"message": refusal}
        elif self.command == "POST":
            kube.create(path, json.loads(received))
            status, content = 201, {}
        else:
            status, content = kube.answer(path)
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@contextmanager
def kube_server() -> Iterator[KubeServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), KubeHandler)
    kube = KubeServer(server.server_port)
    server.kube = kube  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kube
    finally:
        server.shutdown()
        server.server_close()
