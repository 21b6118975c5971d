"""External components in the reaper's looks. Nothing in their pods meters them, so the reaper does: it
extends their reservations as a supervisor would, and says which of them have used up their money.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import BudgetExceeded, LedgerConflict
from shoestring.core.interfaces import StagePod
from shoestring.core.receipt import PricePoint
from shoestring.data.run_records import Run
from shoestring.routing.decision import Decision
from shoestring.runtime.route_step.external_components import cost_of_periods_usd
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.extension import due_ahead_usd, extend_reservation
from shoestring.spending.exit_money import min_extension_usd
from shoestring.spending.heartbeat import Heartbeat, put_heartbeat
from shoestring.spending.ledger.account import Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import RateChanges


@dataclass(frozen=True, slots=True)
class ExternalStage:
    """An attempt at an external component, with all of its pods: an engine may have made one again.

    `running`: those that can be ended. `now`: the cluster's time.
    """

    run: Run
    name: str
    decision: Decision
    reservation: Reservation
    heartbeat: Heartbeat
    pods: tuple[StagePod, ...]
    running: tuple[StagePod, ...]
    now: datetime

    @property
    def began(self) -> datetime:
        """When a node accepted its first pod."""
        return min(
            (pod.lifetime.started_at for pod in self.pods if pod.lifetime.started_at), default=self.now
        )

    def cost_usd(self, prices: Sequence[PricePoint]) -> Decimal:
        """Return what its pods have cost so far, without fees."""
        lifetimes = [pod.lifetime for pod in self.pods]
        periods = ((life.started_at, life.finished_at or self.now) for life in lifetimes if life.started_at)
        return cost_of_periods_usd(prices, periods)


def attempt_of(world: World, stage: ExternalStage) -> Attempt:
    """Return the state of an external component as its supervisor would have it, if it had one.

    What earlier looks read of its price is in its heartbeat.
    """
    now, now_s = world.clock.now(), world.clock.monotonic_s()

    def moment_s(at: datetime) -> float:
        return now_s - (now - at).total_seconds()

    prices = stage.heartbeat.prices
    key = stage.reservation.decision_key or store_layout.decision(stage.run.run_id, stage.name)
    return Attempt(
        world,
        stage.run,
        stage.decision,
        key,
        {},
        now_s - (stage.now - stage.began).total_seconds(),
        stage.reservation.amount_usd,
        rate_changes=tuple((moment_s(price.at), price.usd_per_hour) for price in prices[1:]),
        priced_until_s=moment_s(stage.heartbeat.at) if prices else None,
    )


def price_points(world: World, attempt: Attempt, changes: RateChanges) -> tuple[PricePoint, ...]:
    """Return the prices of an attempt with these changes, each with its beginning."""
    now, now_s = world.clock.now(), world.clock.monotonic_s()
    rates = ((attempt.started_s, attempt.choice.usd_per_hour), *changes)
    return tuple(
        PricePoint(at=now - timedelta(seconds=now_s - since_s), usd_per_hour=price)
        for since_s, price in rates
    )


def out_of_money(world: World, ledger: Ledger, stage: ExternalStage) -> str:
    """Return why an external component must end now; empty: its reservation pays for it, or was extended.

    Its price is read, and recorded in its heartbeat, as a supervisor does. An elastic stage was given all
    that it may have.
    """
    attempt = attempt_of(world, stage)
    attempt.update_price()
    if attempt.floats and not attempt.unpriced:
        record_prices(world, stage, attempt)
    prices = price_points(world, attempt, attempt.limit_meter().rate_changes)
    spent_usd = stage.cost_usd(prices) + attempt.choice.fees_usd
    if spent_usd + due_ahead_usd(attempt, attempt.reserved_usd) < attempt.reserved_usd:
        return ""
    refusal = "it had all that it may have" if attempt.elastic else extend(ledger, attempt, spent_usd)
    if not refusal or spent_usd < attempt.reserved_usd:
        return ""
    return f"it cost ${spent_usd} of ${attempt.reserved_usd} reserved, and {refusal}"


def record_prices(world: World, stage: ExternalStage, attempt: Attempt) -> None:
    """Write the prices so far into the heartbeat, for the next look and for the settlement."""
    update = {"prices": attempt.prices(), "usd_per_hour": attempt.usd_per_hour, "at": world.clock.now()}
    put_heartbeat(world.store, stage.heartbeat.model_copy(update=update))


def extend(ledger: Ledger, attempt: Attempt, spent_usd: Decimal) -> str:
    """Extend the reservation by the rule of a supervisor; return the ledger's refusal, or nothing.

    The request names the amount that it extends, so two reapers extend it once.
    """
    min_usd = min_extension_usd(attempt.exit_usd) + max(Decimal(0), spent_usd - attempt.reserved_usd)
    try:
        extend_reservation(attempt, ledger, min_usd, id=f"reaper/{attempt.reserved_usd}")
    except BudgetExceeded as error:
        return f"the ledger refused an extension: {error}"
    except LedgerConflict:
        # It was settled, or another reaper has just extended it.
        pass
    return ""
