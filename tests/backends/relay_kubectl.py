"""Stands in for `kubectl port-forward`: relays a port of this machine to $RELAY_TO, and logs its arguments.

It makes the requests of kubectl 1.34 to the API of $KUBECONFIG, and ends with kubectl's words if one is
denied.
Where $RELAY_BREAKS is set, the first one ends within an answer, as kubectl does when the pod goes away.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import yaml


def copy(source: socket.socket, target: socket.socket, breaks: bool) -> None:
    try:
        while data := source.recv(1 << 16):
            if breaks:
                os._exit(1)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def check_rights(namespace: str, service: str) -> None:
    kubeconfig = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    api = f"{kubeconfig['clusters'][0]['cluster']['server']}/api/v1/namespaces/{namespace}"
    for method, path in (
        ("GET", f"services/{service}"),
        ("GET", "pods"),
        ("GET", f"pods/{service}-0"),
        ("POST", f"pods/{service}-0/portforward"),
    ):
        request = urllib.request.Request(f"{api}/{path}", b'{"metadata": {"name": ""}}', method=method)
        try:
            urllib.request.urlopen(request).close()
        except HTTPError as error:
            if error.code == 403:
                by = (
                    "error: error upgrading connection"
                    if method == "POST"
                    else "Error from server (Forbidden)"
                )
                sys.exit(f"{by}: {json.load(error)['message']}")


def main() -> None:
    with Path(os.environ["RELAY_LOG"]).open("a") as log:
        breaks = "RELAY_BREAKS" in os.environ and log.tell() == 0
        print(*sys.argv[1:], file=log)
    if sys.argv[-1].endswith(":404"):
        sys.exit("error: Service s3 does not have a service port 404")
    check_rights(sys.argv[sys.argv.index("--namespace") + 1], sys.argv[-2].removeprefix("service/"))
    local, host_port = sys.argv[-1].partition(":")[0], os.environ["RELAY_TO"].split(":")
    server = socket.create_server(("127.0.0.1", int(local or 0)))
    print(f"Forwarding from 127.0.0.1:{server.getsockname()[1]} -> 8333", flush=True)
    while True:
        here, _ = server.accept()
        there = socket.create_connection((host_port[0], int(host_port[1])))
        for pair in ((here, there, False), (there, here, breaks)):
            threading.Thread(target=copy, args=pair, daemon=True).start()


if __name__ == "__main__":
    main()
