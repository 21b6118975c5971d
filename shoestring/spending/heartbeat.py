"""Heartbeats: what the supervisor of a stage writes to the store at a fixed interval while the stage runs."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd, usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import (
    AdaptationChange,
    GpuUse,
    PricePoint,
    ResourceUsage,
    SpendForecast,
    TimeShares,
)
from shoestring.core.record import StoredRecord, record_bytes, validation_message

if TYPE_CHECKING:
    # A stage reads no decision, and is paid for while it imports.
    from shoestring.routing.decision import Decision

HIGH_MEMORY_SHARE = 0.9
"""Above this share of its memory limit a supervisor writes a heartbeat at once: its container may be killed
before the next one is due.
"""
KILLED = "exit code 137"
"""How the cluster's reason for a pod's end closes if a container was killed (128 + SIGKILL)."""
OUT_OF_MEMORY = "OOMKilled"

SILENT = "silent"
"""The state of an attempt that was ended because its supervisor wrote no heartbeats. Who ended it writes this
heartbeat, whose `at` is the moment of the end.
"""
BROKE = "out-of-money"
"""The state of an attempt that the reaper, or its launcher, ended because its money was used up, likewise."""
LOST = "lost"
"""The state of an attempt whose supervisor died and left processes. Who ended the last of them writes this
heartbeat, likewise.
"""
ENDED_STATES = (SILENT, BROKE, LOST)
"""States of a last heartbeat that the attempt's supervisor did not write: `at` is the end of the attempt."""
RUNNING_STATES = ("starting", "running", "stopping")
MIN_SILENCE_S = 10.0
UNSUPERVISED = "unsupervised"
"""The state of a component that does not use Shoestring. The route step before it writes this heartbeat."""


class Heartbeat(StoredRecord):
    """The last heartbeat of one attempt. `spent_usd` is measured by the supervisor's clock, from the pod's
    start.
    """

    run_id: str
    stage: str
    attempt: int
    pod: PodRef
    state: str = Field(
        description="starting, running, stopping, or unsupervised; at the end done, stopped, failed, lost, "
        "silent or out-of-money"
    )
    usd_per_hour: Usd = Field(description="the current price")
    prices: tuple[PricePoint, ...] = Field(
        (), description="all prices of the attempt, each with its start; empty: one price throughout"
    )
    unread_usd_per_hour: Usd | None = Field(
        None, description="the price from this heartbeat on if nobody reads the current one; null: no other"
    )
    started_at: AwareDatetime
    at: AwareDatetime
    interval_s: float = Field(gt=0)
    spent_usd: Usd
    fees_usd: Usd = Field(
        usd("0"), description="what the attempt owes in addition to its time, if this is its last heartbeat"
    )
    phase: str = ""
    samples: int = 0
    total: int | None = None
    usage: ResourceUsage = ResourceUsage()
    changes: tuple[AdaptationChange, ...] = Field((), description="adaptations of the stage so far")
    forecast: SpendForecast | None = None
    time_shares: TimeShares | None = Field(
        None,
        exclude_if=lambda shares: shares is None,
        description="where the time of a training's last seconds went",
    )
    gpu: GpuUse | None = Field(
        None,
        exclude_if=lambda use: use is None,
        description="the use of its GPUs so far; null: unknown",
    )
    quality: dict[str, float] = Field({}, description="metric -> its last value")
    memory_share: float | None = Field(
        None,
        description="highest memory use of the pod's container, without file cache that the kernel can drop, "
        "as a share of its limit; null: no limit",
    )

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.run_id, self.stage, self.attempt)

    @property
    def known_prices(self) -> tuple[PricePoint, ...]:
        """All prices of the attempt, each with its start."""
        return self.prices or (PricePoint(at=self.started_at, usd_per_hour=self.usd_per_hour),)


def attempt_heartbeat(
    decision: Decision,
    pod: PodRef,
    state: str,
    began: datetime,
    at: datetime,
    *,
    interval_s: float = 1.0,
    spent_usd: Decimal = Decimal(0),
) -> Heartbeat:
    """Return a heartbeat of an attempt as it was decided, before anything is measured."""
    assert decision.choice is not None
    return Heartbeat(
        run_id=decision.question.run_id,
        stage=decision.question.stage,
        attempt=decision.question.attempt,
        pod=pod,
        state=state,
        usd_per_hour=decision.choice.usd_per_hour,
        started_at=began,
        at=at,
        interval_s=interval_s,
        spent_usd=spent_usd,
    )


def put_heartbeat(store: Store, heartbeat: Heartbeat, *, if_absent: bool = False) -> bool:
    """Write a heartbeat; return False if it was to be the first, and is not. Raises StoreError."""
    key = store_layout.heartbeat(heartbeat.run_id, heartbeat.attempt_id)
    return store.put(key, record_bytes(heartbeat), if_absent=if_absent)


def last_heartbeat(store: Store, run_id: str, attempt: object) -> Heartbeat | None:
    """Return the last heartbeat of an attempt (STAGE-NUMBER), or None if it wrote none. Raises DataError."""
    key = store_layout.heartbeat(run_id, attempt)
    try:
        return Heartbeat.model_validate_json(store.fetch(key).read_bytes())
    except NotInStore:
        return None
    except ValidationError as error:
        raise DataError(
            f"{key} is not a heartbeat ({validation_message(error)}): "
            f"settle {attempt} by hand, or delete the heartbeat to settle at $0"
        ) from error


def ended_silent(last: Heartbeat, at: datetime, state: str = SILENT) -> Heartbeat:
    """Return the heartbeat of an attempt that is ended, or has ended, at `at`, and wrote none since `last`.

    Its supervisor read no prices in that time.
    """
    prices = last.known_prices
    if last.unread_usd_per_hour is not None and last.state != SILENT:
        prices += (PricePoint(at=last.at, usd_per_hour=last.unread_usd_per_hour),)
    return last.model_copy(update={"state": state, "at": at, "prices": prices})


def record_lost(store: Store, run_id: str, attempt: object, at: datetime) -> None:
    """Record that the last process of an attempt ended at `at`, unless its supervisor did. Raises StoreError,
    DataError.
    """
    last = last_heartbeat(store, run_id, attempt)
    if last is not None and last.state in RUNNING_STATES:
        put_heartbeat(store, ended_silent(last, max(at, last.at), LOST))


def silence_limit_s(interval_s: float, silent_intervals: float) -> float:
    """Return after how many seconds without a heartbeat a stage is ended from outside. `interval_s`: of its
    heartbeats.
    """
    return max(MIN_SILENCE_S, silent_intervals * interval_s)


def is_out_of_memory(pod_reason: str, heartbeat: Heartbeat | None) -> bool:
    """Return whether a pod ended for lack of memory: the cluster says so, or it was killed near its limit.

    A kubelet under load may report only that a container was killed.
    """
    share = heartbeat.memory_share if heartbeat else None
    was_close = share is not None and share >= HIGH_MEMORY_SHARE
    return pod_reason == OUT_OF_MEMORY or (was_close and pod_reason.endswith(KILLED))
