"""`shoestring plan`: what a run would choose and cost, and the trade-off between cost and time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Annotated

import typer

from shoestring.cli.options import (
    BudgetOption,
    DeadlineOption,
    JsonOption,
    budget_from_option,
)
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.canonical_json import json_text
from shoestring.data.recipe_files import find_recipe
from shoestring.routing.analysis.outline import OutlinePlan, StageOutline, pareto_front, stage_outlines
from shoestring.routing.candidates import format_text
from shoestring.routing.pages.explain import as_text
from shoestring.routing.text_table import TextTable, text_lines
from shoestring.runtime.launch.run_request import planned_decision, planned_engine

MAX_PLANS = 12
"""The approximate number of Pareto-optimal plans in the table; the JSON holds all of them."""

MIN_SPEEDUP = 0.01
"""A plan is shown if it is faster than the plan shown before it by at least this fraction."""


EngineOption = Annotated[
    str | None,
    typer.Option(
        help="local, argo or kubeflow: the engine whose time between the stages is kept free; default: argo "
        "in a cluster's world, else local"
    ),
]


@takes_world
def plan(
    recipe: Annotated[str, typer.Argument(help="name of a recipe, or path of your own .yaml file")],
    budget: BudgetOption = None,
    deadline: DeadlineOption = None,
    engine: EngineOption = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would choose and cost, stage by stage.

    Also show what faster plans would cost. Starts nothing.
    """
    runs_on = planned_engine(engine, in_cluster=source.is_cluster)
    opened = source.open_to_run()
    decision = planned_decision(opened, find_recipe(recipe), budget_from_option(budget), deadline, runs_on)
    stages, plans = stage_outlines(decision), pareto_front(decision.question, decision.candidates)
    if as_json:
        tables = {
            "stages": [each.model_dump(mode="json") for each in stages],
            "pareto_front": [each.model_dump(mode="json") for each in plans],
        }
        sys.stdout.write(json_text(decision.model_dump(mode="json") | tables) + "\n")
    else:
        elastic = next((need.stage for need in decision.question.needs if need.elastic), None)
        text_tables = (_stages_table(stages), _pareto_table(plans, elastic))
        lines = (line for table in text_tables if table.rows for line in (*text_lines(table), ""))
        typer.echo("\n".join([as_text(decision), *lines]))
    if decision.choice is None:
        raise typer.Exit(1)


def _stages_table(lines: Sequence[StageOutline]) -> TextTable:
    rows = [
        (
            each.stage,
            each.pool,
            each.machine,
            each.market,
            each.region,
            format_text(each.format, each.storage_class) or "-",
            "$0 (cached)" if each.cached else f"${each.est_usd}",
            f"${each.p95_usd}",
            f"{each.est_s:,.1f}",
            f"{each.p95_s:,.1f}",
            ", ".join(f"{count:,} {reason}" for reason, count in each.rejected.items()) or "-",
        )
        for each in lines
    ]
    header = (
        "stage",
        "pool",
        "machine",
        "market",
        "region",
        "writes",
        "expected",
        "P95",
        "seconds",
        "P95 s",
        "rejected",
    )
    return TextTable("All stages", header, rows, frozenset({"expected", "P95", "seconds", "P95 s"}))


def _pareto_table(plans: Sequence[OutlinePlan], elastic: str | None) -> TextTable:
    """Return the cheapest plan, the fastest plan and those between, each with the price of an hour saved
    against the row above.
    """
    shown = _spaced_plans(plans)
    saved = (f"${_usd_per_hour_saved(slower, faster)}" for slower, faster in pairwise(shown))
    hourly = ["-", *saved][: len(shown)]
    rows = [
        (
            f"${each.est_usd}",
            f"${each.p95_usd}",
            f"{each.p95_s:,.1f}",
            saved,
            "yes" if each.fits else "no",
            ", ".join(each.offers),
        )
        for each, saved in zip(shown, hourly, strict=True)
    ]
    notes = [f"{elastic}: trained on all its epochs"] if elastic else []
    notes += [f"{len(plans) - len(shown)} more in --json"] if len(plans) > len(shown) else []
    header = ("expected", "P95", "P95 s", "per hour saved", "fits", "offers by stage")
    return TextTable("Cost against time", header, rows, frozenset(header[:4]), "; ".join(notes))


def _spaced_plans(plans: Sequence[OutlinePlan]) -> list[OutlinePlan]:
    """Return plans that are each noticeably faster than the one before; the fastest is last."""
    shown = list(plans[:1])
    if len(plans) > 1:
        spread = (plans[0].p95_s / max(plans[-1].p95_s, 0.001)) ** (1 / (MAX_PLANS - 1))
        for each in plans[1:-1]:
            if each.p95_s * max(spread, 1 + MIN_SPEEDUP) <= shown[-1].p95_s:
                shown.append(each)
        shown.append(plans[-1])
    return shown


def _usd_per_hour_saved(slower: OutlinePlan, faster: OutlinePlan) -> Decimal:
    hours = Decimal(str(slower.p95_s - faster.p95_s)) / 3600
    return ((faster.est_usd - slower.est_usd) / hours).quantize(Decimal("0.01"))
