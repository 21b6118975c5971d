"""Invalid policy files are refused with the place and the fix, and the packaged policy is valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoestring.config.policy import Policy
from shoestring.config.yaml_files import parse
from shoestring.core.errors import WorldError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "workload_classes: {fast: {}}",
            "workload_classes.fast.[key]: Input should be 'compute', 'data' or 'memory'",
        ),
        (
            "workload_classes: {compute: {market: [spot]}}",
            "workload_classes.compute.market: Extra inputs are not permitted",
        ),
        (
            "workload_classes: {compute: {markets: []}}",
            "workload_classes.compute.markets: Tuple should have at least 1 item",
        ),
        (
            "workload_classes: {compute: {hardware: cpu, gpus: [L4]}}",
            "hardware: cpu and gpus exclude each other: leave out one of them",
        ),
        ("workload_classes: {data: {max_preemptions_per_hour: -1}}", "greater than or equal to 0"),
        (
            "delay_usd_per_hour: -0.5",
            "delay_usd_per_hour: Input should be greater than or equal to 0",
        ),
        ("delay_usd_per_hour: much", "'much' is not an amount of dollars"),
        ("name: My Policy", "name: String should match pattern"),
        ("version: 0", "version: Input should be greater than or equal to 1"),
    ],
)
def test_an_invalid_policy_is_refused_with_the_place_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(WorldError, match="policy") as error:
        parse(text, Policy, "policy.yaml", WorldError)
    assert message in str(error.value)


def test_the_packaged_policy_is_valid() -> None:
    shipped = Path(__file__).parents[2] / "manifests/base/policy.yaml"
    assert parse(shipped.read_text(), Policy, "policy.yaml", WorldError).name == "default"
