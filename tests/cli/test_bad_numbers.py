"""Numbers that no file or option may hold: a sentence and exit code 1 or 2, and never a traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import shoestring
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from shoestring.backends.local import open_local_world
from shoestring.core.errors import ShoestringError
from shoestring.data.recipe_files import find_recipe
from shoestring.pricing.templates import cloud_world, laptop_world
from shoestring.routing.pages.explain import as_text
from shoestring.runtime.admission.admit import admission_decision
from shoestring.runtime.admission.first_request import recipe_request
from shoestring.runtime.admission.stages import training_needs

HEADER = "provider,region,machine,cores,market,usd_per_hour,as_of,source\n"
ROW = "gcp,us-central1,n2-standard-4,{cores},on-demand,{usd_per_hour},2026-11-01,a list\n"
COMMITMENT = {"name": "c", "pool": "cpu-1", "hours_per_month": 1e308, "source": "a contract"}


def world_file(folder: Path, **changes: object) -> Path:
    content = laptop_world(2, 16.0, str(folder / "store"), date(2026, 11, 1)) | {"purpose": "plan"}
    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return path


def pools(**changes: object) -> list[dict[str, Any]]:
    """Return the pools of a laptop, the first one changed."""
    first, *others = laptop_world(2, 16.0, "store", date(2026, 11, 1))["pools"]
    return [first | changes, *others]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"prices": []}, "no accepted price for cpu-1 on-demand"),
        ({"pools": pools(startup_s=1e300)}, "pools.0.startup_s: 1e+300 is more than the largest number"),
        ({"budgets": {"month_usd": -1}}, "budgets.month_usd"),
        ({"commitments": [COMMITMENT]}, "commitments.0.hours_per_month"),
        ({"tariffs": {"storage_held_hours": 1e308}}, "tariffs.storage_held_hours"),
        ({"tariffs": {"storage_usd_per_gb_month": "1e1000000"}}, "1e1000000 is not a plain decimal number"),
    ],
)
def test_plan_refuses_a_world_with_such_a_number(
    changes: dict[str, Any], text: str, flights_slice: Path, tmp_path: Path
) -> None:
    ran = shoestring("plan", flights_slice, "--world", world_file(tmp_path, **changes))
    assert ran.code in (1, 2)
    assert text in ran.err + ran.out and "Traceback" not in ran.err


@pytest.mark.parametrize("budget", ["1e999999999", "-1e999999999", "1e-999999999"])
def test_a_budget_of_a_million_digits_is_bad_usage(budget: str, flights_slice: Path, tmp_path: Path) -> None:
    ran = shoestring("plan", flights_slice, "--world", world_file(tmp_path), f"--budget={budget}")
    assert ran.code == 2 and ran.err.startswith("shoestring: --budget")


def test_a_key_that_is_written_twice_is_refused(flights_slice: Path, tmp_path: Path) -> None:
    path = world_file(tmp_path)
    path.write_text(path.read_text() + "store: elsewhere\n")
    ran = shoestring("plan", flights_slice, "--world", path)
    assert ran.code == 2 and "'store' is written twice" in ran.err


def reasons(folder: Path, text: str) -> str:
    """Return why the rows of a price list were rejected, in the cloud example."""
    (folder / "list.csv").write_text(text)
    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump(cloud_world(str(folder / "store")) | {"catalogues": ["list.csv"]}))
    return "; ".join(row.reason for row in open_local_world(path).prices.book().rejected)


def test_a_price_for_a_minute_is_rejected_where_the_machine_is_known(tmp_path: Path) -> None:
    assert reasons(tmp_path, HEADER + ROW.format(cores=4, usd_per_hour="0.194236")) == ""
    found = reasons(tmp_path, HEADER + ROW.format(cores=4, usd_per_hour="0.003237"))
    assert "the lowest price known of this machine: it may be a price for a minute" in found


def test_a_list_cannot_lower_its_own_floor(tmp_path: Path) -> None:
    unknown = HEADER + ROW.format(cores="0.0001", usd_per_hour="0.0001").replace("n2-", "n9-")
    (tmp_path / "list.csv").write_text(unknown)
    pool = {"name": "n9", "machine": "n9-standard-4", "provider": "gcp", "region": "us-central1", "cores": 4}
    changes = {"pools": [pool | {"memory_gb": 16}], "prices": [], "catalogues": ["list.csv"]}
    rejected = open_local_world(world_file(tmp_path, **changes)).prices.book().rejected
    assert any("too low for a price" in row.reason for row in rejected)


def test_a_price_that_is_no_number_rejects_the_row_and_a_column_named_twice_the_list(tmp_path: Path) -> None:
    found = reasons(tmp_path, HEADER + ROW.format(cores=4, usd_per_hour="1e1000000"))
    assert "more than the ledger's maximum" in found
    with pytest.raises(ShoestringError, match="names a column twice: cores"):
        reasons(tmp_path, HEADER.replace("region", "cores") + ROW.format(cores=4, usd_per_hour="1"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_catalogue_is_a_regular_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "list.csv")
    with pytest.raises(ShoestringError, match="is not a regular file"):
        open_local_world(world_file(tmp_path, catalogues=["list.csv"]))


NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(10**30), 10**30),
    st.sampled_from(["1e1000000", "1e308", "-1", "0", 1e15, 1e-300, 5e-324]),
)
FIELDS = st.sampled_from(
    [
        *(("pools", name) for name in ("cores", "memory_gb", "core_speed", "startup_s", "power_w")),
        *(("pools", name) for name in ("gpu_count", "gpu_tflops", "gpu_memory_gb", "nodes", "network_gb_s")),
        ("prices", "usd_per_hour"),
        *(("tariffs", name) for name in ("storage_usd_per_gb_month", "storage_held_hours")),
        *(("budgets", name) for name in ("month_usd", "run_usd", "approve_above_usd")),
        *(
            ("policy", name)
            for name in ("delay_usd_per_hour", "min_sample_share", "pod_exit_s", "heartbeat_s")
        ),
    ]
)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@examples(120)
@example(("policy", "pod_exit_s"), 4e13, 1.0)
@given(FIELDS, NUMBERS, st.sampled_from([1.0, 1e7, None]))
def test_any_number_in_any_field_is_planned_with_or_refused_in_a_sentence(
    shared_folder: Path, field: tuple[str, str], number: object, deadline_s: float | None
) -> None:
    section, name = field
    content = laptop_world(2, 16.0, str(shared_folder / "store"), date(2026, 11, 1)) | {"purpose": "plan"}
    if section in ("pools", "prices"):
        content[section][0][name] = number
    else:
        content[section] = {name: number}
    path = shared_folder / "world.yaml"
    path.write_text(yaml.safe_dump(content))
    recipe = find_recipe("flights")
    try:
        world = open_local_world(path)
        request = recipe_request("plan", recipe, training_needs(), Decimal(1), deadline_s, 0)
        as_text(admission_decision(world, request, Decimal(0), {}))
    except ShoestringError as error:
        assert len(str(error)) > 10
