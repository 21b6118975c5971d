"""A forward proxy in a process of its own: `python proxy_process.py LOG` prints its port, and writes a line
for each request, with its Authorization header."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Proxy:
    url: str
    log: Path

    @property
    def requests(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@contextmanager
def proxy(folder: Path) -> Iterator[Proxy]:
    log = folder / "proxy.log"
    process = subprocess.Popen([sys.executable, __file__, str(log)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield Proxy(f"http://127.0.0.1:{int(process.stdout.readline())}", log)
    finally:
        process.kill()
        process.wait()


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def record(self) -> None:
        with Path(sys.argv[1]).open("a") as log:
            log.write(f"{self.command} {self.path} {self.headers.get('Authorization', '')}".strip() + "\n")

    def do_CONNECT(self) -> None:
        self.record()
        self.close_connection = True
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=copy, args=(server, self.connection), daemon=True)
            back.start()
            copy(self.connection, server)
            back.join(10)

    def do_GET(self) -> None:
        self.record()
        address = urlsplit(self.path)
        target = address._replace(scheme="", netloc="").geturl()
        server = HTTPConnection(address.netloc)
        server.request(self.command, target, headers=dict(self.headers))
        answer = server.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


def copy(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), ProxyHandler) as listening:
        print(listening.server_port, flush=True)
        listening.serve_forever()
