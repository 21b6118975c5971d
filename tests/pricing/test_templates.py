"""The templates of world files are accepted by the parser."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.local import FilePrices, WorldFile, open_local_world
from shoestring.core.types import Market
from shoestring.pricing.gpus import peak_tflops
from shoestring.pricing.templates import cloud_world, laptop_world

TODAY = date(2026, 11, 1)


def parsed(content: dict[str, Any]) -> WorldFile:
    return WorldFile.model_validate(yaml.safe_load(yaml.safe_dump(content, sort_keys=False)))


@given(st.integers(1, 256), st.floats(0.5, 2000), st.lists(st.just(("NVIDIA L4", 24.0)), max_size=2))
def test_every_pool_of_a_laptop_has_an_accepted_price(
    cores: int, memory_gb: float, gpus: list[tuple[str, float]]
) -> None:
    world = parsed(laptop_world(cores, memory_gb, "~/store", TODAY, gpus))
    book = FilePrices(world).book()
    assert not book.rejected and {quote.pool for quote in book.quotes} == {pool.name for pool in world.pools}
    assert world.purpose == "run" and max(pool.cores for pool in world.pools) == cores
    assert len({pool.name for pool in world.pools}) == len(world.pools)


def test_a_laptop_costs_four_cents_per_core_hour() -> None:
    world = parsed(laptop_world(6, 15.5, "~/store", TODAY))
    prices = {quote.pool: quote.usd_per_hour for quote in FilePrices(world).book().quotes}
    assert prices == {
        "cpu-1": Decimal("0.04"),
        "cpu-2": Decimal("0.08"),
        "cpu-4": Decimal("0.16"),
        "cpu-6": Decimal("0.24"),
    }
    assert all("assumption" in row["source"] for row in world.prices)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("Tesla T4", 65),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 80GB HBM3", 989),
        ("?", 20),
    ],
)
def test_a_gpu_is_found_by_the_longest_part_of_its_name(name: str, tflops: float) -> None:
    assert peak_tflops(name) == tflops


def test_the_example_clusters_prices_are_accepted_and_dated() -> None:
    world = parsed(cloud_world("~/store"))
    book = FilePrices(world).book()
    assert not book.rejected and world.purpose == "plan" and world.store == "~/store"
    assert {(quote.pool, quote.market) for quote in book.quotes} == {
        (pool.name, market) for pool in world.pools for market in pool.markets
    }
    assert all(quote.as_of < TODAY and "pricing.yml" in quote.source for quote in book.quotes)
    assert {quote.market for quote in book.quotes} == {Market.SPOT, Market.ON_DEMAND}


def test_a_world_template_opens(tmp_path: Path) -> None:
    path = tmp_path / "world.yaml"
    path.write_text(yaml.safe_dump(cloud_world(str(tmp_path)), sort_keys=False))
    assert len(open_local_world(path).prices.book().quotes) == 14
