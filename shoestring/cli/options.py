"""The options that several commands share."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from shoestring.core.errors import UsageError
from shoestring.core.money import budget as parse_budget

MAX_DEADLINE_S = 366 * 86400.0
MAX_SEED = 2**32 - 1
"""The largest seed that Python, NumPy and PyTorch all accept."""


WorldOption = Annotated[
    Path | None,
    typer.Option(
        "--world",
        help="world file, or folder of a cluster's world; default: $SHOESTRING_WORLD, else "
        "~/.config/shoestring/world.yaml",
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="folder of the object store; default: the one in the world file"),
]
ModelArgument = Annotated[
    str, typer.Argument(help="folder of a model, folder of a run's files, or id of a run in the store")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print only JSON on stdout")]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="dollars for the whole run, like 0.003; default: the recipe's")
]
DeadlineOption = Annotated[
    float | None,
    typer.Option(
        "--deadline", min=1, max=MAX_DEADLINE_S, help="seconds for the whole run; default: the recipe's"
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, max=MAX_SEED, help="random seed; default: the recipe's")
]
CampaignOption = Annotated[
    str | None,
    typer.Option("--campaign", help="campaign that is charged as well; default: the recipe's"),
]
PriorityOption = Annotated[
    str | None,
    typer.Option(
        "--priority",
        help="low, normal or high: decides whether the start may be delayed; default: the recipe's",
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait", help="wait when the policy delays the start, or when the data has not arrived yet"
    ),
]
OnOption = Annotated[
    str | None,
    typer.Option("--on", help="run on the cluster of this kubeconfig context, with Argo Workflows"),
]
NamespaceOption = Annotated[
    str, typer.Option(help="with --on: the namespace in which Shoestring is installed")
]
TemplateOption = Annotated[
    str | None,
    typer.Option(help="with --on: the WorkflowTemplate of your own pipeline"),
]
DEFAULT_NAMESPACE = "shoestring"
"""The namespace of a cluster in which `--on` expects Shoestring."""

MonthOption = Annotated[str, typer.Option("--month", help="month of the ledger, like 2026-11")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", help="only attempts settled at or after this time, like 2026-11-03 or 2026-11-03T14:00Z"
    ),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="only attempts settled before this time")]
RunIdOption = Annotated[str, typer.Option(help="id of the run")]
WorldPathOption = Annotated[
    str, typer.Option(help="world file, or folder of a cluster's world; default: as for `run`")
]


def budget_from_option(text: str | None, option: str = "--budget") -> Decimal | None:
    """Return the amount in dollars; None: the option was not given. Raises UsageError unless above zero."""
    try:
        return None if text is None else parse_budget(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def given_options(world: Path | None, store: Path | None, out: Path | None) -> str:
    """Return these options as the user gave them, for the command that resumes the run."""
    options = (("--world", world), ("--store", store), ("--out", out))
    return "".join(f" {name} {value}" for name, value in options if value)
