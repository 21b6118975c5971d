"""YAML files that a person writes: parsed once, with every number exactly as written, and old keys named by
their new names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from shoestring.config.yaml_loader import UnclearNumber, load, written_at
from shoestring.core.errors import UsageError
from shoestring.core.record import SCHEMA_VERSION, Record, other_version, validation_message
from shoestring.core.text import DECIMAL_NUMBER

ParsedFile = TypeVar("ParsedFile", bound=Record)

RENAMED_KEYS = {
    "abandoned_s": "abandoned_after_s",
    "batch_factor": "max_batch_factor",
    "bounds": "adaptation_limits",
    "budget_times": "budget_factor",
    "budgets": "stage_budgets_usd",
    "chains": "pipeline_kinds",
    "clock_skew_s": "clock_skew_sd_s",
    "compute_minutes": "core_minutes",
    "core_gops": "core_speed",
    "deadline_times": "deadline_factor",
    "dwell_s": "min_dwell_s",
    "embedding_dim_max": "max_embedding_dim",
    "every_s": "check_every_s",
    "fails_share": "failed_share",
    "gco2_g": "co2_g",
    "grids": "carbon_grids",
    "least": "min",
    "least_days": "min_days",
    "least_look_share": "min_validation_share",
    "least_runs": "min_runs",
    "least_saving": "min_saving",
    "leaving_s": "pod_exit_s",
    "look_again_s": "poll_s",
    "lost_per_hour": "pods_lost_per_hour",
    "margin_again": "extra_saving_per_migration",
    "most": "max",
    "most_gpus": "max_gpus",
    "most_moves": "max_migrations",
    "most_nodes": "max_nodes",
    "most_overspend": "max_overspend",
    "most_preemptions_per_hour": "max_preemptions_per_hour",
    "most_usd": "max_usd",
    "most_wait_s": "max_delay_s",
    "moved_gb": "transferred_gb",
    "moving_markets": "floating_markets",
    "only": "pools",
    "op_per_row": "cpu_us_per_row, in microseconds: the old value divided by 1000",
    "per_hour": "pipelines_per_hour",
    "preemption_times": "preemption_factor",
    "recorded": "recorded_file",
    "remedy": "action",
    "room": "capacity",
    "router_waits_s": "budget_wait_s",
    "rules": "policy",
    "second_look": "migration",
    "stockout_s": "stockout_ttl_s",
    "storage_tiers": "storage_classes",
    "sweep_s": "reap_every_s",
    "tiers": "workload_classes",
    "unknown_share": "category_dropout",
    "unnamed_usd_per_gb": "default_usd_per_gb",
    "usd_per_hour_of_waiting": "delay_usd_per_hour",
    "waiting": "start",
}
"""Keys of schema version 2 and before, and what they are called now."""


MAX_NUMBER = 1e15
"""The largest number of a file that a person writes, in any unit: sums of a few stay exact in 64 bits."""


def read_text(path: Path, missing: str, error_type: type[UsageError]) -> str:
    """Return the text of a regular file. Reading a device or a pipe could take for ever.

    Raises:
        error_type: with the sentence `missing` if there is no such file, otherwise with the reason why the
            file cannot be read.
    """
    try:
        if not S_ISREG(path.stat().st_mode):
            raise error_type(f"cannot read {path}: it is not a regular file")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise error_type(missing) from None
    except (OSError, UnicodeDecodeError) as error:
        raise error_type(f"cannot read {path}: {error}") from None


def parse(
    text: str, record_type: type[ParsedFile], place: str, error_type: type[UsageError], hint: str = ""
) -> ParsedFile:
    """Parse YAML text into a record. `place` names the text in messages; `hint` is added at their end.

    Raises:
        error_type: the text is not YAML, or a field is wrong. The message names the field, and the new name
            of a key that was renamed.
    """
    try:
        content = load(text)
        parsed = record_type.model_validate(content)
    except ValidationError as error:
        message = _renamed(error) or validation_message(error, lambda found: _sentence(found, text))
        raise error_type(f"{place}: {message}{hint}") from None
    except UnclearNumber as error:
        raise error_type(f"{place}, {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        # A ValueError is a date that does not exist in the calendar.
        raise error_type(f"{place} is not YAML: {_yaml_sentence(error)}") from None
    found = parsed.model_dump()
    if wrong := next(chain(_out_of_range(found, ""), _unclear_numbers(content, found, "")), ""):
        raise error_type(f"{place}: {wrong}{hint}")
    return parsed


KINDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    type(None): "nothing",
}
KINDS |= {dict: "a mapping", list: "a list"}
SHOWS_NO_VALUE = (
    "enum",
    "literal_error",
    "int_parsing",
    "float_parsing",
    "bool_parsing",
    "date_from_datetime_parsing",
)
"""Errors of pydantic whose messages do not hold the value."""


def _sentence(found: ErrorDetails, text: str) -> str:
    """Return what is wrong with one value of a YAML text: what YAML made of it where text was wanted."""
    value, kind = found["input"], KINDS.get(type(found["input"]))
    if found["type"] in SHOWS_NO_VALUE:
        return f"{found['msg']}, and is {value!r}"
    if found["type"] != "string_type" or kind is None:
        return found["msg"]
    written = written_at(text, found["loc"])
    if isinstance(value, (dict, list)) and written[:1] not in ("{", "["):
        return found["msg"]
    quoted = f", like '{written}'" if written and "'" not in written else ""
    comma = "; after a decimal comma, write a point" if found["loc"][-1:] == ("[key]",) else ""
    return f"YAML reads {written or 'it'} as {kind}: put text in quotes{quoted}{comma}"


def _yaml_sentence(error: Exception) -> str:
    sentence = " ".join(str(error).split())
    if isinstance(error, (yaml.parser.ParserError, yaml.scanner.ScannerError)):
        return f"{sentence}; put text with any of : # , [ ] {{ }} & * ! | > % @ ` or a quote in it in quotes"
    return sentence


def _out_of_range(value: object, name: str) -> Iterator[str]:
    """Yield a sentence for each number that is too large or too small to compute with."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _out_of_range(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _out_of_range(each, f"{name}.{number}")
    elif isinstance(value, (int, float)) and abs(value) > MAX_NUMBER:
        yield f"{name}: {value:g} is more than the largest number, {MAX_NUMBER:g}"
    elif isinstance(value, float) and 0 < abs(value) < 1 / MAX_NUMBER:
        yield f"{name}: {value:g} is closer to 0 than the smallest number, {1 / MAX_NUMBER:g}"


