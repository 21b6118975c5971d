"""Servers of Kubeflow Pipelines' API, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kfp_uploads import Serve, Server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    running: list[subprocess.Popen[str]] = []

    def begin(*options: str, scheme: str = "http") -> Server:
        command = [
            sys.executable,
            str(Path(__file__).parent / "kfp_server.py"),
            str(tmp_path / "requests.jsonl"),
            *options,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return Server(
            f"{scheme}://127.0.0.1:{process.stdout.readline().strip()}", tmp_path / "requests.jsonl"
        )

    yield begin
    for process in running:
        process.terminate()
        process.wait()
