"""The rules of how an attempt ends: each is reached, and the first one that holds decides."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.pod_ref import ClusterPod
from shoestring.core.receipt import Cause
from shoestring.spending.end_evidence import EndCost, EndEvidence, EndVerdict, StageReport
from shoestring.spending.ends import RULES, cost_of_end, how_it_ended
from shoestring.spending.heartbeat import BROKE, LOST, SILENT, UNSUPERVISED, Heartbeat

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SAVED = "; a resumed run continues from its checkpoint"
KILLED = "the kernel killed a process of train for memory"


def beat(state: str, memory_share: float | None = None) -> Heartbeat:
    return Heartbeat(
        run_id="r",
        stage="train",
        attempt=1,
        pod=ClusterPod("ns", "uid", "train"),
        state=state,
        usd_per_hour=Decimal("3.60"),
        started_at=NOON,
        at=NOON + timedelta(seconds=20),
        interval_s=10.0,
        spent_usd=Decimal(0),
        fees_usd=Decimal("0.001"),
        memory_share=memory_share,
    )


def seen(code: int, report: StageReport | None = None, **found: object) -> EndEvidence:
    """Return what a supervisor sees of a process that exits with this code."""
    return EndEvidence(stage="train", exit_code=code, report=report, **found)  # type: ignore[arg-type]


def gone(state: str, pod_reason: str = "", memory_share: float | None = None) -> EndEvidence:
    """Return what is left of an attempt that did not settle."""
    return EndEvidence(stage="train", pod_reason=pod_reason, heartbeat=beat(state, memory_share))


MONEY_STOP = {"stop_reason": "no money left", "stop_cause": "money"}
SAYS_STOPPED = StageReport("stopped", "migrated", "asked for another pool")
SAYS_FAILED = StageReport("failed", "store", "PUT: no answer")
OUT = "OutOfMoney: it cost $2"
CASES: list[tuple[int, EndEvidence, EndVerdict]] = [
    (0, gone(UNSUPERVISED), EndVerdict("done", "", "it is not metered: its engine knows how it ended")),
    (1, gone(UNSUPERVISED, OUT), EndVerdict("failed", "money", OUT)),
    (2, gone(UNSUPERVISED, "exit code 3"), EndVerdict("failed", "code", "exit code 3")),
    (3, seen(0, StageReport("done")), EndVerdict("done", "", "")),
    (3, seen(0, StageReport("done"), **MONEY_STOP), EndVerdict("done", "", "")),
    (4, seen(-15, None, **MONEY_STOP), EndVerdict("stopped", "money", "no money left")),
    (4, seen(1, SAYS_STOPPED), EndVerdict("stopped", "migrated", "asked for another pool")),
    (
        4,
        seen(1, SAYS_STOPPED, memory_kill=True, **MONEY_STOP),
        EndVerdict("stopped", "money", "no money left; asked for another pool"),
    ),
    (5, seen(1, SAYS_FAILED, memory_kill=True), EndVerdict("failed", "memory", f"{KILLED}; PUT: no answer")),
    (
        5,
        seen(-9, None, memory_kill=True),
        EndVerdict(
            "failed",
            "memory",
            f"{KILLED}; train's process ended without a result (killed by SIGKILL){SAVED}",
        ),
    ),
    (
        6,
        seen(1, SAYS_FAILED, stop_reason="received SIGTERM"),
        EndVerdict("failed", "store", "received SIGTERM; PUT: no answer"),
    ),
    (
        7,
        seen(-signal.SIGKILL),
        EndVerdict("failed", "lost", f"train's process ended without a result (killed by SIGKILL){SAVED}"),
    ),
    (
        8,
        seen(-signal.SIGSEGV),
        EndVerdict("failed", "code", f"train's process ended without a result (killed by SIGSEGV){SAVED}"),
    ),
    (
        8,
        seen(3),
        EndVerdict("failed", "code", f"train's process ended without a result (exit code 3){SAVED}"),
    ),
    (9, EndEvidence(stage="train"), EndVerdict("lost", "lost", "its pod never started")),
    (10, gone(BROKE), EndVerdict("lost", "money", "its money was used up and it was ended")),
    (
        10,
        gone("running", "DeadlineExceeded: 90 s"),
        EndVerdict("lost", "money", "its pod ended without settling: DeadlineExceeded: 90 s"),
    ),
    (11, gone(SILENT, "Error"), EndVerdict("lost", "silent", "it wrote no heartbeats and was ended")),
    (
        11,
        gone("running", "Silent: 30 s"),
        EndVerdict("lost", "silent", "its pod ended without settling: Silent: 30 s"),
    ),
    (
        12,
        gone("running", "OOMKilled"),
        EndVerdict("lost", "memory", "its pod ended without settling: OOMKilled"),
    ),
    (
        12,
        gone("running", "main: exit code 137", memory_share=0.95),
        EndVerdict("lost", "memory", "its pod ended without settling: main: exit code 137"),
    ),
    (13, gone(LOST), EndVerdict("lost", "lost", "its supervisor died; its last process ended")),
    (
        14,
        gone("running", "main: exit code 137", memory_share=0.5),
        EndVerdict("lost", "lost", "its pod ended without settling: main: exit code 137"),
    ),
]


@pytest.mark.parametrize(("number", "evidence", "verdict"), CASES)
def test_the_first_rule_that_holds_decides(number: int, evidence: EndEvidence, verdict: EndVerdict) -> None:
    holding = [rule for rule in RULES if rule.holds(evidence)]
    assert holding[0] is RULES[number]
    assert how_it_ended(evidence) == verdict


def test_every_rule_has_a_case() -> None:
    assert {number for number, _, _ in CASES} == set(range(len(RULES)))


CAUSES = st.sampled_from(get_args(Cause))
REPORTS = st.builds(
    StageReport, st.sampled_from(["done", "stopped", "failed"]), CAUSES, st.sampled_from(["", "its reason"])
)
STATES = ["starting", "running", "stopping", "done", "failed", "stopped", LOST, SILENT, BROKE]
EVIDENCE = st.builds(
    EndEvidence,
    report=st.none() | REPORTS,
    stop_reason=st.sampled_from(["", "told to stop"]),
    stop_cause=CAUSES,
    exit_code=st.none() | st.integers(-31, 255),
    memory_kill=st.booleans(),
    pod_reason=st.sampled_from(["", OUT, "Silent", "OOMKilled", "Evicted", "exit code 137"]),
    heartbeat=st.none() | st.builds(beat, st.sampled_from(STATES), st.none() | st.floats(0, 1)),
)


@given(EVIDENCE)
def test_only_a_stage_that_reports_so_is_done_and_without_a_supervisor_an_attempt_is_lost(
    evidence: EndEvidence,
) -> None:
    end = how_it_ended(evidence)
    says_done = evidence.report is not None and evidence.report.status == "done"
    assert (end.status == "done") == (evidence.exit_code is not None and says_done)
    assert (end.status == "lost") == (evidence.exit_code is None)
    assert end.reason or end.status == "done" or (evidence.report and not evidence.report.reason)


MEASURED = Decimal("0.0123")
COSTS: list[tuple[EndEvidence, EndCost]] = [
    (seen(0, StageReport("done"), measured_usd=MEASURED), EndCost(MEASURED)),
    (seen(-9, measured_usd=MEASURED), EndCost(MEASURED)),
    (replace(gone(UNSUPERVISED), measured_usd=MEASURED), EndCost(MEASURED)),
    (
        replace(gone(UNSUPERVISED, OUT), measured_usd=MEASURED, is_upper_bound=True),
        EndCost(MEASURED, is_capped=True),
    ),
    (EndEvidence(stage="train"), EndCost(Decimal(0))),
    (gone("running"), EndCost(Decimal("0.031"), is_capped=True)),
    (gone("stopping", "OOMKilled"), EndCost(Decimal("0.031"), is_capped=True)),
    (gone("running", OUT), EndCost(Decimal("0.031"), is_capped=True)),
    (gone(SILENT), EndCost(Decimal("0.021"))),
    (gone(BROKE), EndCost(Decimal("0.021"))),
    (gone(LOST, "OOMKilled"), EndCost(Decimal("0.021"))),
]


@pytest.mark.parametrize(("evidence", "cost"), COSTS)
def test_it_pays_what_was_measured_else_to_its_end_else_to_one_interval_after_its_last_heartbeat(
    evidence: EndEvidence, cost: EndCost
) -> None:
    assert cost_of_end(evidence) == cost


@given(EVIDENCE)
def test_what_nobody_saw_the_end_of_never_pays_above_its_reservation(evidence: EndEvidence) -> None:
    is_unseen = evidence.exit_code is None and evidence.state in ("starting", "running", "stopping")
    assert cost_of_end(evidence).is_capped or not is_unseen
