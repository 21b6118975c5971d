"""The evidence of how an attempt ended, and the verdict that follows: its status, cause and cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from shoestring.core.receipt import Cause
from shoestring.spending.heartbeat import Heartbeat

EndStatus = Literal["done", "stopped", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class StageReport:
    """The end of a stage as its own code reports it."""

    status: Literal["done", "stopped", "failed"]
    cause: Cause = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEvidence:
    """The evidence of one attempt's end.

    Of its supervisor, where that still ran: `report`, None if the stage wrote none; `stop_reason` and
    `stop_cause`, if it stopped the stage; the `exit_code` of the stage's process, negative for a signal, None
    if no supervisor saw it; and whether the kernel killed a process of the stage for memory. Of others:
    `pod_reason`, the cluster's reason for the pod's end, and the last `heartbeat`. `measured_usd`: what its
    time cost, with fees, by the supervisor's clock or its pods' own times; `is_upper_bound`: it may be less.
    """

    stage: str = ""
    report: StageReport | None = None
    stop_reason: str = ""
    stop_cause: Cause = ""
    exit_code: int | None = None
    memory_kill: bool = False
    pod_reason: str = ""
    heartbeat: Heartbeat | None = None
    measured_usd: Decimal = Decimal(0)
    is_upper_bound: bool = False

    @property
    def state(self) -> str:
        """The state in the last heartbeat; empty without one."""
        return self.heartbeat.state if self.heartbeat else ""

    @property
    def reported(self) -> str:
        return self.report.status if self.report else ""

    @property
    def is_supervised_end(self) -> bool:
        return self.exit_code is not None


@dataclass(frozen=True, slots=True)
class EndVerdict:
    """How an attempt ended, as its receipt has it."""

    status: EndStatus
    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True)
class EndCost:
    """The cost of an ended attempt, with fees. `is_capped`: at most its reservation, since it may be less."""

    usd: Decimal
    is_capped: bool = False
