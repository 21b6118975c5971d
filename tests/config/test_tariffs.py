"""Transfer and storage cost the provider's list price: by price tier, free inside a region, in whole
micro-dollars.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoestring.config.tariff_costs import (
    egress_microusd,
    egress_table,
    highest_microusd,
    retrieval_microusd,
    storage_microusd,
    tiered_microusd,
)
from shoestring.config.tariffs import PriceTier, StorageClass, Tariffs

AWS_INTERNET = [
    {"up_to_gb": 100, "usd_per_gb": "0"},
    {"up_to_gb": 10_240, "usd_per_gb": "0.09"},
    {"up_to_gb": 51_200, "usd_per_gb": "0.085"},
    {"up_to_gb": 153_600, "usd_per_gb": "0.07"},
    {"usd_per_gb": "0.05"},
]
TARIFFS = Tariffs.model_validate(
    {"egress_usd_per_gb": {"us-east-1->internet": AWS_INTERNET, "us-east-1->us-west-2": "0.02"}}
)

prices = st.integers(0, 200_000).map(lambda micro: str(Decimal(micro).scaleb(-6)))


@st.composite
def tiers(draw: st.DrawFn) -> tuple[PriceTier, ...]:
    ends = sorted(draw(st.sets(st.integers(1, 10**5), max_size=4)))
    return tuple(PriceTier(up_to_gb=end, usd_per_gb=draw(prices)) for end in [*ends, None])


def by_the_gb(tiers: tuple[PriceTier, ...], gb: int, transferred_gb: int) -> int:
    """Return micro-dollars, adding one GB at a time."""
    micro = Fraction(0)
    for number in range(transferred_gb, transferred_gb + gb):
        tier = next(tier for tier in tiers if tier.up_to_gb is None or number < tier.up_to_gb)
        micro += Fraction(tier.usd_per_gb) * 10**6
    return ceil(micro)


@pytest.mark.parametrize(("tb", "usd"), [(11, "999.64"), (51, "4465.88"), (60, "5111.00"), (160, "12074.20")])
def test_a_tier_prices_only_the_volume_inside_it(tb: int, usd: str) -> None:
    (micro,) = egress_microusd(TARIFFS, "us-east-1", "internet", np.array([tb * 1024.0]))
    assert Decimal(int(micro)).scaleb(-6) == Decimal(usd)


@given(tiers(), st.integers(0, 2000), st.integers(0, 2000))
def test_tiers_are_the_sum_of_their_gigabytes(
    tiers: tuple[PriceTier, ...], gb: int, transferred_gb: int
) -> None:
    assert tiered_microusd(tiers, np.array([float(gb)]), transferred_gb)[0] == by_the_gb(
        tiers, gb, transferred_gb
    )


@given(tiers(), st.lists(st.floats(0, 1e6), min_size=2, max_size=8))
def test_more_bytes_never_cost_less(tiers: tuple[PriceTier, ...], volumes: list[float]) -> None:
    costs = tiered_microusd(tiers, np.array(sorted(volumes)))
    assert (np.diff(costs) >= 0).all() and costs.dtype == np.int64


@given(tiers(), st.integers(0, 10**5), st.integers(0, 10**5))
def test_two_transfers_cost_as_much_as_their_sum(tiers: tuple[PriceTier, ...], first: int, then: int) -> None:
    both, one = tiered_microusd(tiers, np.array([float(first + then), float(first)]))
    assert abs(int(tiered_microusd(tiers, np.array([float(then)]), first)[0]) - int(both - one)) <= 1


def test_transfers_inside_a_region_are_free_and_undeclared_routes_are_not() -> None:
    gb = np.array([0.0, 1e4])
    anywhere = Tariffs.model_validate({"egress_usd_per_gb": {"*->*": "0.09"}})
    assert egress_microusd(anywhere, "a", "a", gb).tolist() == [0, 0]
    assert egress_microusd(anywhere, "a", "b", gb).tolist() == [0, 900_000_000]
    assert egress_microusd(TARIFFS, "us-west-2", "us-east-1", gb).tolist() == [0, 1_200_000_000]
    declared = TARIFFS.model_copy(update={"default_usd_per_gb": Decimal("0.01")})
    assert egress_microusd(declared, "us-west-2", "us-east-1", gb).tolist() == [0, 100_000_000]


def test_the_price_assumed_for_an_undeclared_route_is_named_until_one_is_declared() -> None:
    tariffs = Tariffs.model_validate(
        {"store_region": "home", "egress_usd_per_gb": {"home->*": "0.02", "far->home": "0.02"}}
    )
    assert list(tariffs.assumed_routes(["home", "far", "other"])) == ["other->home"]
    assert (
        "$0.120000 per GB is assumed: add the route, or declare"
        in tariffs.assumed_routes(["other"])["other->home"]
    )
    assert tariffs.model_copy(update={"default_usd_per_gb": Decimal(0)}).assumed_routes(["other"]) == {}


def test_regions_of_two_providers_with_the_same_name_are_different() -> None:
    tariffs = Tariffs(store_region="us-east-1", store_provider="aws")
    assert [tariffs.route_end(provider, "us-east-1") for provider in ("aws", "", "lambda")] == [
        "us-east-1",
        "us-east-1",
        "lambda/us-east-1",
    ]
    assert Tariffs().route_end("lambda", "us-east-1") == "us-east-1"
    assert egress_microusd(tariffs, "us-east-1", "lambda/us-east-1", np.array([1.0])).tolist() == [120_000]


@given(tiers(), st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 2000), st.floats(0, 1))
def test_the_highest_price_bounds_the_cost_after_any_earlier_volume(
    tiers: tuple[PriceTier, ...], gb: int, least_gb: int, more_gb: int, share: float
) -> None:
    (most,) = highest_microusd(tiers, np.array([float(gb)]), least_gb, least_gb + more_gb)
    between = [
        tiered_microusd(tiers, np.array([float(gb)]), least_gb + step / 100 * more_gb)[0]
        for step in range(0, 101, 20)
    ]
    somewhere = tiered_microusd(tiers, np.array([float(gb)]), least_gb + share * more_gb)[0]
    assert max(*between, somewhere) <= most + 1
    if len(tiers) == 1 or not more_gb:
        assert most == between[0]


def test_the_most_specific_route_applies() -> None:
    routes = {"*->*": "0.12", "*->b": "0.04", "a->*": "0.03", "a->b": "0.01"}
    for fits in (["a->b", "a->*", "*->b", "*->*"][skipped:] for skipped in range(4)):
        tariffs = Tariffs.model_validate({"egress_usd_per_gb": {route: routes[route] for route in fits}})
        assert tariffs.route("a", "b") == fits[0]
    assert Tariffs().route("a", "b") is None


def test_the_volume_of_the_month_counts_towards_its_tiers() -> None:
    moved = TARIFFS.model_copy(update={"transferred_gb": {"us-east-1->internet": 100.0}})
    (fresh,), (later,) = (
        egress_microusd(each, "us-east-1", "internet", np.array([100.0])) for each in (TARIFFS, moved)
    )
    assert (fresh, later) == (0, 9_000_000)


def test_an_egress_table_has_a_row_per_route_and_a_column_per_volume() -> None:
    table = egress_table(
        TARIFFS, [("us-east-1", "us-west-2"), ("x", "x"), ("us-east-1", "us-west-2")], np.array([1.0, 50.0])
    )
    assert table.tolist() == [[20_000, 1_000_000], [0, 0], [20_000, 1_000_000]]
    assert egress_table(TARIFFS, [], np.array([1.0])).shape == (0, 1)


def test_storage_is_billed_for_the_minimum_days_and_for_each_read() -> None:
    cold = StorageClass(usd_per_gb_month=Decimal("0.004"), retrieval_usd_per_gb=Decimal("0.02"), min_days=90)
    gb = np.array([100.0])
    assert (
        storage_microusd(cold, gb, 24).tolist()
        == storage_microusd(cold, gb, 90 * 24).tolist()
        == [ceil(400_000 * 90 * 24 / 730)]
    )
    assert storage_microusd(cold, gb, 7300).tolist() == [4_000_000]
    assert retrieval_microusd(cold, gb).tolist() == [2_000_000] and retrieval_microusd(
        Tariffs().storage_class(), gb
    ).tolist() == [0]
    assert Tariffs(storage_classes={"cold": cold}).storage_class("cold") == cold


@given(tiers())
def test_tariffs_survive_a_round_trip_through_json(tiers: tuple[PriceTier, ...]) -> None:
    tariffs = Tariffs(egress_usd_per_gb={"a->b": tiers, "b->a": Decimal("0.02")})
    assert Tariffs.model_validate_json(tariffs.model_dump_json()) == tariffs
    assert tariffs.model_dump(mode="json")["egress_usd_per_gb"]["b->a"] == "0.020000"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"egress_usd_per_gb": {"us-east-1": "0.02"}}, "'us-east-1' is not a route: write it like"),
        ({"egress_usd_per_gb": {"a->": "0.02"}}, "is not a route"),
        ({"egress_usd_per_gb": {"a->b": "-0.02"}}, "is not a price: it must be 0 or more"),
        ({"egress_usd_per_gb": {"a->b": []}}, "a->b: the last tier must have no up_to_gb"),
        (
            {"egress_usd_per_gb": {"a->b": [{"up_to_gb": 5, "usd_per_gb": "1"}]}},
            "the last tier must have no up_to_gb",
        ),
        (
            {
                "egress_usd_per_gb": {
                    "a->b": [*({"up_to_gb": end, "usd_per_gb": "1"} for end in (9, 5)), {"usd_per_gb": "1"}]
                }
            },
            "up_to_gb must increase from tier to tier: 9.0, 5.0, None",
        ),
        (
            {"transferred_gb": {"a->b": 4.0}},
            "transferred_gb names a->b, for which egress_usd_per_gb has no price",
        ),
        ({"storage_usd_per_gb_month": "-1"}, "is not a price"),
        *(
            ({"storage_classes": {name: {"usd_per_gb_month": "1"}}}, "choose another name for this class")
            for name in ("standard", "STANDARD")
        ),
        *(
            (
                {"storage_classes": {name: {"usd_per_gb_month": "1"}}},
                f"objects on {name} must be restored before they can be read",
            )
            for name in ("GLACIER", "DEEP_ARCHIVE", "deep_archive")
        ),
        *(
            ({"storage_classes": {name: {"usd_per_gb_month": "1"}}}, "is not a storage class")
            for name in ("", "A B", "IA\n", "a/b")
        ),
        ({"storage_held_hours": -1}, "greater than or equal to 0"),
    ],
)
def test_impossible_tariffs_are_refused_with_a_correction(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        Tariffs.model_validate(wrong)


def test_the_storage_classes_shown_in_the_docs_can_be_declared() -> None:
    pages = "".join(page.read_text() for page in (Path(__file__).parents[2] / "docs").glob("*.md"))
    (shown,) = (
        block for block in re.findall(r"```yaml\n(.*?)```", pages, re.S) if "storage_classes" in block
    )
    assert list(Tariffs.model_validate(yaml.safe_load(shown)["tariffs"]).all_storage_classes) == [
        "standard",
        "GLACIER_IR",
        "STANDARD_IA",
    ]
