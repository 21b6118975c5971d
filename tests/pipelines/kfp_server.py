"""A test server for uploads: a process that answers the v2beta1 calls of KFP's client and logs each one.

It refuses the same requests as KFP 2.17's API server
(backend/src/apiserver/{main.go,server/pipeline_server.go,server/pipeline_upload_server.go}):
- an unknown pipeline or version;
- a name that is in use;
- a file that is not a pipeline;
- a missing or unknown token;
- a namespace on a single-user server, and no namespace on a multi-user server.
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

OWN_KEYS = {"times_read", "states"}
"""Keys of a run that only this server uses."""


class Refusal(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class KfpRequest:
    """One request. `body`: JSON, or the documents of an uploaded file."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    body: Any


@dataclass
class Kfp:
    """The objects on the server, by kind, in the order of their creation.

    `states`: those that a run has, one for each time that it is read; the last one stays. A number is the
    HTTP status of a read that fails.
    """

    multi_user: bool
    states: list[str] = field(default_factory=lambda: ["SUCCEEDED"])
    resources: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, kind: str, resource: dict[str, Any]) -> dict[str, Any]:
        others = self.resources.setdefault(kind, [])
        created = {f"{kind}_id": f"{kind}-{len(others) + 1}", **resource}
        others.append(created)
        return created

    def get(self, kind: str, wanted: str) -> dict[str, Any]:
        found = [resource for resource in self.resources.get(kind, []) if resource[f"{kind}_id"] == wanted]
        if not found:
            raise Refusal(404, f"{kind} {wanted} not found")
        return found[0]

    def named(self, kind: str, request: KfpRequest, **also: str | None) -> list[dict[str, Any]]:
        """Return objects newest first, filtered by the query."""
        predicates = json.loads(request.query.get("filter", "{}")).get("predicates", [])
        wanted = {predicate["key"]: predicate["stringValue"] for predicate in predicates} | also
        return [
            resource
            for resource in self.resources.get(kind, [])[::-1]
            if all(resource.get(key) == value for key, value in wanted.items())
        ]

    def space(self, namespace: str | None) -> str | None:
        if bool(namespace) != self.multi_user:
            raise Refusal(
                400,
                "Namespace is required."
                if self.multi_user
                else "In single-user mode, namespace must be empty.",
            )
        return namespace

    def create(self, request: KfpRequest) -> dict[str, Any]:
        name, space = request.body["display_name"], self.space(request.body.get("namespace"))
        if any(
            (resource["display_name"], resource["namespace"]) == (name, space)
            for resource in self.resources.get("pipeline", [])
        ):
            raise Refusal(409, "Failed to create a pipeline due to server error")
        return self.add("pipeline", {"display_name": name, "namespace": space})

    def upload_version(self, request: KfpRequest) -> dict[str, Any]:
        spec_of(request.body)
        pipeline_id = self.get("pipeline", request.query["pipelineid"])["pipeline_id"]
        resource = {"display_name": request.query["name"], "pipeline_id": pipeline_id}
        if any(resource.items() <= others.items() for others in self.resources.get("pipeline_version", [])):
            raise Refusal(409, "Failed to create a pipeline version")
        return self.add("pipeline_version", resource)

    def experiment(self, request: KfpRequest) -> dict[str, Any]:
        return self.add("experiment", request.body | {"namespace": self.space(request.body.get("namespace"))})

    def run(self, kind: str, request: KfpRequest) -> dict[str, Any]:
        reference = request.body["pipeline_version_reference"]
        self.get("pipeline", reference["pipeline_id"])
        self.get("pipeline_version", reference["pipeline_version_id"])
        self.get("experiment", request.body["experiment_id"])
        if kind == "recurring_run" and len(request.body["trigger"]["cron_schedule"]["cron"].split()) != 6:
            raise Refusal(400, "Schedule cron is not supported")
        return self.add(kind, request.body)

    def read_run(self, wanted: str) -> dict[str, Any]:
        found = self.get("run", wanted)
        number = found["times_read"] = found.get("times_read", -1) + 1
        states = found.get("states", self.states)
        state = states[min(number, len(states) - 1)]
        if state.isdecimal():
            raise Refusal(int(state), "upstream connect error")
        return {key: value for key, value in found.items() if key not in OWN_KEYS} | {"state": state}

    def listed(self, kind: str, request: KfpRequest) -> list[dict[str, Any]]:
        """Return the objects of one experiment, or of all."""
        experiment = request.query.get("experiment_id")
        return self.named(kind, request, **({"experiment_id": experiment} if experiment else {}))

    def terminate(self, wanted: str) -> dict[str, Any]:
        self.get("run", wanted)["states"] = ["CANCELED"]
        return {}

    def retry(self, wanted: str) -> dict[str, Any]:
        self.get("run", wanted)["states"] = ["RUNNING"]
        return {}

    def disable(self, wanted: str) -> dict[str, Any]:
        self.get("recurring_run", wanted)["status"] = "DISABLED"
        return {}

    def drop(self, kind: str, wanted: str) -> dict[str, Any]:
        self.resources[kind].remove(self.get(kind, wanted))
        return {}


def spec_of(documents: Any) -> dict[str, Any]:
    if not (
        isinstance(documents, list) and isinstance(documents[0], dict) and "pipelineInfo" in documents[0]
    ):
        raise Refusal(400, "Failed to read a pipeline spec file")
    return documents[0]


