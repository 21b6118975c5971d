"""An HTTP proxy before a server, which lets each request wait and counts it. `store_latency.py` uses it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

HEADER = "X-Bench-Process"
"""The header in which a client names itself. No signature covers it."""
NO_BODY_STATUSES = (b"204", b"304")


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request: who made it, its verb (LIST for a listing), its key or prefix, and when it was answered."""

    process: str
    verb: str
    key: str
    began_s: float
    seconds: float
    sent_bytes: int


@dataclass
class DelayingProxy:
    """Forwards requests to `server` (HOST:PORT), each `delay_s` after it was received."""

    server: str
    bucket: str
    delay_s: float = 0.0
    port: int = 0
    requests: list[ProxiedRequest] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.server.partition(":")
        above, below = await asyncio.open_connection(host, int(port))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = headers(head)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                began_s, delay_s = time.monotonic(), self.delay_s
                await asyncio.sleep(delay_s)
                below.write(head + body)
                verb, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                await forward_answer(above, writer, verb)
                self.note(fields.get(HEADER.lower(), "?"), verb, target, began_s, len(body))
        for each in (below, writer):
            each.close()

    def note(self, process: str, verb: str, target: str, began_s: float, size_bytes: int) -> None:
        parts = urlsplit(target)
        key = unquote(parts.path).removeprefix(f"/{self.bucket}").removeprefix("/")
        if verb == "GET" and not key:
            verb, key = "LIST", parse_qs(parts.query).get("prefix", [""])[0]
        self.requests.append(
            ProxiedRequest(process, verb, key, began_s, time.monotonic() - began_s, size_bytes)
        )


def headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def forward_answer(above: asyncio.StreamReader, writer: asyncio.StreamWriter, verb: str) -> None:
    head = await above.readuntil(b"\r\n\r\n")
    writer.write(head)
    fields, status = headers(head), head.split(b" ", 2)[1]
    if status == b"100":
        await forward_answer(above, writer, verb)
        return
    if verb != "HEAD" and status not in NO_BODY_STATUSES:
        if "chunked" in fields.get("transfer-encoding", ""):
            while True:
                line = await above.readuntil(b"\r\n")
                writer.write(line + await above.readexactly(int(line, 16) + 2))
                if int(line, 16) == 0:
                    break
        else:
            left = int(fields.get("content-length", 0))
            while left:
                data = await above.read(min(left, 1 << 18))
                writer.write(data)
                left -= len(data)
    await writer.drain()


@contextmanager
def delaying_proxy(server: str, bucket: str) -> Iterator[DelayingProxy]:
    """Yield a proxy that serves in a thread of its own."""
    proxy, loop = DelayingProxy(server, bucket), asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20))
    proxy.port = listening.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
