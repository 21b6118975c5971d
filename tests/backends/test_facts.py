"""Quantities, requests and nodes are read as the scheduler reads them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from nodes import node_item

from shoestring.backends.kubernetes.node_facts import Amount, node_facts, pod_requests, quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100m", "0.1"),
        ("2", "2"),
        ("1.5", "1.5"),
        ("1e3", "1000"),
        ("64k", "64000"),
        ("128Mi", "134217728"),
        ("1E", "1e18"),
        ("5n", "5e-9"),
    ],
)
def test_a_quantity_is_read_as_kubernetes_writes_it(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'4 cores' is not a Kubernetes quantity"):
        quantity("4 cores")


def test_a_pod_asks_for_its_containers_or_for_the_largest_moment_of_its_start() -> None:
    def asks(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}} | more

    containers = [asks("500m"), asks("500m")]
    assert pod_requests({"containers": containers}) == Amount(1000, pods=1)
    assert pod_requests({"containers": containers, "initContainers": [asks("3")]}) == Amount(3000, pods=1)
    sidecar = asks("1", restartPolicy="Always")
    assert pod_requests({"containers": containers, "initContainers": [sidecar]}) == Amount(2000, pods=1)
    assert pod_requests({"containers": containers, "initContainers": [sidecar, asks("3")]}) == Amount(
        4000, pods=1
    )
    assert pod_requests({"containers": containers, "overhead": {"cpu": "1"}}) == Amount(2000, pods=1)
    assert pod_requests({"containers": containers} | asks("6")) == Amount(6000, pods=1)


def test_a_node_on_its_way_out_takes_no_pods() -> None:
    item = node_item("a")
    assert node_facts(item).takes_pods
    item["metadata"]["deletionTimestamp"] = "2026-07-30T00:00:00Z"
    assert not node_facts(item).takes_pods
