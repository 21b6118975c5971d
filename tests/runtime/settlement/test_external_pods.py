"""External components in the reaper's looks: extended as a supervisor would, and ended when their money is
used up.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from external_world import LATER, THEIRS, ExternalRun, choice_of, external_run

from shoestring.core.errors import Refused
from shoestring.core.interfaces import StagePod
from shoestring.core.types import Market
from shoestring.reporting.publish import publish
from shoestring.runtime.settlement.external_pods import out_of_money
from shoestring.runtime.settlement.looks import open_watch
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.entry import read_entry
from shoestring.spending.meter import cost_usd

LOOK_S, LATE_S = 5, 10
"""Between two looks, and how long after its money a pod may be ended."""


@pytest.fixture
def external(laptop: Path, tmp_path: Path) -> ExternalRun:
    return external_run(laptop, tmp_path)


def seconds(usd: Decimal, usd_per_hour: Decimal) -> float:
    """Return how long an amount lasts."""
    return float(usd / usd_per_hour * 3600)


def lifetime_s(pod: StagePod) -> float:
    life = pod.lifetime
    assert life.started_at and life.finished_at
    return (life.finished_at - life.started_at).total_seconds()


def extensions_usd(external: ExternalRun) -> list[Decimal]:
    """Return the extensions of the component in the run's account."""
    state, found = external.state, list[Decimal]()
    for number in range(1, state.entries + 1):
        sealed = read_entry(external.world.store, state.account, number)
        if sealed and (sealed.entry.kind, sealed.entry.reservation) == ("extend", "theirs-1"):
            found.append(Decimal(sealed.entry.amount_microusd) / 10**6)
    return found


def test_an_endless_component_is_extended_like_a_metered_stage_and_then_ended(external: ExternalRun) -> None:
    choice = choice_of(external.route((THEIRS, LATER)))
    external.start_pod("first")
    p95_s = int(seconds(choice.p95_usd, choice.usd_per_hour))
    assert external.run(int(p95_s * 0.8)) == [] == extensions_usd(external)
    assert external.run(int(p95_s * 0.4)) == []
    assert extensions_usd(external) == [choice.p95_usd / 2]
    (said,) = external.run_to_end()
    assert said.startswith("first was ended (theirs-1 of r): it cost $")
    assert f"and the ledger refused an extension: extend theirs-1 of r (${choice.reserved_later_usd} " in said
    assert external.queue.ended == {"0d3f-job": "OutOfMoney"}
    *halves, rest = extensions_usd(external)
    # The last one is what is left: less than a half, or with it what is too little for another one.
    assert set(halves) == {choice.p95_usd / 2} and 0 < rest < choice.p95_usd
    # It had all that is not reserved for later stages, and no more.
    assert external.state.left_usd == choice.reserved_later_usd


def test_what_an_endless_component_cost_is_booked_and_its_receipt_and_report_say_money(
    external: ExternalRun,
) -> None:
    choice = choice_of(external.route((THEIRS, LATER)))
    external.start_pod("first")
    external.run_to_end()
    reserved_usd = external.reserved_usd
    receipt = external.settle()
    assert (receipt.status, receipt.cause) == ("failed", "money") and not receipt.overrun_usd
    assert receipt.reason.startswith("OutOfMoney: it cost $")
    assert receipt.spent_usd == cost_usd(choice.usd_per_hour, receipt.seconds)
    assert reserved_usd <= receipt.spent_usd <= reserved_usd + cost_usd(choice.usd_per_hour, LATE_S)
    assert external.state.settled_usd["theirs-1"] == receipt.spent_usd and external.state.closed
    assert "Theirs failed: OutOfMoney: it cost" in publish(external.world.store, "r")
    verify(external.world.store, load_anchors(external.world.store))


def test_the_money_of_a_component_counts_from_the_start_of_its_pod(external: ExternalRun) -> None:
    choice = choice_of(external.route(budget_usd="0.0008"))
    assert external.run(300) == []
    external.start_pod("first")
    most_usd = external.reserved_usd + (external.state.left_usd or 0)
    end_s = int(seconds(most_usd, choice.usd_per_hour))
    assert end_s < 300
    assert external.run(end_s - LOOK_S) == []
    assert external.run(LOOK_S + LATE_S) and external.queue.ended


