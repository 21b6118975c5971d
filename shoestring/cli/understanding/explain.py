"""`shoestring explain`: what a router decided, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ValidationError

from shoestring.cli.decision_files import read_decision_file
from shoestring.cli.options import JsonOption
from shoestring.core.errors import UsageError
from shoestring.core.record import validation_message
from shoestring.routing.analysis.compare import DecisionComparison, RejectedOffer, compare, why_not
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_markdown, as_text
from shoestring.routing.policy.migration import MigrationCheck, migration_table
from shoestring.routing.text_table import TextTable, markdown_lines, text_lines


def explain(
    file: Annotated[
        Path, typer.Argument(help="JSON file of a decision, like runs/RUN/decisions/train-1.json")
    ],
    markdown: Annotated[
        bool, typer.Option("--markdown", help="print Markdown, as the page in the Kubeflow UI")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            help="file of another decision for the same stage: show which inputs changed the choice"
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            "--why-not",
            help="name of a pool: show why it was rejected, and at what price or budget it would be chosen",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a routing decision, or compare it with another one.

    The explanation lists the choice, its reasons and the rejected offers.
    """
    decision = Decision.model_validate_json(read_decision_file(file))
    if against is not None:
        found = compare(decision, Decision.model_validate_json(read_decision_file(against)))
        typer.echo(found.model_dump_json(indent=1) if as_json else _comparison_text(found))
    elif pool is not None:
        refused = why_not(decision, pool)
        typer.echo(_json_text(refused) if as_json else _rejections_text(refused, pool))
    elif as_json:
        typer.echo(decision.model_dump_json(indent=1))
    else:
        check = migration_check_for(file)
        lines = markdown_lines if markdown else text_lines
        check_lines = "\n".join(["", *lines(migration_table(check))]) if check else ""
        typer.echo((as_markdown(decision) if markdown else as_text(decision)) + check_lines)


def migration_check_for(file: Path) -> MigrationCheck | None:
    """Return the last migration check of the attempt that this decision placed, or None.

    Raises:
        UsageError: the file is not a migration check.
    """
    path = file.parent.parent / "migration-checks" / file.name
    try:
        return MigrationCheck.model_validate_json(path.read_bytes())
    except OSError:
        return None
    except ValidationError as error:
        raise UsageError(f"{path} is not a migration check: {validation_message(error)}") from None


def _json_text(found: tuple[BaseModel, ...]) -> str:
    return json.dumps([each.model_dump(mode="json") for each in found], indent=1)


def _comparison_text(found: DecisionComparison) -> str:
    head = f"{found.stage}: {found.first_choice}, compared with {found.second_choice}"
    if not found.changes:
        cause = "the inputs are equal" + ("" if found.same_choice else ", but the code that decided differs")
        return f"{head}\n{cause}"
    rows = [
        (
            each.group,
            fields,
            (each.choice_alone or "inconsistent question") if number == 0 else "",
            "yes" if each.flips_choice and number == 0 else "",
        )
        for each in found.changes
        for number, fields in enumerate(each.fields)
    ]
    lines = [
        head,
        "",
        *text_lines(
            TextTable(
                "Differing inputs",
                ("inputs", "first -> second", "choice with these alone", "flips choice"),
                rows,
            )
        ),
    ]
    if not found.same_choice:
        enough = f"sufficient for the choice of the second: {' and '.join(found.sufficient_groups)}"
        lines += [
            "",
            enough
            if found.sufficient_groups
            else "the inputs of the second do not reproduce its choice: the code that decided differs",
        ]
    return "\n".join(
        lines
        + ([] if found.reproducible else ["this version does not reproduce the first decision as recorded"])
    )


def _rejections_text(found: tuple[RejectedOffer, ...], pool: str) -> str:
    if not found:
        return f"{pool} was chosen"
    lines = []
    for each in found:
        lines.append(f"{each.offer}: {each.reason}")
        if each.usd_per_hour is not None and each.selected_at_usd_per_hour is not None:
            lines.append(
                f"  chosen at ${each.selected_at_usd_per_hour} an hour or less; the price was "
                f"${each.usd_per_hour} an hour"
            )
        elif each.usd_per_hour is not None:
            lines.append(f"  chosen at no price; the price was ${each.usd_per_hour} an hour")
        if each.selected_at_budget_usd is not None:
            lines.append(f"  chosen with a budget of ${each.selected_at_budget_usd} or more")
    return "\n".join(lines)
