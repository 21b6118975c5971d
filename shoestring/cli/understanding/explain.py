"""`shoestring explain`: what a router decided, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from shoestring.cli.decision_files import (
    NamedDecision,
    decision_of_file,
    decisions_of_run,
    is_decision_file,
)
from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.attempt_id import declared_stage, item_of, item_order
from shoestring.core.errors import UnknownName, UsageError
from shoestring.routing.analysis.compare import DecisionComparison, RejectedOffer, compare, why_not
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_markdown, as_text, items_table
from shoestring.routing.policy.migration import migration_table
from shoestring.routing.text_table import TextTable, markdown_lines, text_lines

TargetArgument = Annotated[
    str, typer.Argument(help="id of a run, or JSON file of a decision, like runs/RUN/decisions/train-1.json")
]
StageOption = Annotated[
    str | None,
    typer.Option(help="of a run: only the decisions for this stage, or for one item of a loop, like work.3"),
]
LastOption = Annotated[bool, typer.Option("--last", help="of a run: only the last decision")]
MarkdownOption = Annotated[
    bool, typer.Option("--markdown", help="print Markdown, as the page in the Kubeflow UI")
]
AgainstOption = Annotated[
    str | None,
    typer.Option(
        help="file of another decision for the same stage, or id of another run: show which inputs changed "
        "the choice"
    ),
]
WhyNotOption = Annotated[
    str | None,
    typer.Option(
        "--why-not",
        help="name of a pool: show why it was rejected, and at what price or budget it would be chosen",
    ),
]


@takes_world
def explain(
    target: TargetArgument,
    stage: StageOption = None,
    last: LastOption = False,
    markdown: MarkdownOption = False,
    against: AgainstOption = None,
    pool: WhyNotOption = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Explain the decisions of a run, or one decision; or compare it with another one.

    The explanation lists the choice, its reasons and the rejected offers.
    """
    found = named_decisions(target, stage, last, source)
    if against is not None or pool is not None:
        decision = only_stage(found, target).decision
        if against is not None:
            other = only_stage(
                named_decisions(against, decision.question.stage, last, source), against
            ).decision
            compared = compare(decision, other)
            typer.echo(compared.model_dump_json(indent=1) if as_json else _comparison_text(compared))
        elif pool is not None:
            refused = why_not(decision, pool)
            typer.echo(_json_text(refused) if as_json else _rejections_text(refused, pool))
    elif as_json:
        decisions = [each.decision for each in found]
        single = is_decision_file(target) or last
        typer.echo(decisions[0].model_dump_json(indent=1) if single else _json_text(decisions))
    else:
        typer.echo("\n\n".join(_pages(found, markdown)))


def named_decisions(target: str, stage: str | None, last: bool, source: WorldSource) -> list[NamedDecision]:
    """Return the decision in a file, or those of a run. Raises UsageError, UnknownName."""
    if is_decision_file(target):
        return [decision_of_file(Path(target))]
    try:
        found = decisions_of_run(source.open().store, target, stage)
    except UnknownName as error:
        if source.on is None or stage is not None:
            raise
        watch = f"shoestring watch {target} --on {source.on} --namespace {source.namespace}"
        reason = "a run that ended in its first route step has no records"
        raise UsageError(f"{error}; {reason}: {watch}") from None
    return found[-1:] if last else found


def only_stage(found: Sequence[NamedDecision], target: str) -> NamedDecision:
    """Return the last decision for the one stage that was named. Raises UsageError if there are several."""
    stages = list(dict.fromkeys(each.decision.question.stage for each in found))
    if len(stages) > 1:
        raise UsageError(f"{target} has decisions for {', '.join(stages)}: name one with --stage")
    return found[-1]


def _decision_text(found: NamedDecision, markdown: bool) -> str:
    lines = markdown_lines if markdown else text_lines
    check_lines = "\n".join(["", *lines(migration_table(found.check))]) if found.check else ""
    return (as_markdown(found.decision) if markdown else as_text(found.decision)).rstrip() + check_lines


def _pages(found: Sequence[NamedDecision], markdown: bool) -> Iterator[str]:
    """Yield the page of each decision; of the items of a loop the first page, and a table of all of them."""
    lines = markdown_lines if markdown else text_lines
    loops: dict[str, list[Decision]] = {}
    for decision in (each.decision for each in found):
        if item_of(decision.question.stage):
            loops.setdefault(declared_stage(decision.question.stage), []).append(decision)
    for each in found:
        stage = each.decision.question.stage
        of_loop = loops.get(declared_stage(stage), [])
        if len({decision.question.stage for decision in of_loop}) < 2:
            yield _decision_text(each, markdown)
        elif each.decision is of_loop[0]:
            in_order = sorted(of_loop, key=lambda decision: item_order(decision.question.stage))
            yield "\n".join([_decision_text(each, markdown), "", *lines(items_table(in_order))])


def _json_text(found: Sequence[BaseModel]) -> str:
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
