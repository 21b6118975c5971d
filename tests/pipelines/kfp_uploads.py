"""`shoestring upload` against a server process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import Ran
from typer.testing import CliRunner

from shoestring.cli import app
from shoestring.core.errors import ShoestringError

GOLDEN = Path(__file__).parent / "golden" / "train.yaml"


def upload(host: str, *more: str, env: dict[str, str] | None = None) -> Ran:
    """Run the command in this process, since importing KFP's client takes seconds."""
    done = CliRunner().invoke(app, ["upload", "--host", host, *more], env=env)
    error = done.exception
    if isinstance(error, ShoestringError):
        return Ran(error.exit_code, done.stdout, f"{done.stderr}{error}\n")
    if error and not isinstance(error, SystemExit):
        raise error
    return Ran(done.exit_code, done.stdout, done.stderr)


@dataclass(frozen=True)
class Server:
    host: str
    log: Path

    def upload(self, *more: str, env: dict[str, str] | None = None) -> Ran:
        return upload(self.host, *more, env=env)

    def requests(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the requests that change something, or are of these kinds, in order."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [request for request in found if request["method"] in (kinds or ("POST", "DELETE"))]


Serve = Callable[..., Server]