def test_a_stages_own_budget_limits_the_extensions_of_a_component(laptop: Path, tmp_path: Path) -> None:
    cap_usd = Decimal("0.0006")
    external = external_run(laptop, tmp_path, stages={"theirs": cap_usd})
    external.route()
    external.start_pod("first")
    external.run_to_end()
    assert external.reserved_usd == cap_usd
    assert external.state.left_usd and external.state.left_usd > cap_usd


def test_what_a_component_cost_above_the_cap_is_an_overrun(external: ExternalRun) -> None:
    choice = choice_of(external.route(budget_usd="0.0008"))
    external.start_pod("first")
    # No reaper looks meanwhile.
    external.world.clock.sleep(600)
    external.run_to_end()
    receipt = external.settle()
    true_usd = cost_usd(choice.usd_per_hour, receipt.seconds)
    assert receipt.seconds == 600
    assert (receipt.spent_usd + receipt.overrun_usd, receipt.cause) == (true_usd, "money")
    # The exit step pays some of it with what the overhead released.
    assert receipt.overrun_usd >= external.state.overrun_usd > 0 == external.state.left_usd
    publish(external.world.store, "r")
    summary = external.world.store.fetch("runs/r/summary.json").read_text()
    assert f'"overrun_usd": "{external.state.overrun_usd}"' in summary


def test_a_component_whose_money_is_used_up_is_not_routed_again(external: ExternalRun) -> None:
    external.route()
    external.start_pod("first")
    external.run_to_end()
    with pytest.raises(Refused, match=r"theirs is not tried again, .* OutOfMoney: it cost"):
        external.route()


def test_a_pod_that_an_engine_makes_again_after_its_money_is_ended_at_the_next_look(
    external: ExternalRun,
) -> None:
    external.route()
    external.start_pod("first")
    external.run_to_end()
    external.start_pod("second")
    (said,) = external.watch.look()
    assert said.startswith("second was ended (theirs-1 of r): it cost $")


def test_an_elastic_component_is_ended_at_its_reservation_without_an_extension(external: ExternalRun) -> None:
    external.route((THEIRS.model_copy(update={"elastic": True}), LATER))
    external.start_pod("first")
    (said,) = external.run_to_end()
    assert said.endswith("and it had all that it may have") and extensions_usd(external) == []


FLOATING = (Market.ON_DEMAND,)


def test_a_price_that_rises_counts_for_a_component_from_the_look_before(laptop: Path, tmp_path: Path) -> None:
    external = external_run(laptop, tmp_path, FLOATING)
    price = choice_of(external.route(budget_usd="0.0008")).usd_per_hour
    external.start_pod("first")
    external.run(20)
    external.prices.factor = Decimal(4)
    # A reaper that begins now knows the price from the heartbeat that the one before wrote.
    external.watch = open_watch(external.world, external.queue, external.watch.probe.times)
    external.run_to_end()
    receipt = external.settle()
    assert [each.usd_per_hour for each in receipt.prices] == [price, 4 * price]
    assert receipt.prices[1].at - receipt.started_at == timedelta(seconds=15)
    assert receipt.spent_usd + receipt.overrun_usd == cost_usd(price, 15) + cost_usd(
        4 * price, receipt.seconds - 15
    )
    assert receipt.seconds < 40


def test_on_another_market_the_price_of_the_decision_counts_until_the_end(external: ExternalRun) -> None:
    external.route(budget_usd="0.0008")
    external.start_pod("first")
    external.prices.factor = Decimal(4)
    external.run(20)
    assert external.queue.ended == {} and external.heartbeat.prices == ()


def test_a_price_that_cannot_be_read_counts_as_on_demand(laptop: Path, tmp_path: Path) -> None:
    external = external_run(laptop, tmp_path, FLOATING)
    price = choice_of(external.route()).usd_per_hour
    external.prices.factor = Decimal("0.5")
    external.start_pod("first")
    external.run(20)
    external.prices.factor = None
    external.run(20)
    assert [each.usd_per_hour for each in external.heartbeat.prices] == [price, price / 2, price]


