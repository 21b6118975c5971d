"""A scenario of Argo alone: one branch is refused, and a pod of the other is deleted after that."""

from __future__ import annotations

from pathlib import Path

from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.books import check_books, receipts, wait_for_pod
from engine_scenarios.engine import Job, Pipeline
from engine_scenarios.own_package import AUTHORED
from engine_scenarios.waiting import wait_for
from pod_times import container_end

from shoestring.routing.placement import ROUTE


def refused_branch(engine: ArgoEngine, package: Path) -> None:
    """The refusal ends its own pair of route and stage alone: that of the deleted pod is tried again."""
    run = engine.start(Job("", Pipeline("apart:pipeline", AUTHORED, "scenario-apart")))
    pod = wait_for_pod(engine, run, "small")
    wait_for(
        lambda: next(filter(None, map(container_end, engine.pods(run, f"{ROUTE}huge"))), None),
        "the refusal of the other branch",
    )
    engine.delete_pod(pod["metadata"]["name"])
    summary = run.wait().not_done()
    first, second = receipts(engine, run.run_id, "small")
    assert first.status in ("stopped", "lost") and second.status == "done", (first, second)
    assert not receipts(engine, run.run_id, "huge")
    assert len(engine.pods(run, f"{ROUTE}huge")) == 1
    assert summary.status == "stopped", summary
    assert summary.reason.startswith("no offer fits huge: no budget is enough"), summary
    check_books(engine, run.run_id)
