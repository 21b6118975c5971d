"""A pod that its cluster ends with a notice: its supervisor stops the stage before the first signal."""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from runtime_world import (
    INGEST,
    FakeCluster,
    SetClock,
    StartedAttempt,
    begin,
    run_request,
    small_world,
    start_process,
    watch_until_end,
)

from shoestring.config.engines import assumed_times
from shoestring.core.errors import ClusterError, NotAllowed
from shoestring.core.interfaces import EndNotice
from shoestring.core.pod_ref import ClusterPod, PodRef
from shoestring.core.types import Market, MarketTerms
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import NoticeWatch
from shoestring.runtime.supervisor.child_process import child_result, sudden_ends_per_hour

DELETED = EndNotice(25, "its pod is being deleted")
HOOKED = EndNotice(25)


class HookedCluster(FakeCluster):
    """Answers each look with the next of `answers`, and then with the last."""

    def __init__(self, *answers: EndNotice | ClusterError) -> None:
        super().__init__(())
        self.answers, self.asked = list(answers), 0

    def end_notice(self, pod: ClusterPod) -> EndNotice:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, ClusterError):
            raise answer
        return answer


@pytest.fixture
def fixed(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """An attempt at ingest, with a clock that the test moves."""
    return begin(small_world(laptop, tmp_path, SetClock()), run_request(flights_slice, needs=INGEST))


def on_hooked(began: StartedAttempt, *answers: EndNotice | ClusterError) -> tuple[Attempt, HookedCluster]:
    cluster = HookedCluster(*answers)
    world = replace(began.world, cluster=cluster, pod=PodRef.parse("ns.7.ingest"))
    return replace(began.attempt, world=world), cluster


def test_a_stage_is_stopped_by_the_notice_without_a_signal_to_its_supervisor(
    fixed: StartedAttempt, tmp_path: Path
) -> None:
    attempt, cluster = on_hooked(fixed, HOOKED, DELETED)
    child = start_process("import time; print(flush=True); time.sleep(60)")
    watch_until_end(attempt, child, tmp_path)
    assert (child.returncode, cluster.asked) == (-signal.SIGTERM, 2)
    end = child_result(attempt, child, tmp_path)
    assert (end.status, end.cause, end.reason) == ("stopped", "stop-requested", "its pod is being deleted")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("OutOfMoney: it cost more than its account can pay", "money"),
        ("DeadlineExceeded: its pod's 60 s are over", "money"),
        ("Silent: no heartbeat for 60 s", "silent"),
        ("its pod is being deleted", "stop-requested"),
    ],
)
def test_the_notice_gives_reason_cause_and_the_time_that_is_left_to_settle(
    fixed: StartedAttempt, reason: str, cause: str
) -> None:
    attempt, _ = on_hooked(fixed, HOOKED, EndNotice(25, reason))
    watch, clock = NoticeWatch(attempt.world), attempt.world.clock
    assert watch.look()
    watch.stop_if_noticed(attempt)
    assert (attempt.stop_reason, attempt.kill_s) == ("", math.inf)
    looked_s = clock.monotonic_s()
    clock.sleep(3)
    assert not watch.look()
    watch.stop_if_noticed(attempt)
    assert (attempt.stop_reason, attempt.stop_cause) == (reason, cause)
    # It may have been given right after the first look.
    assert attempt.kill_s == looked_s + 25 - 0.5 - attempt.expected_exit_s


def test_a_child_that_ignores_term_is_killed_while_its_supervisor_can_still_settle(
    fixed: StartedAttempt, tmp_path: Path
) -> None:
    """The pod was to end before the first look, so that nothing of the notice may be left. The clock does
    not move: by its grace period alone, the child would never be killed.
    """
    attempt, _ = on_hooked(fixed, DELETED)
    ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    child = start_process(ignores)
    watch_until_end(attempt, child, tmp_path)
    assert child.returncode == -signal.SIGKILL


def test_a_pod_without_a_hook_is_looked_at_once_and_a_laptop_never(fixed: StartedAttempt) -> None:
    attempt, cluster = on_hooked(fixed, EndNotice(0, "its pod is being deleted"))
    watch = NoticeWatch(attempt.world)
    assert not watch.look() and cluster.asked == 1
    watch.stop_if_noticed(attempt)
    assert attempt.stop_reason == ""
    assert not NoticeWatch(fixed.world).look()


def test_a_cluster_that_does_not_answer_is_asked_again_and_a_missing_right_is_told_once(
    fixed: StartedAttempt, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt, _ = on_hooked(fixed, ClusterError("no answer"), NotAllowed("the cluster does not allow it"))
    watch = NoticeWatch(attempt.world)
    assert watch.look() and not watch.look()
    said = "shoestring: the cluster does not allow it. Without it, the stage learns only by a signal that its"
    assert capsys.readouterr().err == f"{said} pod is to end\n"


@pytest.mark.parametrize(("engine", "per_hour"), [("kubeflow", 0.5), ("argo", 0.0)])
def test_a_child_plans_its_checkpoints_for_ends_without_notice_on_kubeflow_only(
    fixed: StartedAttempt, engine: str, per_hour: float
) -> None:
    attempt = fixed.attempt
    times = assumed_times("kubeflow" if engine == "kubeflow" else "argo", 1.0)
    terms = {Market.SPOT: MarketTerms(preemptions_per_hour=0.5)}
    question = attempt.decision.question
    pools = tuple(pool.model_copy(update={"markets": terms}) for pool in question.pools)
    question = question.model_copy(update={"engine": times, "pools": pools})
    choice = attempt.choice.model_copy(update={"market": Market.SPOT})
    decision = attempt.decision.model_copy(update={"question": question, "choice": choice})
    assert sudden_ends_per_hour(replace(attempt, decision=decision)) == per_hour
