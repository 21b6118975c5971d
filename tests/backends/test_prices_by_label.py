"""Undeclared pools are priced by the provider, region, zone and machine in their nodes' labels."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from api_objects import node
from price_book_laws import BookLaws, listed

from shoestring.backends.kubernetes.pools import ClusterSnapshot, price_shares, take_snapshot
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook
from shoestring.core.types import Market
from shoestring.pricing.catalogues import PriceListing

TODAY = date(2026, 11, 1)
MACHINE, REGION, ZONE = (
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
GKE = {
    "cloud.google.com/gke-nodepool": "gke",
    MACHINE: "n2-standard-4",
    REGION: "us-central1",
    ZONE: "us-central1-a",
}
GKE_SPOT = GKE | {"cloud.google.com/gke-nodepool": "gke-spot", "cloud.google.com/gke-spot": "true"}
EKS = {
    "eks.amazonaws.com/nodegroup": "eks",
    MACHINE: "g6.xlarge",
    REGION: "us-east-1",
    "k8s.amazonaws.com/accelerator": "nvidia-l4",
}
AKS = {"kubernetes.azure.com/agentpool": "aks", MACHINE: "Standard_D4s_v5", REGION: "eastus"}
KARPENTER = {
    "karpenter.sh/nodepool": "any",
    "karpenter.sh/capacity-type": "spot",
    "karpenter.k8s.aws/instance-family": "m7i",
    MACHINE: "m7i.xlarge",
    REGION: "us-east-1",
    ZONE: "us-east-1b",
}

LIST = """provider,region,zone,machine,gpu,gpu_count,cores,market,usd_per_hour,as_of,source
gcp,us-central1,,n2-standard-4,,0,4,on-demand,0.1942,2026-10-01,list
gcp,europe-west4,,n2-standard-4,,0,4,on-demand,0.2139,2026-10-01,list
gcp,us-central1,,n2-standard-4,,0,4,spot,0.0500,2026-10-01,list
aws,us-east-1,,g6.xlarge,L4,1,4,on-demand,0.8048,2026-10-01,list
aws,us-east-1,us-east-1a,m7i.xlarge,,0,4,spot,0.0700,2026-10-01,list
aws,us-east-1,us-east-1b,m7i.xlarge,,0,4,spot,0.0900,2026-10-01,list
azure,eastus,,Standard_D4s_v5,,0,4,on-demand,0.1920,2026-10-01,list
azure,us-central1,,n2-standard-4,,0,4,on-demand,0.9000,2026-10-01,a name of another's
"""


def seen(*labels: dict[str, str]) -> ClusterSnapshot:
    nodes = [
        node(f"node-{number}", labels=each, gpus=int("accelerator" in "".join(each)))
        for number, each in enumerate(labels)
    ]
    return take_snapshot(nodes, [], [])


def book(*labels: dict[str, str]) -> PriceBook:
    return price_shares(listed(LIST), seen(*labels), Tariffs(default_usd_per_gb=Decimal(0)), TODAY)


@pytest.mark.parametrize(
    ("labels", "market", "usd"),
    [
        (GKE, Market.ON_DEMAND, "0.194200"),
        (GKE_SPOT, Market.SPOT, "0.050000"),
        (GKE | {REGION: "europe-west4"}, Market.ON_DEMAND, "0.213900"),
        (EKS, Market.ON_DEMAND, "0.804800"),
        (AKS, Market.ON_DEMAND, "0.192000"),
    ],
)
def test_a_node_costs_the_listed_price_of_its_machine_in_its_region(
    labels: dict[str, str], market: Market, usd: str
) -> None:
    (whole,) = (
        quote for quote in book(labels).quotes if quote.market is market and quote.pool == _whole(labels)
    )
    assert whole.usd_per_hour == Decimal(usd) and whole.source == "list"


def _whole(labels: dict[str, str]) -> str:
    return seen(labels).pools[-1].name


def test_a_pool_in_several_zones_costs_the_most_expensive_zone_unless_one_is_declared() -> None:
    assert max(quote.usd_per_hour for quote in book(KARPENTER).quotes) == Decimal("0.090000")


@pytest.mark.parametrize(
    "labels",
    [
        GKE | {REGION: "asia-east1"},
        GKE | {MACHINE: "n2-standard-8"},
        {"pool": "bare"},
        {"cloud.google.com/gke-nodepool": "a"},
    ],
)
def test_labels_that_no_list_prices_give_no_price(labels: dict[str, str]) -> None:
    """The price of another region, machine or provider is not used."""
    assert seen(labels).pools and book(labels).quotes == ()


def test_a_pool_of_two_machine_types_has_no_price() -> None:
    assert book(GKE, GKE | {MACHINE: "g6.xlarge"}).quotes == ()


class TestPoolsKnownByTheirLabels(BookLaws):
    """The laws of price books hold for discovered pools, too."""

    def listing(self) -> PriceListing:
        return listed(LIST)

    def pools(self):  # type: ignore[no-untyped-def]
        return seen(GKE, GKE_SPOT, EKS, AKS, KARPENTER).whole_nodes
