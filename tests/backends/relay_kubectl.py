"""Stands in for `kubectl port-forward`: relays a port of this machine to $RELAY_TO, and logs its arguments.

It ends after the number of connections in $RELAY_CONNECTIONS, as kubectl does when the pod goes away.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def main() -> None:
    with Path(os.environ["RELAY_LOG"]).open("a") as log:
        print(*sys.argv[1:], file=log)
    if sys.argv[-1].endswith(":404"):
        sys.exit("error: Service s3 does not have a service port 404")
    local, host_port = sys.argv[-1].partition(":")[0], os.environ["RELAY_TO"].split(":")
    server = socket.create_server(("127.0.0.1", int(local or 0)))
    print(f"Forwarding from 127.0.0.1:{server.getsockname()[1]} -> 8333", flush=True)
    for _ in range(int(os.environ.get("RELAY_CONNECTIONS", "1000000"))):
        here, _ = server.accept()
        there = socket.create_connection((host_port[0], int(host_port[1])))
        pairs = ((here, there), (there, here))
        threads = [threading.Thread(target=copy, args=pair, daemon=True) for pair in pairs]
        for thread in threads:
            thread.start()
    server.close()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
