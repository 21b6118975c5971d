"""YAML files of a person: exact numbers, and a sentence for every key that has a new name."""

from __future__ import annotations

from decimal import Decimal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.local import WorldFile
from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy
from shoestring.config.tariffs import Tariffs
from shoestring.config.yaml_files import RENAMED_KEYS, parse
from shoestring.config.yaml_loader import dump, load
from shoestring.core.errors import WorldError
from shoestring.core.record import SCHEMA_VERSION
from shoestring.core.types import Need, Pool
from shoestring.data.recipe import Recipe


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


@pytest.mark.parametrize("text", ["[" * 20_000, "{a: " * 20_000, "a: " + "[" * 2000 + "]" * 2000])
def test_text_of_too_many_levels_is_refused(text: str) -> None:
    with pytest.raises(
        WorldError, match=r"policy\.yaml is not YAML: it has lists or mappings in one another"
    ):
        parse(text, Policy, "policy.yaml", WorldError)


@pytest.mark.parametrize(
    "number", ["1:30", "0100", "-007", "1_000", "1_000.5", "0x1F", "0o17", "00.5", "1:30.5"]
)
def test_a_number_that_can_be_read_in_two_ways_is_refused_with_its_text(number: str) -> None:
    with pytest.raises(WorldError) as refused:
        parse(f"# amounts\nmonth_usd: {number}", Budgets, "budgets.yaml", WorldError)
    assert number in str(refused.value)
    for quoted in (f"'{number}'", f'"{number}"'):
        with pytest.raises(WorldError, match=r"month_usd|heartbeat_s"):
            parse(f"month_usd: {quoted}", Budgets, "budgets.yaml", WorldError)
        with pytest.raises(WorldError, match=r"heartbeat_s"):
            parse(f"heartbeat_s: {quoted}", Policy, "policy.yaml", WorldError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("On", "On"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("2019", 2019),
        ("-0.5", Decimal("-0.5")),
        ("1e-2", Decimal("0.01")),
        (".5", Decimal("0.5")),
        ("2026-11-25", "2026-11-25"),
        ("2026-11-25T10:00:00Z", "2026-11-25T10:00:00Z"),
        ("10.0.0.1", "10.0.0.1"),
        ("10Gi", "10Gi"),
        ("'2019'", "2019"),
    ],
)
def test_a_plain_value_is_null_a_boolean_a_decimal_number_or_text(text: str, value: object) -> None:
    read = load(f"a: {text}")["a"]
    assert read == value and type(read) is type(value)


WORDS = st.sampled_from(["no", "0100", "1:30", "1_000", "1e5", "2026-11-25", "~", "true", "<<", "=", "0x1f"])


@given(WORDS | st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8))
def test_text_that_is_written_is_read_as_text_here_and_by_kubernetes(text: str) -> None:
    written = dump({text: text})
    assert load(written) == {text: text}
    # YAML 1.1, as Kubernetes reads it.
    assert yaml.safe_load(written) == {text: text}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[2019]", "YAML reads 2019 as a number: put text in quotes, like '2019'"),
        ("[true]", "YAML reads true as true or false: put text in quotes, like 'true'"),
        ("[~]", "YAML reads ~ as nothing: put text in quotes, like '~'"),
    ],
)
def test_a_name_that_yaml_does_not_read_as_text_is_to_be_put_in_quotes(text: str, sentence: str) -> None:
    with pytest.raises(WorldError) as refused:
        parse(
            f"{{name: a, source: {{t: {{path: a.csv}}}}, target: {{column: y}}, leaks: {text}}}",
            Recipe,
            "recipe.yaml",
            WorldError,
        )
    assert f"recipe.yaml: leaks.0: {sentence}" in str(refused.value)
