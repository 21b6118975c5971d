"""`shoestring schema`."""

from __future__ import annotations

import json
from pkgutil import resolve_name
from typing import Annotated

import typer
from pydantic import BaseModel

from shoestring.core.errors import UnknownName

# The record type of each kind of file, as MODULE:CLASS.
SCHEMAS = {
    "world": "shoestring.backends.local:WorldFile",
    "recipe": "shoestring.data.recipe:Recipe",
    "budget": "shoestring.spending.budget_file:BudgetFile",
    "progress": "shoestring.commands.progress_file:CommandProgress",
    "decision": "shoestring.routing.decision:Decision",
    "receipt": "shoestring.core.receipt:Receipt",
    "ledger": "shoestring.spending.ledger.entry:HashedEntry",
    "summary": "shoestring.reporting.summary:RunSummary",
    "cluster-world": "shoestring.backends.kubernetes.world_files:ClusterWorldFile",
    "pools": "shoestring.backends.kubernetes.world_files:PoolsFile",
    "prices": "shoestring.backends.kubernetes.world_files:PricesFile",
    "policy": "shoestring.config.policy:Policy",
    "budgets": "shoestring.config.budgets:Budgets",
}


def schema(name: Annotated[str, typer.Argument(help="one of " + ", ".join(SCHEMAS))]) -> None:
    """Print the JSON schema of a file that Shoestring reads or writes."""
    typer.echo(json.dumps(record_type_named(name).model_json_schema(), indent=1, sort_keys=True))


def record_type_named(name: str) -> type[BaseModel]:
    """Return the record type of a schema. Raises UnknownName."""
    if name not in SCHEMAS:
        raise UnknownName("schema", name, list(SCHEMAS))
    found: type[BaseModel] = resolve_name(SCHEMAS[name])
    return found
