"""`shoestring simulate`: try a policy, a budget or a spot market before it costs money."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from shoestring.cli.options import MAX_SEED, JsonOption
from shoestring.config.policy import Policy
from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import WorldError
from shoestring.reporting.terminal.output import TerminalConsole
from shoestring.simulation.results import SimulationReport
from shoestring.simulation.scenario import Scenario, load_scenario
from shoestring.simulation.simulate import simulate as simulate_scenario
from shoestring.simulation.text_report import report_text


def with_policy(scenario: Scenario, path: Path | None) -> Scenario:
    """Return the scenario with the policy of this file. Raises WorldError."""
    if path is None:
        return scenario
    policy = parse(
        read_text(path, f"there is no policy file at {path}", WorldError), Policy, str(path), WorldError
    )
    return scenario.model_copy(update={"policy": policy})


def with_trace(
    scenario: Scenario, trace: Path | None, tick_s: float | None, begins: datetime | None
) -> Scenario:
    """Return the scenario with the recorded market of this trace, starting on this day."""
    overrides = {"trace": trace, "tick_s": tick_s}
    market = scenario.market.model_copy(
        update={name: value for name, value in overrides.items() if value is not None}
    )
    starts_at = scenario.starts_at if begins is None else begins.replace(tzinfo=UTC)
    return scenario.model_copy(update={"market": market, "starts_at": starts_at})


def run_simulation(scenario: Scenario, label: str, pipelines: int, seed: int) -> SimulationReport:
    screen = TerminalConsole(sys.stderr)
    with Progress(console=screen, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(escape(label), total=pipelines)
        return simulate_scenario(
            scenario, pipelines, seed, on_progress=lambda done: progress.update(task, completed=done)
        )


PolicyOption = Annotated[
    Path | None, typer.Option(help="a policy.yaml, instead of the scenario's own policy")
]
AgainstOption = Annotated[
    Path | None,
    typer.Option(help="a second policy.yaml, simulated on the same pipelines for comparison"),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(help="a recorded market: a folder of availability.csv and prices.csv, or a file"),
]
TickOption = Annotated[
    float | None, typer.Option(min=1, help="seconds between the rows of a trace's availability.csv")
]
FirstDayOption = Annotated[
    datetime | None,
    typer.Option("--from", formats=["%Y-%m-%d"], help="first day of the simulation, in UTC"),
]


def simulate(
    scenario: Annotated[
        Path | None, typer.Argument(help="a scenario .yaml; default: the built-in scenario")
    ] = None,
    pipelines: Annotated[int, typer.Option(min=1, max=1_000_000, help="number of pipelines to start")] = 500,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="random seed; equal seeds give equal figures")
    ] = 0,
    policy: PolicyOption = None,
    against: AgainstOption = None,
    trace: TraceOption = None,
    tick: TickOption = None,
    begins: FirstDayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate many pipelines and report what they would spend.

    The synthetic pipelines use the real router and ledger.
    """
    found = with_trace(load_scenario(scenario), trace, tick, begins)
    files = [policy, against] if against else [policy]
    named = [(str(path) if path else "default policy", with_policy(found, path)) for path in files]
    begun_s = time.perf_counter()
    reports = [(name, run_simulation(each, name, pipelines, seed)) for name, each in named]
    if as_json:
        dumped = [{"policy": name} | report.model_dump(mode="json") for name, report in reports]
        typer.echo(json.dumps(dumped if against else dumped[0], indent=1, sort_keys=True))
        return
    seconds, total = time.perf_counter() - begun_s, len(reports) * pipelines
    typer.echo(report_text(reports))
    typer.echo(f"{total:,} pipelines in {seconds:.1f} s, {60 * total / seconds:,.0f} per minute")
