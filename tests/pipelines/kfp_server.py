"""A server for uploads: a process that answers the v2beta1 calls that KFP's client makes, and logs each of
them.

It refuses what KFP 2.17's API server refuses
(backend/src/apiserver/{main.go,server/pipeline_upload_server.go}): an unknown pipeline or version, a name
that is taken, a file that is no pipeline, nobody's token, a namespace where there are none, and none where
there are.
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


class Refusal(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Asked:
    """One request. `body`: JSON, or the documents of an uploaded file."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    body: Any


@dataclass
class Kfp:
    """The objects on the server, by kind, in the order of their creation."""

    multi_user: bool
    things: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        there = self.things.setdefault(kind, [])
        made = {f"{kind}_id": f"{kind}-{len(there) + 1}", **thing}
        there.append(made)
        return made

    def get(self, kind: str, wanted: str) -> dict[str, Any]:
        found = [thing for thing in self.things.get(kind, []) if thing[f"{kind}_id"] == wanted]
        if not found:
            raise Refusal(404, f"{kind} {wanted} not found")
        return found[0]

    def named(self, kind: str, asked: Asked, **also: str | None) -> list[dict[str, Any]]:
        """Return objects newest first, filtered by the query."""
        predicates = json.loads(asked.query.get("filter", "{}")).get("predicates", [])
        wanted = {predicate["key"]: predicate["stringValue"] for predicate in predicates} | also
        return [
            thing
            for thing in self.things.get(kind, [])[::-1]
            if all(thing.get(key) == value for key, value in wanted.items())
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

    def upload(self, asked: Asked) -> dict[str, Any]:
        spec_of(asked.body)
        name, space = asked.query["name"], self.space(asked.query.get("namespace"))
        if any(
            (thing["display_name"], thing["namespace"]) == (name, space)
            for thing in self.things.get("pipeline", [])
        ):
            raise Refusal(409, "Failed to create a pipeline and a pipeline version")
        made = self.add("pipeline", {"display_name": name, "namespace": space})
        self.add("pipeline_version", {"display_name": name, "pipeline_id": made["pipeline_id"]})
        return made

    def upload_version(self, asked: Asked) -> dict[str, Any]:
        spec_of(asked.body)
        pipeline_id = self.get("pipeline", asked.query["pipelineid"])["pipeline_id"]
        thing = {"display_name": asked.query["name"], "pipeline_id": pipeline_id}
        if any(thing.items() <= there.items() for there in self.things["pipeline_version"]):
            raise Refusal(409, "Failed to create a pipeline version")
        return self.add("pipeline_version", thing)

    def experiment(self, asked: Asked) -> dict[str, Any]:
        return self.add("experiment", asked.body | {"namespace": self.space(asked.body.get("namespace"))})

    def run(self, kind: str, asked: Asked) -> dict[str, Any]:
        reference = asked.body["pipeline_version_reference"]
        self.get("pipeline", reference["pipeline_id"])
        self.get("pipeline_version", reference["pipeline_version_id"])
        self.get("experiment", asked.body["experiment_id"])
        if kind == "recurring_run" and len(asked.body["trigger"]["cron_schedule"]["cron"].split()) != 6:
            raise Refusal(400, "Schedule cron is not supported")
        return self.add(kind, asked.body)

    def drop(self, kind: str, wanted: str) -> dict[str, Any]:
        self.things[kind].remove(self.get(kind, wanted))
        return {}


def spec_of(documents: Any) -> dict[str, Any]:
    if not (
        isinstance(documents, list) and isinstance(documents[0], dict) and "pipelineInfo" in documents[0]
    ):
        raise Refusal(400, "Failed to read a pipeline spec file")
    return documents[0]


def answer(kfp: Kfp, asked: Asked) -> dict[str, Any]:
    """Raises Refusal."""
    root = "/apis/v2beta1"
    routes: dict[str, Callable[..., dict[str, Any]]] = {
        f"POST {root}/pipelines/upload": lambda: kfp.upload(asked),
        f"POST {root}/pipelines/upload_version": lambda: kfp.upload_version(asked),
        f"GET {root}/pipelines": lambda: {
            "pipelines": kfp.named("pipeline", asked, namespace=kfp.space(asked.query.get("namespace")))
        },
        f"GET {root}/pipelines/([^/]+)/versions": lambda wanted: {
            "pipeline_versions": kfp.named(
                "pipeline_version", asked, pipeline_id=kfp.get("pipeline", wanted)["pipeline_id"]
            )
        },
        f"GET {root}/experiments": lambda: {"experiments": kfp.named("experiment", asked)},
        f"POST {root}/experiments": lambda: kfp.experiment(asked),
        f"POST {root}/runs": lambda: kfp.run("run", asked),
        f"GET {root}/recurringruns": lambda: {
            "recurringRuns": kfp.named("recurring_run", asked, experiment_id=asked.query["experiment_id"])
        },
        f"POST {root}/recurringruns": lambda: kfp.run("recurring_run", asked),
        f"DELETE {root}/recurringruns/([^/]+)": lambda wanted: kfp.drop("recurring_run", wanted),
    }
    for pattern, make in routes.items():
        if found := re.fullmatch(pattern, f"{asked.method} {asked.path}"):
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
            asked = Asked(self.command, url.path, query, self.headers.get("authorization", ""), body)
            with self.options.requests.open("a") as out:
                print(json.dumps(vars(asked)), file=out)
            content = self.allowed(asked)
            # As the server does: what is empty is left out.
            self.reply(
                200,
                {key: value for key, value in content.items() if value != []}
                if isinstance(content, dict)
                else content,
            )
        except Refusal as refusal:
            self.reply(refusal.status, {"code": 13, "message": str(refusal)})

    do_POST = do_DELETE = do_GET

    def allowed(self, asked: Asked) -> dict[str, Any] | str:
        if self.options.page:
            return "<html>Sign in</html>"
        if self.options.token and asked.token != f"Bearer {self.options.token}":
            raise Refusal(401, "Request header error: there is no user identity header.")
        if asked.path == f"/apis/{self.options.api}/healthz":
            health = {"commit_sha": "0", "tag_name": self.options.tag, "multi_user": self.options.multi_user}
            return health | ({"pipeline_store": "database"} if self.options.api == "v2beta1" else {})
        if self.options.deny and asked.method == "POST":
            raise Refusal(403, "User 'ann' is not authorized with reason: no role")
        return answer(self.kfp, asked)

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
    for switch in ("--multi-user", "--deny", "--page"):
        parser.add_argument(switch, action="store_true")
    options = parser.parse_args()
    Handler.options, Handler.kfp = options, Kfp(options.multi_user)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if options.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
