"""Pools that nobody declared are priced by what their nodes' labels say of provider, region, zone and machine."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from book_laws import BookLaws, listed
from nodes import node

from shoestring.backends.kubernetes.pools import Seen, priced, see
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook
from shoestring.core.types import Market
from shoestring.pricing.price_book import PriceListing

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


def seen(*labels: dict[str, str]) -> Seen:
    nodes = [
        node(f"node-{number}", labels=each, gpus=int("accelerator" in "".join(each)))
        for number, each in enumerate(labels)
    ]
    return see(nodes, [], [])


def book(*labels: dict[str, str]) -> PriceBook:
    return priced(listed(LIST), seen(*labels), Tariffs(default_usd_per_gb=Decimal(0)), TODAY)


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
def test_a_node_costs_what_the_list_asks_for_its_machine_where_it_is(
    labels: dict[str, str], market: Market, usd: str
) -> None:
    (whole,) = (
        quote for quote in book(labels).quotes if quote.market is market and quote.pool == _whole(labels)
    )
    assert whole.usd_per_hour == Decimal(usd) and whole.source == "list"


def _whole(labels: dict[str, str]) -> str:
    return seen(labels).pools[-1].name


def test_a_pool_in_zones_with_prices_of_their_own_costs_the_dearest_of_them_unless_it_is_declared_to_be_in_one() -> (
    None
):
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
def test_where_labels_name_nothing_that_a_list_asks_a_price_for_there_is_none(labels: dict[str, str]) -> None:
    """Not that of another region, machine or provider."""
    assert seen(labels).pools and book(labels).quotes == ()


def test_a_pool_of_machines_of_two_kinds_has_no_price_of_either() -> None:
    assert book(GKE, GKE | {MACHINE: "g6.xlarge"}).quotes == ()


class TestPoolsKnownByTheirLabels(BookLaws):
    """All that is true of any book is true of pools that were discovered."""

    def listing(self) -> PriceListing:
        return listed(LIST)

    def pools(self):  # type: ignore[no-untyped-def]
        return seen(GKE, GKE_SPOT, EKS, AKS, KARPENTER).wholes
