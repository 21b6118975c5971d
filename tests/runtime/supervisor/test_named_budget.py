"""The budget that a refusal names is enough: what supervisors keep back on spot stops no stage."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import CHAIN, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.config.world import World
from shoestring.core.errors import BudgetTooSmall
from shoestring.core.money import MICRO
from shoestring.core.types import Market, Need
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.extension_headroom import OVERRUN_SHARE
from shoestring.runtime.supervisor.background_io import background_io
from shoestring.runtime.supervisor.extension import extend_or_stop

ROW = "{pool: cpu-1, market: %s, usd_per_hour: '%s', as_of: 2026-11-01, source: a test}"
POOL = "{name: cpu-1, cores: 1, memory_gb: 8, markets: {on-demand: {}, spot: {}}}"
DISCOUNTS = ["0.028", "0.05", "0.099"]


def spot_world(folder: Path, spot_usd_per_hour: str) -> World:
    """Return a world with one pool, of which on-demand costs $0.10 an hour."""
    path = folder / "world.yaml"
    rows = f"{ROW % ('on-demand', '0.10')}, {ROW % ('spot', spot_usd_per_hour)}"
    path.write_text(f"name: one\nstore: {folder / 'store'}\npools: [{POOL}]\nprices: [{rows}]\n")
    return small_world(path, folder, SetClock())


def begin_with_named_budget(world: World, recipe: Path, needs: tuple[Need, ...] = CHAIN) -> StartedAttempt:
    with pytest.raises(BudgetTooSmall) as refused:
        admit(world, run_request(recipe, needs=needs, budget_usd=MICRO))
    return begin(world, run_request(recipe, needs=needs, budget_usd=refused.value.smallest_usd))


@pytest.mark.parametrize("spot", DISCOUNTS)
def test_a_stage_within_its_overrun_share_is_not_stopped_with_the_named_budget(
    flights_slice: Path, tmp_path: Path, spot: str
) -> None:
    began = begin_with_named_budget(spot_world(tmp_path, spot), flights_slice)
    attempt = began.attempt
    assert attempt.choice.market is Market.SPOT
    most_usd = attempt.choice.p95_usd * (1 + OVERRUN_SHARE)
    with background_io() as io:
        while attempt.spent_usd() < most_usd - attempt.price_usd(0.2):
            extend_or_stop(attempt, began.ledger, io)
            assert not attempt.stop_reason
            began.world.clock.sleep(0.1)
    # The exit is paid for at on-demand, with the later stages still reserved for.
    assert attempt.spent_usd() + attempt.exit_usd <= attempt.reserved_usd
    left_usd = began.ledger.state(began.account).left_usd
    assert left_usd is not None and left_usd >= attempt.choice.reserved_later_usd


TRAIN, EVALUATE = CHAIN[-2:]
IN_PARALLEL = tuple(EVALUATE.model_copy(update={"stage": name, "after": ("train",)}) for name in "ab")


@pytest.mark.parametrize("spot", DISCOUNTS)
@pytest.mark.parametrize("later", [(EVALUATE,), IN_PARALLEL], ids=["one", "two in parallel"])
def test_a_training_that_spends_all_its_money_leaves_what_the_evaluations_keep_back(
    flights_slice: Path, tmp_path: Path, spot: str, later: tuple[Need, ...]
) -> None:
    began = begin_with_named_budget(spot_world(tmp_path, spot), flights_slice, (TRAIN, *later))
    training = began.attempt
    assert training.elastic
    reserved_usd = began.ledger.state(began.account).reservations[str(training.id)].amount_usd
    assert reserved_usd == training.choice.budget_usd >= training.choice.p95_usd + training.exit_usd
    left_usd = began.ledger.state(began.account).left_usd
    assert left_usd is not None
    on_demand = Decimal("0.10")
    kept_usd = (on_demand * Decimal("1.5") + (on_demand - Decimal(spot))) / 3600
    assert left_usd >= training.choice.reserved_later_usd + len(later) * kept_usd
