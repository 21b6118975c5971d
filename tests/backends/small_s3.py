"""A clock that does not wait, and a small HTTP server that stores objects like S3, with faults but without
signatures.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shoestring.backends.local import WallClock
from shoestring.backends.s3.location import S3Location

LARGE_BYTES = 50_000_000


@dataclass
class SmallS3:
    """A small S3 server with its objects, its log of requests, and the faults that it injects.

    `conditions`: how it treats If-None-Match: "kept" (as S3 does), "ignored", or "looked at" (it checks first
    and writes later).

    `faults`: a list of "VERB fault", in the order of the requests that they hit. The faults: "lost" (done,
    but no response), "late" (done, but the response is an error), "dropped" (neither done nor answered),
    "silent" (neither done nor answered, with the connection open), "cut" (half of the response), or an HTTP
    status.
    """

    conditions: str = "kept"
    faults: list[str] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def location(self) -> S3Location:
        return S3Location(endpoint=f"127.0.0.1:{self.port}", bucket="shoestring", secure=False)

    def write(self, key: str, data: bytes, only_new: bool) -> int:
        with self.lock:
            exists = key in self.objects
            if self.conditions == "kept" and only_new and exists:
                return 412
            if self.conditions != "looked at":
                self.objects[key] = data
                return 200
        if only_new and exists:
            return 412
        time.sleep(0.2)
        self.objects[key] = data
        return 200


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status: int, body: bytes = b"", sent: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:sent])

    def serve(self) -> None:
        small: SmallS3 = self.server.small  # type: ignore[attr-defined]
        key = unquote(urlsplit(self.path).path).removeprefix("/shoestring/")
        small.requests.append(f"{self.command} {key}")
        left = int(self.headers.get("Content-Length", 0))
        data = self.rfile.read(left) if left < LARGE_BYTES else self.discard(left)
        is_next = small.faults and small.faults[0].startswith(self.command)
        fault = small.faults.pop(0).split()[1] if is_next else ""
        if fault == "silent":
            small.over.wait()
        if fault in ("dropped", "silent"):
            self.close_connection = True
        elif fault.isdecimal():
            self.answer(
                int(fault),
                (
                    f"<Error><Code>Some{self.command.title()}</Code>"
                    f"<Message>of &quot;{fault}&quot;</Message></Error>"
                ).encode(),
            )
        elif self.command == "PUT":
            status = small.write(key, data, self.headers.get("If-None-Match") == "*")
            self.close_connection = fault == "lost"
            if fault == "late":
                self.answer(500, b"<Error><Code>InternalError</Code></Error>")
            elif fault != "lost":
                self.answer(
                    status, b"" if status == 200 else b"<Error><Code>PreconditionFailed</Code></Error>"
                )
        elif key in small.objects:
            body = small.objects[key]
            self.close_connection = fault == "cut"
            self.answer(200, body, len(body) // 2 if fault == "cut" else None)
        else:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def discard(self, left: int) -> bytes:
        while left:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        return b"a large object"

    def log_message(self, format: str, *args: object) -> None:
        pass

    do_GET = do_PUT = do_HEAD = serve


class QuickClock(WallClock):
    """A clock whose sleeps return at once and advance it."""

    def __init__(self) -> None:
        self.slept_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.slept_s

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.slept_s)

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.meanwhile()


@contextmanager
def small_s3(conditions: str = "kept", certificate: Path | None = None) -> Iterator[SmallS3]:
    small = SmallS3(conditions)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.small = small  # type: ignore[attr-defined]
        small.port = server.server_port
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield small
        small.over.set()
        server.shutdown()
