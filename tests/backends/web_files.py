"""A web server with files in memory, that serves ranges, and the faults that it injects."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class WebFiles:
    """The files of a server by path, its log of requests, and how it misbehaves.

    `status`: sent for every request with this body, if it is not 0. `redirects`: path -> address. `cut`: how
    many GET answers end half way. `ranges`: False: whole files only. `headers`: added to every answer.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 0
    body: bytes = b""
    cut: int = 0
    ranges: bool = True
    url: str = ""
    honours_conditions: bool = True


class WebHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status: int, body: bytes, headers: dict[str, str], sent: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:sent])

    def serve(self) -> None:
        web: WebFiles = self.server.web  # type: ignore[attr-defined]
        found, wanted = web.files.get(self.path), self.headers.get("Range", "")
        web.requests.append(f"{self.command} {self.path} {wanted}".strip())
        web.authorizations.append(self.headers.get("Authorization", ""))
        condition = self.headers.get("If-Match")
        if web.status:
            self.answer(web.status, web.body, web.headers)
        elif self.path in web.redirects:
            self.answer(302, b"", {"Location": web.redirects[self.path]})
        elif found is None:
            self.answer(404, b"", {})
        elif condition and web.honours_conditions and condition != web.headers.get("ETag"):
            self.answer(412, b"", {})
        elif wanted and not found and web.ranges:
            self.answer(416, b"", web.headers)
        elif (bounds := re.match(r"bytes=(\d+)-(\d+)", wanted)) and web.ranges:
            first, last = int(bounds[1]), min(int(bounds[2]), len(found) - 1)
            headers = web.headers | {"Content-Range": f"bytes {first}-{last}/{len(found)}"}
            part = found[first : last + 1]
            self.close_connection, web.cut = web.cut > 0, max(0, web.cut - 1)
            self.answer(206, part, headers, len(part) // 2 if self.close_connection else None)
        else:
            self.answer(200, found, web.headers)

    def log_message(self, format: str, *args: object) -> None:
        pass

    do_GET = do_HEAD = serve


@contextmanager
def web_files(certificate: Path | None = None) -> Iterator[WebFiles]:
    """Serve files; with a certificate (and its key, in one file) over https."""
    web = WebFiles()
    with ThreadingHTTPServer(("127.0.0.1", 0), WebHandler) as server:
        server.web = web  # type: ignore[attr-defined]
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        web.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield web
        server.shutdown()
