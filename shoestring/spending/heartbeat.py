"""What the frame of a stage says of itself, again and again, while it lives."""

from __future__ import annotations

from pydantic import AwareDatetime, Field, ValidationError

from shoestring.core.errors import DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd, usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import AdaptationChange, PricePoint, ResourceUsage, SpendForecast
from shoestring.core.record import StoredRecord

# Said of a component that knows nothing of us by the router before it.
UNSUPERVISED = "let go"


class Heartbeat(StoredRecord):
    """The last sign of life of one attempt. `spent_usd` is by the frame's own clock, from the pod's start."""

    run_id: str
    stage: str
    attempt: int
    pod: PodRef
    state: str = Field(
        description="starting, running, stopping, or let go; at the end done, stopped, failed or lost"
    )
    usd_per_hour: Usd = Field(description="now")
    prices: tuple[PricePoint, ...] = Field(
        (), description="all that there were, each from when on; empty: one, all along"
    )
    started_at: AwareDatetime
    at: AwareDatetime
    interval_s: float = Field(gt=0)
    spent_usd: Usd
    fees_usd: Usd = Field(
        usd("0"), description="what it owes beside time, should this be its last sign of life"
    )
    phase: str = ""
    samples: int = 0
    total: int | None = None
    usage: ResourceUsage = ResourceUsage()
    changes: tuple[AdaptationChange, ...] = Field((), description="what it changed of itself so far")
    forecast: SpendForecast | None = None
    quality: dict[str, float] = Field({}, description="metric -> the last value")


def heartbeat_key(run_id: str, hold: str) -> str:
    """`hold` is STAGE-ATTEMPT, as in the ledger."""
    return f"runs/{run_id}/heartbeats/{hold}.json"


def last_heartbeat(store: Store, run_id: str, hold: str) -> Heartbeat | None:
    """None when the attempt never said anything. Raises DataError."""
    key = heartbeat_key(run_id, hold)
    try:
        return Heartbeat.model_validate_json(store.fetch(key).read_bytes())
    except NotInStore:
        return None
    except ValidationError as error:
        raise DataError(
            f"{key} is not a heartbeat ({error.errors()[0]['msg']}): settle {hold} by hand, or delete it to settle at $0"
        ) from error
