"""`shoestring simulate`: try a policy, a budget or a market before it spends."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from shoestring.cli.running import MOST_SEED, JsonOption
from shoestring.config.policy import Policy
from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import WorldError
from shoestring.simulation.results import Report
from shoestring.simulation.scenario import Scenario, load_scenario
from shoestring.simulation.simulate import simulate as simulate_scenario
from shoestring.simulation.text_report import as_text


def with_policy(scenario: Scenario, path: Path | None) -> Scenario:
    """Raises WorldError."""
    if path is None:
        return scenario
    rules = parse(
        read_text(path, f"there is no policy file at {path}", WorldError), Policy, str(path), WorldError
    )
    return scenario.model_copy(update={"rules": rules})


def with_trace(
    scenario: Scenario, trace: Path | None, tick_s: float | None, begins: datetime | None
) -> Scenario:
    told = {"trace": trace, "tick_s": tick_s}
    market = scenario.market.model_copy(
        update={name: value for name, value in told.items() if value is not None}
    )
    starts_at = scenario.starts_at if begins is None else begins.replace(tzinfo=UTC)
    return scenario.model_copy(update={"market": market, "starts_at": starts_at})


def simulated(scenario: Scenario, what: str, pipelines: int, seed: int) -> Report:
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=pipelines)
        return simulate_scenario(
            scenario, pipelines, seed, tell=lambda done: progress.update(task, completed=done)
        )


def simulate(
    scenario: Annotated[
        Path | None, typer.Argument(help="a scenario's .yaml; default: the one that ships")
    ] = None,
    pipelines: Annotated[int, typer.Option(min=1, max=1_000_000, help="how many are begun")] = 500,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="the same seed, the same figures")] = 0,
    policy: Annotated[
        Path | None, typer.Option(help="a policy.yaml, instead of the scenario's rules")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="another policy.yaml, simulated beside the first on the same pipelines"),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="a recorded market: a folder of availability.csv and prices.csv, or a file"),
    ] = None,
    tick: Annotated[
        float | None, typer.Option(min=1, help="seconds between the rows of a trace's availability.csv")
    ] = None,
    begins: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="the day it begins on, in UTC")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run many made-up pipelines through the real router and ledger, and say what they would spend."""
    found = with_trace(load_scenario(scenario), trace, tick, begins)
    files = [policy, against] if against else [policy]
    named = [(str(path) if path else "as it is", with_policy(found, path)) for path in files]
    begun_s = time.perf_counter()
    reports = [(name, simulated(each, name, pipelines, seed)) for name, each in named]
    if as_json:
        told = [{"policy": name} | report.model_dump(mode="json") for name, report in reports]
        typer.echo(json.dumps(told if against else told[0], indent=1, sort_keys=True))
        return
    seconds = time.perf_counter() - begun_s
    typer.echo(as_text(reports))
    typer.echo(
        f"{len(reports) * pipelines:,} pipelines in {seconds:.1f} s, {60 * len(reports) * pipelines / seconds:,.0f} a minute"
    )


def add_to(main: typer.Typer) -> None:
    main.command()(simulate)
