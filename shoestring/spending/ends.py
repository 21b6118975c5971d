"""How an attempt ended, and what it pays, by its supervisor, its cluster and its last heartbeat.

Pure. Supervisor, launcher, reaper, router and exit step ask here, each with what it knows.
docs/attempt-ends.md is made from the rules.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from shoestring.core.money import from_microusd
from shoestring.core.receipt import Cause
from shoestring.spending.end_evidence import EndCost, EndEvidence, EndStatus, EndVerdict
from shoestring.spending.heartbeat import (
    BROKE,
    ENDED_STATES,
    LOST,
    SILENT,
    UNSUPERVISED,
    is_out_of_memory,
)
from shoestring.spending.meter import cost_between_usd

OUT_OF_MONEY, ENDED_SILENT = ("OutOfMoney", "DeadlineExceeded"), "Silent"
"""How the cluster's reason begins if the reaper, or the pod's deadline, ended a pod for money or silence."""

FINAL_CAUSES = ("money", "code", "guardrail", "")
"""Causes with which another attempt would end as well."""

NOT_METERED = "it is not metered"
NO_RESULT = "process ended without a result"
"""In the reason of an attempt that left none."""


@dataclass(frozen=True, slots=True)
class Pays:
    """The time that an attempt pays for. `text`: for the table of the docs."""

    text: str
    cost: Callable[[EndEvidence], EndCost]


@dataclass(frozen=True, slots=True)
class EndRule:
    """One way to end. `when`: for the table of the docs. `cause` None: the one that the supervisor stopped it
    for, else the one that the stage reports.
    """

    when: str
    holds: Callable[[EndEvidence], bool]
    status: EndStatus
    cause: Cause | None
    reason: Callable[[EndEvidence], str]
    pays: Pays

    def end(self, evidence: EndEvidence) -> EndVerdict:
        reported = evidence.report.cause if evidence.report else ""
        stopped = evidence.stop_cause if self.status == "stopped" else ""
        cause = (stopped or reported) if self.cause is None else self.cause
        return EndVerdict(self.status, cause, self.reason(evidence))


def _all_reasons(evidence: EndEvidence) -> str:
    """Return why the supervisor stopped the stage, what the kernel did, and what the stage reports."""
    killed = f"the kernel killed a process of {evidence.stage} for memory" if evidence.memory_kill else ""
    report = evidence.report.reason if evidence.report else _exit_reason(evidence)
    return "; ".join(filter(None, (evidence.stop_reason, killed, report)))


def _stop_reasons(evidence: EndEvidence) -> str:
    report = evidence.report.reason if evidence.report else ""
    return "; ".join(filter(None, (evidence.stop_reason, report)))


def _exit_reason(evidence: EndEvidence) -> str:
    how = exit_text(evidence.exit_code or 0)
    return f"{evidence.stage}'s {NO_RESULT} ({how}); a resumed run continues from its checkpoint"


def exit_text(exit_code: int) -> str:
    """Return how a process ended. `exit_code`: negative for a signal."""
    return f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"


def _lost_reason(evidence: EndEvidence) -> str:
    return "its pod ended without settling" + (f": {evidence.pod_reason}" if evidence.pod_reason else "")


def _measured(evidence: EndEvidence) -> EndCost:
    return EndCost(evidence.measured_usd, evidence.is_upper_bound)


def _by_heartbeat(evidence: EndEvidence) -> EndCost:
    """Return the cost to the last heartbeat, if that is of the end; else to one interval later, by when its
    supervisor would have written the next.
    """
    last = evidence.heartbeat
    if last is None:
        return EndCost(from_microusd(0))
    is_end = last.state in ENDED_STATES
    ended = last.at if is_end else last.at + timedelta(seconds=last.interval_s)
    time_usd = cost_between_usd(last.known_prices, last.started_at, ended)
    return EndCost(time_usd + last.fees_usd, is_capped=not is_end)


CLOCK = Pays("its time by the supervisor's clock to its exit, and its fees", _measured)
POD_TIMES = Pays("its pods' own times, with what is above its reservation", _measured)
NOTHING = Pays("its pod's time on a node, where the reaper saw one; else $0", _by_heartbeat)
LAST_BEAT = Pays("its time to its last sign of life, and its fees", _by_heartbeat)

RULES: tuple[EndRule, ...] = (
    EndRule(
        "an external component's pod did not fail",
        lambda it: it.state == UNSUPERVISED and not it.pod_reason,
        "done",
        "",
        lambda _: f"{NOT_METERED}: its engine knows how it ended",
        POD_TIMES,
    ),
    EndRule(
        "an external component was ended for its money",
        lambda it: it.state == UNSUPERVISED and it.pod_reason.startswith(OUT_OF_MONEY),
        "failed",
        "money",
        lambda it: it.pod_reason,
        POD_TIMES,
    ),
    EndRule(
        "an external component's pod failed otherwise",
        lambda it: it.state == UNSUPERVISED,
        "failed",
        "code",
        lambda it: it.pod_reason,
        POD_TIMES,
    ),
    EndRule(
        "the stage reports that it is done",
        lambda it: it.is_supervised_end and it.reported == "done",
        "done",
        "",
        lambda it: it.report.reason if it.report else "",
        CLOCK,
    ),
    EndRule(
        "its supervisor stopped it, or it reports that it stopped itself",
        lambda it: (
            it.is_supervised_end and (it.reported == "stopped" or (not it.report and it.stop_reason != ""))
        ),
        "stopped",
        None,
        _stop_reasons,
        CLOCK,
    ),
    EndRule(
        "the kernel killed a process of it for memory",
        lambda it: it.is_supervised_end and it.memory_kill,
        "failed",
        "memory",
        _all_reasons,
        CLOCK,
    ),
    EndRule(
        "the stage reports an error",
        lambda it: it.is_supervised_end and it.reported == "failed",
        "failed",
        None,
        _all_reasons,
        CLOCK,
    ),
    EndRule(
        "its process was killed (SIGKILL, SIGTERM) and left no report",
        lambda it: it.exit_code in (-signal.SIGKILL, -signal.SIGTERM),
        "failed",
        "lost",
        _all_reasons,
        CLOCK,
    ),
    EndRule(
        "its process ended otherwise and left no report",
        lambda it: it.is_supervised_end,
        "failed",
        "code",
        _all_reasons,
        CLOCK,
    ),
    EndRule(
        "it never wrote a heartbeat",
        lambda it: it.heartbeat is None,
        "lost",
        "lost",
        lambda _: "its pod never started",
        NOTHING,
    ),
    EndRule(
        "reaper, launcher or Kubernetes ended it for its money",
        lambda it: it.state == BROKE or it.pod_reason.startswith(OUT_OF_MONEY),
        "lost",
        "money",
        lambda it: "its money was used up and it was ended" if it.state == BROKE else _lost_reason(it),
        LAST_BEAT,
    ),
    EndRule(
        "reaper or launcher ended it for its silence",
        lambda it: it.state == SILENT or it.pod_reason.startswith(ENDED_SILENT),
        "lost",
        "silent",
        lambda it: "it wrote no heartbeats and was ended" if it.state == SILENT else _lost_reason(it),
        LAST_BEAT,
    ),
    EndRule(
        "the cluster reports that it ran out of memory, or that it was killed near its limit",
        lambda it: is_out_of_memory(it.pod_reason, it.heartbeat),
        "lost",
        "memory",
        _lost_reason,
        LAST_BEAT,
    ),
    EndRule(
        "its supervisor died, and what that left has ended",
        lambda it: it.state == LOST,
        "lost",
        "lost",
        lambda it: "its supervisor died; its last process ended" if not it.pod_reason else _lost_reason(it),
        LAST_BEAT,
    ),
    EndRule(
        "its pod is gone",
        lambda _: True,
        "lost",
        "lost",
        _lost_reason,
        LAST_BEAT,
    ),
)
"""The first rule that holds decides."""


def _rule(evidence: EndEvidence) -> EndRule:
    return next(rule for rule in RULES if rule.holds(evidence))


def how_it_ended(evidence: EndEvidence) -> EndVerdict:
    """Return how an attempt ended, by the first rule that holds."""
    return _rule(evidence).end(evidence)


def cost_of_end(evidence: EndEvidence) -> EndCost:
    """Return what an attempt pays, by the first rule that holds."""
    return _rule(evidence).pays.cost(evidence)
