"""Quantities, requests and nodes are parsed as the scheduler parses them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from api_objects import node_item

from shoestring.backends.kubernetes.node_info import NodeResources, parse_node, parse_quantity, pod_requests


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
def test_a_quantity_is_parsed_as_kubernetes_writes_it(text: str, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


def test_a_malformed_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'4 cores' is not a Kubernetes quantity"):
        parse_quantity("4 cores")


def test_a_pod_requests_the_larger_of_its_containers_and_its_init_peak() -> None:
    def asks(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}} | more

    containers = [asks("500m"), asks("500m")]
    assert pod_requests({"containers": containers}) == NodeResources(1000, pods=1)
    assert pod_requests({"containers": containers, "initContainers": [asks("3")]}) == NodeResources(
        3000, pods=1
    )
    sidecar = asks("1", restartPolicy="Always")
    assert pod_requests({"containers": containers, "initContainers": [sidecar]}) == NodeResources(
        2000, pods=1
    )
    assert pod_requests({"containers": containers, "initContainers": [sidecar, asks("3")]}) == NodeResources(
        4000, pods=1
    )
    assert pod_requests({"containers": containers, "overhead": {"cpu": "1"}}) == NodeResources(2000, pods=1)
    assert pod_requests({"containers": containers} | asks("6")) == NodeResources(6000, pods=1)


def test_a_node_that_is_being_deleted_is_not_schedulable() -> None:
    item = node_item("a")
    assert parse_node(item).is_schedulable
    item["metadata"]["deletionTimestamp"] = "2026-07-30T00:00:00Z"
    assert not parse_node(item).is_schedulable
