"""Simulate what all steps around a stage share: the pod of a route step or an exit step, and an account."""

from __future__ import annotations

from shoestring.core.errors import UnknownName
from shoestring.simulation.event_loop import Process
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd

ROUTE_STEP_S = (0.5, 1.5)
"""Shortest and longest duration in seconds of the pod of a route step or an exit step."""

ENGINE_SHARE = (0.6, 1.0)
"""Shortest and longest wait for an engine, as a share of its P95."""


def engine_wait(simulation: Simulation, part: float) -> Process[None]:
    """Wait for the engine, for a part of a step. On a laptop the pods themselves are all that takes time."""
    times = simulation.engine
    if times.engine != "local":
        yield simulation.loop.now_s + part * times.step_s * simulation.rng.uniform(*ENGINE_SHARE)


def overhead_pod(simulation: Simulation, pipeline: PipelineRun) -> Process[None]:
    """Run and bill an overhead pod: one of a route step or an exit step."""
    seconds = simulation.rng.uniform(*ROUTE_STEP_S)
    if pipeline.starts:
        spent_usd = cost_usd(pipeline.run.start.overhead_usd_per_hour, seconds)
        pipeline.overhead_usd += spent_usd
        pipeline.outcome.billed_usd += spent_usd
    yield simulation.loop.now_s + seconds


def state_of(ledger: Ledger, account: str) -> AccountState | None:
    """Return the state of an account; None if it does not exist."""
    try:
        return ledger.state(account)
    except UnknownName:
        return None
