"""Runs that have ended, and are continued by their engine's own means: Kubeflow's Retry. It creates the pod
of the failed stage again, without its route step, and no exit step after it.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from engine_scenarios.books import CENT_OF_A_CENT, accounts, check_artifacts, check_books, pod_usd, receipts
from engine_scenarios.engine import Engine, Job, Pipeline, StartedRun
from engine_scenarios.own_package import AUTHORED
from engine_scenarios.waiting import wait_for

from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION
from shoestring.core import store_layout
from shoestring.data.run_records import read_record
from shoestring.reporting.summary import RunSummary

LEARNS, THEIRS = "learns", "theirs"


def stage_retried(engine: Engine, package: Path) -> None:
    """The command that failed continues from its checkpoint in the run's second start, without a route step
    of its own, and the stage after it has its output.
    """
    run = failed_run(engine, "stage")
    engine.retry(run.engine_id)
    check_stage_retried(engine, run)


def component_retried(engine: Engine, package: Path) -> None:
    """The pod of another author's component that Retry creates is metered, and paid for by its own times."""
    run = failed_run(engine, "component")
    engine.retry(run.engine_id)
    wait_for_end(engine, run)
    assert engine.state(run.engine_id) == "failed"
    check_books(engine, run.run_id)
    summary = read_summary(engine, run)
    assert (summary.status, summary.starts) == ("failed", 2)
    first, again = receipts(engine, run.run_id, THEIRS)
    assert (first.status, again.status) == ("failed", "failed")
    pods = engine.pods(run, THEIRS)
    assert len(pods) == 2 and ENDED_ANNOTATION not in pods[1]["metadata"].get("annotations", {})
    for receipt, pod in zip((first, again), pods, strict=True):
        paid_usd, lived_usd = receipt.spent_usd - receipt.fees_usd, pod_usd(engine, receipt, pod)
        assert abs(paid_usd - lived_usd) <= max(lived_usd / 100, CENT_OF_A_CENT), (paid_usd, lived_usd)


def failed_run(engine: Engine, name: str) -> StartedRun:
    """Run one of the pipelines for Retry up to its failure."""
    run = engine.start(Job("", Pipeline(f"retried:{name}", AUTHORED, f"scenario-{name}-retried")))
    summary = run.wait().not_done()
    assert (summary.status, summary.starts) == ("failed", 1)
    check_books(engine, run.run_id)
    return run


def check_stage_retried(engine: Engine, run: StartedRun) -> None:
    """The run is done, in two starts whose accounts are closed, and reports both."""
    wait_for_end(engine, run)
    assert engine.state(run.engine_id) == "succeeded"
    check_books(engine, run.run_id)
    first, second = accounts(engine, run.run_id)
    budget_usd = Decimal(first["cap_usd"])
    assert Decimal(second["cap_usd"]) == budget_usd - Decimal(first["spent_usd"])
    failed, done = receipts(engine, run.run_id, LEARNS)
    assert (failed.status, failed.cause, done.status) == ("failed", "code", "done")
    summary = read_summary(engine, run)
    assert (summary.status, summary.starts, summary.budget_usd) == ("done", 2, budget_usd)
    assert summary.spent_usd == Decimal(first["spent_usd"]) + Decimal(second["spent_usd"])
    check_artifacts(engine, run.run_id)


def wait_for_end(engine: Engine, run: StartedRun) -> None:
    wait_for(
        lambda: engine.state(run.engine_id) != "running" or None,
        f"the end of {run.run_id} after its retry",
        timeout_s=600.0,
    )


def read_summary(engine: Engine, run: StartedRun) -> RunSummary:
    return read_record(engine.store, store_layout.summary(run.run_id), RunSummary)
