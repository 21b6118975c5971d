"""Stands in for `kubectl port-forward`: relays a port of this machine to $RELAY_TO, and logs its arguments.

Where $RELAY_BREAKS is set, the first one ends within an answer, as kubectl does when the pod goes away.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path


def copy(source: socket.socket, target: socket.socket, breaks: bool) -> None:
    try:
        while data := source.recv(1 << 16):
            if breaks:
                os._exit(1)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def main() -> None:
    with Path(os.environ["RELAY_LOG"]).open("a") as log:
        breaks = "RELAY_BREAKS" in os.environ and log.tell() == 0
        print(*sys.argv[1:], file=log)
    if sys.argv[-1].endswith(":404"):
        sys.exit("error: Service s3 does not have a service port 404")
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
