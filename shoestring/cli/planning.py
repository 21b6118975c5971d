"""`shoestring plan`: what a run would choose and cost, stage by stage, and what a quicker or a cheaper one would."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

import typer

from shoestring.cli.running import (
    BudgetOption,
    DeadlineOption,
    JsonOption,
    StoreOption,
    WorldOption,
    world_at,
)
from shoestring.cli.wishes import budget_of, chain
from shoestring.core.canonical_json import json_text
from shoestring.data.recipe import find_recipe
from shoestring.routing.analysis.outline import Line, Plan, front, table
from shoestring.routing.pages.explain import as_text
from shoestring.routing.pages.text import lying
from shoestring.routing.text_table import Grid, text_lines
from shoestring.runtime.admission.admit import Wish, foresee, stage_budgets

MOST_PLANS = 12
"""Of the front that are shown, about; all of them are in the JSON."""

LEAST_QUICKER = 0.01
"""Than the one shown before it, for a plan to be shown."""


def plan(
    recipe: str,
    budget: BudgetOption = None,
    deadline: DeadlineOption = None,
    world: WorldOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would choose and cost, stage by stage, and what quicker ones would cost. Starts nothing, reserves nothing."""
    opened = world_at(world, store)
    found = find_recipe(recipe)
    wish = Wish(
        "plan", found, chain(), budget_of(budget, found.budget_usd), deadline or found.deadline_s, found.seed
    )
    decision = foresee(opened, wish, Decimal(0), stage_budgets(opened, found))
    stages, plans = table(decision), front(decision.question, decision.candidates)
    if as_json:
        told = {
            "table": [each.model_dump(mode="json") for each in stages],
            "front": [each.model_dump(mode="json") for each in plans],
        }
        sys.stdout.write(json_text(decision.model_dump(mode="json") | told) + "\n")
    else:
        elastic = next((need.stage for need in decision.question.needs if need.elastic), None)
        grids = [_stages(stages), _front(plans, elastic)]
        typer.echo(
            "\n".join(
                [
                    as_text(decision),
                    *(line for grid in grids if grid.rows for line in (*text_lines(grid), "")),
                ]
            )
        )
    if decision.choice is None:
        raise typer.Exit(1)


def _stages(lines: Sequence[Line]) -> Grid:
    rows = [
        (
            each.stage,
            each.pool,
            each.machine,
            each.market,
            each.region,
            lying(each.format, each.storage_class) or "-",
            "nothing: it is there" if each.cached else f"${each.est_usd}",
            f"${each.p95_usd}",
            f"{each.est_s:,.1f}",
            f"{each.p95_s:,.1f}",
            ", ".join(f"{count:,} {reason}" for reason, count in each.refused.items()) or "-",
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
        "refused",
    )
    return Grid("All stages", header, rows, frozenset({"expected", "P95", "seconds", "P95 s"}))


def _front(plans: Sequence[Plan], elastic: str | None) -> Grid:
    """The cheapest, the quickest, and what lies between; beside each what an hour less costs, from the one above on."""
    shown = _apart(plans)
    hourly = ["-", *(f"${_an_hour_sooner(slower, quicker)}" for slower, quicker in pairwise(shown))]
    rows = [
        (
            f"${each.est_usd}",
            f"${each.p95_usd}",
            f"{each.p95_s:,.1f}",
            sooner,
            "yes" if each.fits else "no",
            ", ".join(each.offers),
        )
        for each, sooner in zip(shown, hourly, strict=True)
    ]
    notes = [f"{elastic}: with all its passes"] if elastic else []
    notes += [f"{len(plans) - len(shown)} between them in --json"] if len(plans) > len(shown) else []
    header = ("expected", "P95", "P95 s", "an hour sooner", "fits", "stage by stage")
    return Grid("Cost against time", header, rows, frozenset(header[:4]), "; ".join(notes))


def _apart(plans: Sequence[Plan]) -> list[Plan]:
    """Plans of which each is quicker than the one before by a share that a person would notice; the quickest last."""
    shown = list(plans[:1])
    if len(plans) > 1:
        spread = (plans[0].p95_s / max(plans[-1].p95_s, 0.001)) ** (1 / (MOST_PLANS - 1))
        for each in plans[1:-1]:
            if each.p95_s * max(spread, 1 + LEAST_QUICKER) <= shown[-1].p95_s:
                shown.append(each)
        shown.append(plans[-1])
    return shown


def _an_hour_sooner(slower: Plan, quicker: Plan) -> Decimal:
    hours = Decimal(str(slower.p95_s - quicker.p95_s)) / 3600
    return ((quicker.est_usd - slower.est_usd) / hours).quantize(Decimal("0.01"))


def add_to(app: typer.Typer) -> None:
    app.command()(plan)