def _unclear_numbers(content: object, parsed: object, name: str) -> Iterator[str]:
    """Yield a sentence for each text that became a number although it is not written as one: '0100'."""
    if isinstance(content, dict) and isinstance(parsed, dict):
        for key in content.keys() & parsed.keys():
            yield from _unclear_numbers(content[key], parsed[key], f"{name}.{key}" if name else str(key))
    elif isinstance(content, list) and isinstance(parsed, (list, tuple)):
        for number, (each, found) in enumerate(zip(content, parsed, strict=False)):
            yield from _unclear_numbers(each, found, f"{name}.{number}")
    elif (
        isinstance(content, str)
        and isinstance(parsed, (int, float, Decimal))
        and not isinstance(parsed, bool)
        and not re.fullmatch(DECIMAL_NUMBER, content.strip())
    ):
        yield f"{name}: {content!r} is not a plain decimal number: write it like 1000 or 0.5"


def _renamed(error: ValidationError) -> str:
    """Return a sentence for an old schema version and for each key that has a new name; empty if there is
    none.
    """
    sentences = []
    for found in error.errors():
        place, key = ".".join(map(str, found["loc"])), str(found["loc"][-1]) if found["loc"] else ""
        if key == "schema_version":
            sentences.append(f"{other_version(found['input'])}: write schema_version: {SCHEMA_VERSION}")
        elif found["type"] == "extra_forbidden" and key in RENAMED_KEYS:
            sentences.append(f"{place} has a new name: write {RENAMED_KEYS[key]}")
    return "; ".join(sentences)