def test_all_pods_of_a_component_that_its_engine_made_again_are_paid_for(external: ExternalRun) -> None:
    choice = choice_of(external.route(budget_usd="0.0008"))
    first = external.start_pod("first")
    external.run(40)
    external.queue.fail(first, "Evicted")
    external.run(60)
    external.start_pod("second")
    external.run_to_end()
    assert [pod.ref.name for pod in external.queue.failed] == ["first", "second"]
    lived_s = [lifetime_s(pod) for pod in external.queue.failed]
    assert lived_s[0] == 40 and lived_s[1] < 40
    receipt = external.settle()
    assert receipt.spent_usd + receipt.overrun_usd == sum(
        cost_usd(choice.usd_per_hour, each) for each in lived_s
    )
    assert (receipt.cause, receipt.seconds) == ("money", 100 + lived_s[1])


def test_an_attempt_at_a_component_pays_for_no_pod_of_another_attempt(external: ExternalRun) -> None:
    choice = choice_of(external.route())
    for name, lived_s in (("first", 7), ("second", 5)):
        pod = external.start_pod(name)
        external.world.clock.sleep(lived_s)
        external.queue.fail(pod, "")
        external.world.clock.sleep(70)
        if name == "first":
            external.route()
    external.settle()
    paid_usd = {name: external.state.settled_usd[name] for name in ("theirs-1", "theirs-2")}
    assert paid_usd == {
        "theirs-1": cost_usd(choice.usd_per_hour, 7),
        "theirs-2": cost_usd(choice.usd_per_hour, 5),
    }


def test_a_pod_that_began_in_the_second_of_its_decision_is_the_attempts_own(external: ExternalRun) -> None:
    external.world.clock.sleep(0.4)
    asked_at = external.route(budget_usd="0.0008").question.asked_at
    pod = external.start_pod("first")
    # As an API server writes it: in whole seconds.
    started_at = asked_at.replace(microsecond=0)
    assert started_at < asked_at
    external.queue.running = [replace(pod, lifetime=replace(pod.lifetime, started_at=started_at))]
    external.run_to_end()
    (ended,) = external.queue.failed
    receipt = external.settle()
    seconds = round(lifetime_s(ended), 3)
    assert (receipt.status, receipt.cause, receipt.seconds) == ("failed", "money", seconds)


def test_a_second_attempt_is_not_ended_for_what_the_first_one_cost(external: ExternalRun) -> None:
    choice = choice_of(external.route(budget_usd="0.0024"))
    first = external.start_pod("first")
    external.world.clock.sleep(seconds(choice.p95_usd, choice.usd_per_hour))
    external.queue.fail(first, "")
    external.world.clock.sleep(70)
    external.route(budget_usd="0.0024")
    external.start_pod("second")
    external.run(20)
    assert external.state.reservations["theirs-2"].amount_usd == choice.p95_usd


def test_the_fees_of_a_components_data_are_not_spent_on_its_time(external: ExternalRun) -> None:
    choice = choice_of(external.route())
    external.start_pod("first")
    external.world.clock.sleep(5)
    (stage,) = external.watch.reader.read(external.queue.pods()).external
    assert out_of_money(external.world, external.ledger, stage) == "" and extensions_usd(external) == []
    owing = choice.model_copy(update={"transfer_in_usd": choice.p95_usd * Decimal("0.9")})
    stage = replace(stage, decision=stage.decision.model_copy(update={"choice": owing}))
    assert out_of_money(external.world, external.ledger, stage) == ""
    assert extensions_usd(external) == [choice.p95_usd / 2]


def test_two_reapers_extend_a_component_once(external: ExternalRun) -> None:
    choice = choice_of(external.route())
    external.start_pod("first")
    external.world.clock.sleep(seconds(choice.p95_usd, choice.usd_per_hour))
    (before,) = external.watch.reader.read(external.queue.pods()).external
    external.watch.look()
    assert out_of_money(external.world, external.ledger, before) == ""
    assert len(extensions_usd(external)) == 1


def test_a_component_whose_run_cannot_be_read_does_not_protect_others(external: ExternalRun) -> None:
    external.route()
    external.start_pod("first")
    (key,) = external.world.store.list("runs/r/overhead/")
    external.world.store.put(key, b"{}")
    (said, *_) = external.run(60)
    assert said.startswith("theirs-1 of r cannot be judged: ") and external.watch.has_judged