def answer(kfp: Kfp, request: KfpRequest) -> dict[str, Any]:
    """Return the response of the route that matches the request. Raises Refusal."""
    root = "/apis/v2beta1"
    routes: dict[str, Callable[..., dict[str, Any]]] = {
        f"POST {root}/pipelines": lambda: kfp.create(request),
        f"POST {root}/pipelines/upload_version": lambda: kfp.upload_version(request),
        f"GET {root}/pipelines": lambda: {
            "pipelines": kfp.named("pipeline", request, namespace=kfp.space(request.query.get("namespace")))
        },
        f"GET {root}/pipelines/([^/]+)/versions": lambda wanted: {
            "pipeline_versions": kfp.named(
                "pipeline_version", request, pipeline_id=kfp.get("pipeline", wanted)["pipeline_id"]
            )
        },
        f"GET {root}/experiments": lambda: {"experiments": kfp.named("experiment", request)},
        f"POST {root}/experiments": lambda: kfp.experiment(request),
        f"POST {root}/runs": lambda: kfp.run("run", request),
        f"GET {root}/runs": lambda: {"runs": kfp.listed("run", request)},
        f"GET {root}/runs/([^/]+)": lambda wanted: kfp.read_run(wanted),
        f"POST {root}/runs/([^/]+):terminate": lambda wanted: kfp.terminate(wanted),
        f"POST {root}/runs/([^/]+):retry": lambda wanted: kfp.retry(wanted),
        f"DELETE {root}/runs/([^/]+)": lambda wanted: kfp.drop("run", wanted),
        f"GET {root}/recurringruns": lambda: {"recurringRuns": kfp.listed("recurring_run", request)},
        f"POST {root}/recurringruns": lambda: kfp.run("recurring_run", request),
        f"POST {root}/recurringruns/([^/]+):disable": lambda wanted: kfp.disable(wanted),
        f"DELETE {root}/recurringruns/([^/]+)": lambda wanted: kfp.drop("recurring_run", wanted),
        f"DELETE {root}/experiments/([^/]+)": lambda wanted: kfp.drop("experiment", wanted),
        f"DELETE {root}/pipelines/[^/]+/versions/([^/]+)": lambda wanted: kfp.drop(
            "pipeline_version", wanted
        ),
        f"DELETE {root}/pipelines/([^/]+)": lambda wanted: kfp.drop("pipeline", wanted),
    }
    for pattern, make in routes.items():
        if found := re.fullmatch(pattern, f"{request.method} {request.path}"):
            return make(*found.groups())
    raise Refusal(404, "Not Found")


def body_of(kind: str, raw: bytes) -> Any:
    if kind.startswith("multipart/form-data"):
        message: Any = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
        parts = {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}
        if set(parts) != {"uploadfile"} or not str(parts["uploadfile"].get_filename()).endswith(".yaml"):
            raise Refusal(400, "Failed to read pipeline from file")
        return list(yaml.safe_load_all(parts["uploadfile"].get_payload(decode=True)))
    return json.loads(raw) if raw else None


class Handler(BaseHTTPRequestHandler):
    options: argparse.Namespace
    kfp: Kfp

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        try:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            body = body_of(self.headers.get("Content-Type", ""), raw)
            request = KfpRequest(self.command, url.path, query, self.headers.get("authorization", ""), body)
            with self.options.requests.open("a") as out:
                print(json.dumps(vars(request)), file=out)
            content = self.allowed(request)
            # Like the real server, leave out empty lists.
            self.reply(
                200,
                {key: value for key, value in content.items() if value != []}
                if isinstance(content, dict)
                else content,
            )
        except Refusal as refusal:
            self.reply(refusal.status, {"code": 13, "message": str(refusal)})

    do_POST = do_DELETE = do_GET

    def allowed(self, request: KfpRequest) -> dict[str, Any] | str:
        if self.options.page:
            return "<html>Sign in</html>"
        if self.options.token and request.token != f"Bearer {self.options.token}":
            raise Refusal(401, "Request header error: there is no user identity header.")
        if request.path == f"/apis/{self.options.api}/healthz":
            health = {"commit_sha": "0", "tag_name": self.options.tag, "multi_user": self.options.multi_user}
            return health | ({"pipeline_store": "database"} if self.options.api == "v2beta1" else {})
        if self.options.deny and request.method == "POST":
            raise Refusal(403, "User 'ann' is not authorized with reason: no role")
        return answer(self.kfp, request)

    def reply(self, status: int, content: dict[str, Any] | str) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if isinstance(content, str) else "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""


def main() -> None:
    """Print the port, then serve until killed. Each request becomes a line of JSON in the file of the first
    argument.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("requests", type=Path)
    parser.add_argument("--tag", default="2.17.0")
    parser.add_argument("--api", default="v2beta1")
    parser.add_argument("--token", default="")
    parser.add_argument("--certificate", default="")
    parser.add_argument("--states", default="SUCCEEDED", help="of a run, as it is read, like RUNNING,FAILED")
    for switch in ("--multi-user", "--deny", "--page"):
        parser.add_argument(switch, action="store_true")
    options = parser.parse_args()
    Handler.options, Handler.kfp = options, Kfp(options.multi_user, options.states.split(","))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if options.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
