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
    """`objects`: by path. `denied`: parts of paths that this account may not read. `written`: requests that
    are not reads. `new_status`: the status that a created object gets.
    """

    port: int
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    new_status: dict[str, Any] = field(default_factory=dict)

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

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if any(part in path for part in self.denied):
            return 403, {"message": f"User ann may not read {path}"}
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
        if self.command == "POST":
            kube.create(path, json.loads(self.rfile.read(size)))
        status, content = (201, {}) if self.command == "POST" else kube.answer(path)
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
