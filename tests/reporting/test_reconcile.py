"""Reconciliation with OpenCost.

The files are built here in the format of opencost/opencost: core/pkg/opencost/allocation_json.go, in the
envelope of pkg/costmodel/router.go.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_run import NOON, RUN_ID
from run_stories import done, far

from shoestring.core.errors import UsageError
from shoestring.core.money import from_microusd
from shoestring.core.record import utc_text
from shoestring.reporting.charges import Charge, read_charges
from shoestring.reporting.exports.opencost import prometheus_label, read_allocations
from shoestring.reporting.exports.reconcile import Reconciliation, reconcile
from shoestring.reporting.terminal_text import reconciliation_text

DAY = ("2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z")
STAGES = ("train", "evaluate", "route-train", "", "brew")
LABELS = {"shoestring_dev_run": RUN_ID, "shoestring_dev_stage": "train"}


def allocation(
    name: str, total: float, labels: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    """One allocation, as OpenCost marshals it; amounts in dollars."""
    parts = dict(zip(("cluster", "node", "namespace", "pod", "container"), name.split("/"), strict=False))
    zeros = dict.fromkeys(
        (
            "cpuCostIdle",
            "gpuCostIdle",
            "ramCostIdle",
            "pvCost",
            "networkCost",
            "loadBalancerCost",
            "sharedCost",
            "externalCost",
        ),
        0,
    )
    window = {"window": {"start": DAY[0], "end": DAY[1]}, "start": DAY[0], "end": DAY[1], "minutes": 1440}
    return (
        {"name": name, "properties": parts | ({"labels": labels} if labels else {}), "totalCost": total}
        | window
        | zeros
        | fields
    )


def answer(*allocations: dict[str, Any]) -> bytes:
    return json.dumps(
        {"code": 200, "status": "success", "data": [{each["name"]: each for each in allocations}]}
    ).encode()


@pytest.fixture(scope="module")
def charges(tmp_path_factory: pytest.TempPathFactory) -> list[Charge]:
    return read_charges(done(tmp_path_factory.mktemp("done")).store)[0]


def reconciled(charges: list[Charge], data: bytes) -> Reconciliation:
    found = read_allocations(data, {RUN_ID})
    return reconcile(charges, found, min(each.start for each in found), max(each.end for each in found))


def paid_usd(charges: list[Charge], stage: str) -> Decimal:
    return sum(
        (from_microusd(charge.paid_microusd) for charge in charges if charge.entry.stage == stage), Decimal(0)
    )


def test_a_pod_is_matched_by_its_labels_and_its_other_costs_are_listed_separately(
    charges: list[Charge],
) -> None:
    train_usd = paid_usd(charges, "train")
    opencost_usd = float(train_usd) + 0.5
    data = answer(
        allocation("c/n/ns/pod-a/main", opencost_usd, LABELS, pvCost=0.1, sharedCost=0.25, cpuCostIdle=0.05),
        allocation("c/__idle__", 3.0),
        allocation("c/__unmounted__/__unmounted__", 0.5),
        allocation("c/n/kube-system/dns/dns", 0.2),
    )
    found = reconciled(charges, data)
    line = next(line for line in found.lines if line.stage == "train")
    assert (line.found_in, line.ledger_usd, line.opencost_usd) == (
        "both",
        train_usd,
        train_usd + Decimal("0.5"),
    )
    assert (line.other_usd, line.shared_usd, line.idle_usd, line.unexplained_usd) == tuple(
        map(Decimal, ("0.1", "0.25", "0.05", "0.1"))
    )
    assert (found.idle_usd, found.unmounted_usd, found.other_workloads_usd) == (
        Decimal(3),
        Decimal("0.5"),
        Decimal("0.2"),
    )
    assert {line.found_in for line in found.lines if line.stage != "train"} == {"ledger"}
    assert "unexplained" in reconciliation_text(found)


def test_the_ledgers_data_fees_are_in_no_pods_allocation(tmp_path: Path) -> None:
    charges = read_charges(far(tmp_path).store)[0]
    fees_usd = sum(
        (from_microusd(each.parts.fees_microusd) for each in charges if each.entry.stage == "ingest"),
        Decimal(0),
    )
    pod = allocation(
        "c/n/ns/a/main",
        float(paid_usd(charges, "ingest") - fees_usd),
        LABELS | {"shoestring_dev_stage": "ingest"},
    )
    (line,) = [line for line in reconciled(charges, answer(pod)).lines if line.stage == "ingest"]
    assert (line.fees_usd, line.unexplained_usd) == (fees_usd, 0) and fees_usd > 0


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.sampled_from(STAGES), st.booleans(), st.integers(0, 10**6)),
        max_size=8,
    )
)
def test_all_amounts_sum_to_the_micro_dollar(
    charges: list[Charge], rows: list[tuple[int, str, bool, int]]
) -> None:
    pods = [
        allocation(
            f"c/n/ns/pod-{number}/main",
            micro / 1e6,
            {"shoestring_dev_run": RUN_ID, "shoestring_dev_stage": stage} if is_labelled else None,
            networkCost=network_microusd / 1e6,
        )
        for number, (micro, stage, is_labelled, network_microusd) in enumerate(rows)
    ]
    found = reconciled(charges, answer(*pods, allocation("c/__idle__", 1.5)))
    assert found.opencost_usd == from_microusd(sum(micro for micro, *_ in rows) + 1_500_000)
    assert (
        found.opencost_usd
        == found.opencost_shoestring_usd
        + found.idle_usd
        + found.shared_usd
        + found.unmounted_usd
        + found.other_workloads_usd
    )
    assert sum((line.opencost_usd for line in found.lines), Decimal(0)) == found.opencost_shoestring_usd
    assert sum((line.ledger_usd for line in found.lines), Decimal(0)) == found.ledger_usd
    explained = sum((line.idle_usd + line.shared_usd + line.other_usd for line in found.lines), Decimal(0))
    assert found.opencost_shoestring_usd - found.ledger_usd == explained + found.unexplained_usd


@pytest.mark.parametrize(
    ("item", "stage"),
    [
        (
            allocation("c/n/ns/any/main", 1, {"pipeline_runid": RUN_ID, "shoestring_dev_stage": "train"}),
            "train",
        ),
        (
            allocation(
                "c/n/ns/any/main", 1, {"shoestring.dev/run": RUN_ID, "shoestring.dev/stage": "route-train"}
            ),
            "overhead",
        ),
        (
            allocation(
                "c/n/ns/any/main", 1, {"shoestring_dev_run": RUN_ID, "shoestring_dev_stage": "settle"}
            ),
            "overhead",
        ),
        (allocation(f"{RUN_ID}/evaluate", 1) | {"properties": {}}, "evaluate"),
        (allocation(f"c/n/ns/{RUN_ID}-train-8271/main", 1), ""),
    ],
    ids=["kubeflow", "router", "exit-step", "aggregated", "pod-name"],
)
def test_a_shoestring_pod_is_recognised(item: dict[str, Any], stage: str) -> None:
    found = read_allocations(answer(item), {RUN_ID})
    assert [(each.run_id, each.stage) for each in found] == [(RUN_ID, stage)]


def test_sets_of_several_days_are_read_and_empty_ones_are_skipped(charges: list[Charge]) -> None:
    one = allocation("c/n/ns/p/main", 1.25, LABELS)
    data = json.dumps({"code": 200, "data": [{one["name"]: one}, None, {}, {one["name"]: one}]}).encode()
    found = reconciled(charges, data)
    assert found.opencost_shoestring_usd == Decimal("2.5")


def test_only_charges_of_the_period_are_compared(charges: list[Charge]) -> None:
    early = {"start": "2026-11-01T00:00:00Z", "end": "2026-11-02T00:00:00Z"}
    found = reconciled(charges, answer(allocation("c/n/ns/p/main", 1, LABELS, **early)))
    assert (found.ledger_usd, [line.found_in for line in found.lines]) == (Decimal(0), ["opencost"])


def test_a_charge_that_ends_after_the_period_is_noted(charges: list[Charge]) -> None:
    short = {"start": DAY[0], "end": utc_text(NOON.replace(second=10))}
    assert (
        "ended after 2026-11-21 12:00 UTC"
        in reconciled(charges, answer(allocation("c/n/ns/p/main", 1, LABELS, **short))).notes[0]
    )


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"cost,usd", "not JSON"),
        (b'{"code": 500, "message": "no Prometheus"}', "OpenCost answered 500: no Prometheus"),
        (b'{"data": {"pod": 1}}', "no list of sets"),
        (b'"text"', "no list of sets"),
        (b'{"data": [{"a": 3}]}', "data[0]['a'] is not an allocation"),
        (answer(allocation("a", 1) | {"totalCost": None}), "has no totalCost"),
        (answer(allocation("a", 1) | {"totalCost": "1"}), "totalCost '1'"),
        (answer(allocation("a", 1) | {"start": "soon"}), "start 'soon'"),
        (answer(allocation("a", 1, pvCost=[1])), "a number of dollars is expected"),
    ],
)
def test_an_invalid_response_is_refused_with_the_place(data: bytes, place: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_allocations(data, set())
    assert place in str(refused.value)


def test_labels_are_spelled_as_in_prometheus() -> None:
    assert prometheus_label("shoestring.dev/run") == "shoestring_dev_run"
