"""Checks of a run's records, read from outside: its books, its pods' times against its dollars, its
artifacts.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from engine_scenarios.engine import Engine, StartedRun
from engine_scenarios.waiting import wait_for
from pod_times import container_end, lived_s

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.reporting.summary import RunSummary
from shoestring.routing.decision import Decision

CENT_OF_A_CENT = Decimal("0.000001")


def decision(engine: Engine, run_id: str, stage: str, attempt: int = 1) -> Decision:
    return read_record(engine.store, store_layout.decision(run_id, f"{stage}-{attempt}"), Decision)


def wait_for_decision(engine: Engine, run_id: str, stage: str, attempt: int = 1) -> Decision:
    def find() -> Decision | None:
        try:
            return decision(engine, run_id, stage, attempt)
        except NotInStore:
            return None

    return wait_for(find, f"the decision on attempt {attempt} at {stage} of {run_id}", timeout_s=600.0)


def wait_for_pod(engine: Engine, run: StartedRun, stage: str) -> dict[str, Any]:
    """Wait for a running container of a stage, and return its pod."""

    def find() -> dict[str, Any] | None:
        return next((pod for pod in engine.pods(run, stage) if pod["status"].get("phase") == "Running"), None)

    return wait_for(find, f"a running pod of {stage} of {run.run_id}", timeout_s=600.0)


def wait_for_heartbeat(engine: Engine, run_id: str, stage: str) -> None:
    """Wait until the supervisor of a stage's first attempt has begun."""
    key = store_layout.heartbeat(run_id, str(decision(engine, run_id, stage).question.attempt_id))
    wait_for(lambda: any(engine.store.list(key)) or None, f"a heartbeat of {stage} of {run_id}")


def wait_for_checkpoint(engine: Engine, run_id: str) -> None:
    found = f"{store_layout.checkpoints(run_id)}/"
    wait_for(lambda: any(engine.store.list(found)) or None, f"a checkpoint of {run_id}", timeout_s=300.0)


def receipts(engine: Engine, run_id: str, stage: str) -> list[Receipt]:
    """Return the receipts of a stage, by attempt."""
    keys = engine.store.list(store_layout.receipts(run_id, stage))
    return sorted((read_record(engine.store, key, Receipt) for key in keys), key=lambda each: each.attempt)


def accounts(engine: Engine, run_id: str) -> list[dict[str, Any]]:
    """Return the accounts of a run's starts, oldest first, as `ledger show` prints them."""
    found = json.loads(engine.read("ledger", "show", run_id, "--json").out)
    return [each for each in found if each["account"].split(".")[0] == run_id]


def check_books(engine: Engine, run_id: str) -> None:
    """Every account of the run is closed and holds nothing, and the whole ledger verifies."""

    def closed() -> bool | None:
        return all(each["closed"] for each in accounts(engine, run_id)) or None

    wait_for(closed, f"the accounts of {run_id} are closed", timeout_s=300.0)
    assert [each["reservations"] for each in accounts(engine, run_id) if each["reservations"]] == []
    engine.read("ledger", "verify")


def check_dollars(engine: Engine, run: StartedRun, *stages: str) -> None:
    """The ledger paid for a stage the price of its pods' lifetimes within 1%, one pod per attempt.

    `run`: a run with one start. The times of a deleted pod cannot be read, so its stage is not for this.
    """
    (account,) = accounts(engine, run.run_id)
    for stage in stages:
        found, pods = receipts(engine, run.run_id, stage), engine.pods(run, stage)
        assert len(found) == len(pods), (stage, [each.attempt for each in found])
        beyond_usd = sum(
            (each.overrun_usd + each.committed_usd - each.fees_usd for each in found), Decimal(0)
        )
        paid_usd = Decimal(account["stages"][stage]["spent_usd"]) + beyond_usd
        lived_usd = sum(
            (pod_usd(engine, each, pod) for each, pod in zip(found, pods, strict=True)), Decimal(0)
        )
        assert abs(paid_usd - lived_usd) <= max(lived_usd / 100, CENT_OF_A_CENT), (stage, paid_usd, lived_usd)


def pod_usd(engine: Engine, receipt: Receipt, pod: dict[str, Any]) -> Decimal:
    """Return the cost of a pod's lifetime at the price of its decision; a cached result costs nothing."""
    choice = decision(engine, receipt.run_id, receipt.stage, receipt.attempt).choice
    assert choice is not None
    return Decimal(0) if receipt.cache_hit else choice.usd_per_hour * Decimal(lived_s(pod)) / 3600


def check_placement(engine: Engine, run: StartedRun, *stages: str) -> None:
    """Each stage's pod was where its decision placed it, with its image and its cores, which are its own."""
    for stage in stages:
        pod, made = engine.pods(run, stage)[-1], decision(engine, run.run_id, stage)
        assert made.placement is not None
        selector = pod["spec"].get("nodeSelector", {})
        assert made.placement.node_selector.items() <= selector.items(), stage
        (main,) = [each for each in pod["spec"]["containers"] if each["name"] == "main"]
        assert main["image"] == made.placement.image, stage
        assert main["resources"]["limits"]["cpu"] == made.placement.cpu, stage
        assert main["resources"]["limits"] == main["resources"]["requests"], stage


def check_artifacts(engine: Engine, run_id: str) -> None:
    """The report, a summary, and a decision that `explain` shows are in the store."""
    assert b"<html" in engine.store.fetch(store_layout.report(run_id)).read_bytes()
    summary = read_record(engine.store, store_layout.summary(run_id), RunSummary)
    assert summary.run_id == run_id
    assert summary.stages[0].pool in engine.read("explain", run_id).out


def end_of(pods: list[dict[str, Any]]) -> Any:
    """Return when the last container of a stage's last pod ended."""
    end = container_end(pods[-1])
    assert end is not None
    return end
