"""YAML files of a person: exact numbers, and a sentence for every key that has a new name."""

from __future__ import annotations

from decimal import Decimal

import pytest

from shoestring.backends.local import WorldFile
from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.config.yaml_files import RENAMED_KEYS, parse
from shoestring.core.errors import WorldError
from shoestring.core.record import SCHEMA_VERSION
from shoestring.core.types import Need, Pool


@pytest.mark.parametrize(
    ("record_type", "text", "sentence"),
    [
        (Policy, "second_look: {every_s: 5}", "second_look has a new name: write migration"),
        (Policy, "waiting: {}", "waiting has a new name: write start"),
        (Policy, "tiers: {}", "tiers has a new name: write workload_classes"),
        (Policy, "bounds: {}", "bounds has a new name: write adaptation_limits"),
        (Policy, "guardrails: {joules: {most: 5}}", "guardrails.joules.most has a new name: write max"),
        (Policy, "guardrails: {gco2_g: {max: 5}}", "guardrails.gco2_g has a new name: write co2_g"),
        (
            Policy,
            "migration: {dwell_s: 5, most_moves: 1}",
            "migration.most_moves has a new name: write max_migrations",
        ),
        (Tariffs, "storage_tiers: {}", "storage_tiers has a new name: write storage_classes"),
        (
            Pool,
            "{name: a, cores: 1, memory_gb: 1, core_gops: 2}",
            "core_gops has a new name: write core_speed",
        ),
        (
            Need,
            "{stage: s, op_per_row: 2e3}",
            "write cpu_us_per_row, in microseconds: the old value divided by 1000",
        ),
    ],
)
def test_an_old_key_is_refused_with_its_new_name(record_type: type, text: str, sentence: str) -> None:
    with pytest.raises(WorldError) as refused:
        parse(text, record_type, "policy.yaml", WorldError)
    assert sentence in str(refused.value) and str(refused.value).startswith("policy.yaml: ")


def test_a_file_of_an_older_version_is_refused_with_the_version_and_the_new_keys() -> None:
    text = "{schema_version: 1, store: s, pools: [{name: a, cores: 1, memory_gb: 1}], prices: [], rules: {}}"
    with pytest.raises(WorldError) as refused:
        parse(text, WorldFile, "world.yaml", WorldError)
    assert "schema version 1 is not readable" in str(refused.value)
    assert f"write schema_version: {SCHEMA_VERSION}; rules has a new name: write policy" in str(refused.value)


def test_no_current_key_is_treated_as_an_old_one() -> None:
    fields = {name for each in (Policy, Budgets, Tariffs, Need, Pool) for name in each.model_fields}
    assert not fields & set(RENAMED_KEYS)


def test_a_misspelt_key_is_refused_by_its_name() -> None:
    with pytest.raises(WorldError, match=r"policy\.yaml: heartbeats_s: Extra inputs are not permitted"):
        parse("heartbeats_s: 5", Policy, "policy.yaml", WorldError)


def test_a_number_with_a_point_is_read_as_it_was_written() -> None:
    assert parse("month_usd: 0.003", Budgets, "budgets.yaml", WorldError).month_usd == Decimal("0.003000")


def test_text_that_is_not_yaml_is_refused() -> None:
    with pytest.raises(WorldError, match=r"policy\.yaml is not YAML"):
        parse("a: [", Policy, "policy.yaml", WorldError)
