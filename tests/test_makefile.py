"""`make` installs PyTorch without CUDA unless there is an NVIDIA driver, or no index with that build."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


class TorchIndex(BaseHTTPRequestHandler):
    """An index that has one project."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/whl/torch/" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def option_for(index: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, ".ci/torch-index", index]
    return subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)


def test_an_index_that_answers_is_an_option_of_pip() -> None:
    with HTTPServer(("127.0.0.1", 0), TorchIndex) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}"
        assert option_for(f"{index}/whl").stdout.split() == ["--extra-index-url", f"{index}/whl"]
        assert option_for(f"{index}/other").stdout == ""
        server.shutdown()


def test_an_index_that_does_not_answer_is_left_out_with_one_line() -> None:
    done = option_for("http://127.0.0.1:9/whl")
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "does not answer" in done.stderr
    assert (option_for("").stdout, option_for("").stderr) == ("", "")


@pytest.mark.parametrize(
    ("exit_code", "index"), [(0, '""'), (1, '"https://download.pytorch.org/whl/cpu"')], ids=["driver", "none"]
)
def test_a_driver_decides_between_the_builds(exit_code: int, index: str, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho NVIDIA-SMI\nexit {exit_code}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    made = subprocess.run(
        ["make", "-n", "--always-make", ".venv/ready"],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f".ci/torch-index {index})" in made.stdout
