"""`shoestring ...`: a thin face over the rooms. Exit codes: 0 done, 1 refused or failed for a stated reason, 2 bad usage."""

from __future__ import annotations

import json
import sys

import typer
from rich.console import Console

from shoestring.cli import (
    accounting,
    approving,
    books,
    deciding,
    making,
    pipeline,
    planning,
    pods,
    policies,
    pricing,
    running,
    simulating,
    sweeping,
    uploading,
    worlds,
)
from shoestring.core.errors import ShoestringError

app = typer.Typer(
    name="shoestring",
    help="Machine-learning pipelines that stay inside their budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(worlds.app, name="world")
app.add_typer(books.app, name="ledger")
app.add_typer(pricing.app, name="prices")
app.add_typer(policies.app, name="policy")
running.add_to(app)
planning.add_to(app)
pipeline.add_to(app)
uploading.add_to(app)
making.add_to(app)
pods.add_to(app)
sweeping.add_to(app)
deciding.add_to(app)
books.add_to(app)
approving.add_to(app)
accounting.add_to(app)
simulating.add_to(app)


def main() -> None:
    """The console script: errors are sentences on stderr, and with `--json` one JSON object on stdout as well."""
    try:
        app()
    except ShoestringError as error:
        leave(str(error), error.exit_code)
    except OSError as error:
        # The store's are StoreErrors by now: this is a folder that the command line names, or the disk for temporary files.
        leave(str(error), 1)
    except KeyboardInterrupt:
        sys.exit(130)


def leave(why: str, exit_code: int) -> None:
    Console(stderr=True, soft_wrap=True).print(f"shoestring: {why}", markup=False, highlight=False)
    if "--json" in sys.argv:
        print(json.dumps({"status": "usage" if exit_code == 2 else "refused", "error": why}))
    sys.exit(exit_code)
