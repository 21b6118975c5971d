"""A service of a cluster, reached from this machine through `kubectl port-forward`."""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass

from shoestring.backends.kubernetes.rights import STORE_READER, Right, missing_right
from shoestring.core.errors import ClusterError

READY_TIMEOUT_S = 20
"""Seconds for which kubectl waits for a running pod of the service; its default is a minute."""
RESTART_AFTER_S = 1.0
"""Seconds before a forward that broke is started again. kubectl ends it when the service's pod goes away."""

DENIED = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[\w/]+)"')
"""The API server's words for a right that is missing, which kubectl prints."""


@dataclass(frozen=True, slots=True)
class Service:
    """A port of a service."""

    namespace: str
    name: str
    port: int


class ForwardedPort:
    """A port of this machine that leads to a service. It is opened again when it breaks, until `close`."""

    def __init__(self, context: str, service: Service) -> None:
        """Raises ClusterError: kubectl is missing, or cannot forward the port; NotAllowed, which is one."""
        if not shutil.which("kubectl"):
            raise ClusterError(
                f"the store is the service {service.name} in namespace {service.namespace} of {context}, and "
                "kubectl, which forwards a port to it, is not installed: install it"
            )
        self._command = ["kubectl", "--context", context, "--namespace", service.namespace, "port-forward"]
        self._command += ["--address", "127.0.0.1", f"--pod-running-timeout={READY_TIMEOUT_S}s"]
        self._command.append(f"service/{service.name}")
        self._service, self._closed = service, threading.Event()
        self._process = self._start(0)
        line = self._process.stdout.readline() if self._process.stdout else ""
        found = re.search(r"127\.0\.0\.1:(\d+) ->", line)
        if found is None:
            _, errors = self._process.communicate()
            reason = " ".join(errors.split()) or f"kubectl printed {line!r}"
            if denied := DENIED.search(reason):
                right = Right(denied["verb"], denied["resource"], service.namespace, STORE_READER)
                raise missing_right(right, reason)
            raise ClusterError(
                f"cannot forward a port to service {service.name} in namespace {service.namespace}: {reason}"
            )
        self.port = int(found[1])
        threading.Thread(target=self._keep_open, daemon=True).start()

    def _start(self, port: int) -> subprocess.Popen[str]:
        """Start kubectl. `port` of this machine; 0: any free one."""
        return subprocess.Popen(
            [*self._command, f"{port or ''}:{self._service.port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C ends the command, which may still read the store and then closes the port.
            start_new_session=True,
        )

    def _keep_open(self) -> None:
        while True:
            # kubectl prints a line for each connection, which has to be read.
            self._process.communicate()
            if self._closed.wait(RESTART_AFTER_S):
                return
            self._process = self._start(self.port)
            if self._closed.is_set():
                self._process.terminate()

    def close(self) -> None:
        self._closed.set()
        self._process.terminate()


def forward_port(context: str, service: Service) -> str:
    """Forward a port of this machine to a service until this process ends; return its HOST:PORT.

    Raises ClusterError.
    """
    forwarded = ForwardedPort(context, service)
    atexit.register(forwarded.close)
    return f"127.0.0.1:{forwarded.port}"
