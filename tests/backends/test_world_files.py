"""The files of a cluster's world: a broken file is replaced by its last good copy, and a note reports it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from store_locations import StoreLocation
from world_folder import FILE_TEXTS, write

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.kubernetes.world_files import (
    ClusterFiles,
    file_path,
    read_cluster_files,
    read_world,
)
from shoestring.cli.authoring.schema import record_type_named
from shoestring.config.world import WORLD_FILES
from shoestring.core.errors import WorldError
from shoestring.core.interfaces import Store
from shoestring.core.types import Market

SCHEMA_OF = {"world": "cluster-world"}
BROKEN = {
    "pools": ("pools: [{name: a/b, labels: {x: y}}]", "pools.0.name: String should match pattern"),
    "prices": (
        "prices: [{pool: gpu, market: sopt, usd_per_hour: 1, as_of: 2026-07-30, source: x}]",
        "price row 1 (gpu): 'sopt' is not a",
    ),
    "policy": ("queue_delay_s: soon", "queue_delay_s: Input should be a valid number"),
    "budgets": ("month_usd: [", "is not YAML"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "lab")


def read(folder: Path, store: Store) -> ClusterFiles:
    return read_cluster_files(folder, read_world(folder), store)


def test_valid_files_are_used_and_copied_to_the_store(folder: Path, location: StoreLocation) -> None:
    store = location.open()
    found = read(folder, store)
    assert [pool.name for pool in found.pools] == ["cpu-spot", "gpu"]
    assert [(quote.pool, quote.market, quote.usd_per_hour) for quote in found.listing.rows] == [
        ("cpu-spot", Market.SPOT, Decimal("0.040000")),
        ("gpu", Market.ON_DEMAND, Decimal("0.710000")),
    ]
    assert (found.policy.queue_delay_s, found.budgets.month_usd, found.notes) == (
        60.0,
        Decimal("12.500000"),
        (),
    )
    assert list(store.list("learned/world/")) == [
        f"learned/world/{name}.yaml" for name in sorted(set(WORLD_FILES) - {"world"})
    ]
    assert store.fetch("learned/world/prices.yaml").read_text() == FILE_TEXTS["prices"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_replaced_by_its_last_good_copy_and_a_note_gives_the_reason(
    name: str, folder: Path, location: StoreLocation
) -> None:
    store = location.open()
    good = read(folder, store)
    text, what = BROKEN[name]
    again = read(write(folder, **{name: text}), location.open())
    assert (again.pools, again.listing, again.policy, again.budgets) == (
        good.pools,
        good.listing,
        good.policy,
        good.budgets,
    )
    assert again.digest == good.digest
    (note,) = again.notes
    assert what in note
    assert str(file_path(folder, name)) in note
    assert note.endswith(f"; the last good copy is used, learned/world/{name}.yaml in the store")
    assert store.fetch(f"learned/world/{name}.yaml").read_text() == FILE_TEXTS[name]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_without_a_good_copy_is_an_error_with_its_path(
    name: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorldError) as broken:
        read(write(folder, **{name: BROKEN[name][0]}), FolderStore(tmp_path / "store"))
    assert str(file_path(folder, name)) in str(broken.value)
    assert BROKEN[name][1] in str(broken.value)


def test_a_missing_file_is_reported_with_its_configmap(folder: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    file_path(folder, "prices").unlink()
    with pytest.raises(
        WorldError, match=r"there is no .*/prices/prices\.yaml: mount the ConfigMap shoestring-prices there"
    ):
        read(folder, store)
    read(write(folder), store)
    file_path(folder, "prices").unlink()
    assert "mount the ConfigMap shoestring-prices" in read(folder, store).notes[0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("store: {bucket: x}", "store.endpoint: Field required"),
        ("name: lab", "store: Field required"),
        ("{", "is not YAML"),
    ],
)
def test_the_file_that_names_the_store_must_be_valid(
    text: str, what: str, folder: Path, tmp_path: Path
) -> None:
    read(folder, FolderStore(tmp_path / "store"))
    with pytest.raises(WorldError, match=what):
        read_world(write(folder, world=text))
    file_path(folder, "world").unlink()
    with pytest.raises(
        WorldError, match=r"a cluster's world is a folder with world/world\.yaml, pools/pools\.yaml, prices"
    ):
        read_world(folder)


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(BROKEN)), text=st.text())
def test_a_world_file_with_any_text_is_used_or_replaced_by_its_good_copy(
    name: str, text: str, folder: Path, tmp_path: Path
) -> None:
    store = FolderStore(tmp_path / "store")
    read(write(folder), store)
    found = read(write(folder, **{name: text}), store)
    kept = store.fetch(f"learned/world/{name}.yaml").read_text()
    assert kept == (FILE_TEXTS[name] if found.notes else text)


def test_a_good_copy_is_written_once_for_each_change(folder: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    read(folder, store)
    kept = store.fetch("learned/world/policy.yaml")
    first = kept.stat().st_ino
    read(folder, store)
    assert kept.stat().st_ino == first
    read(write(folder, policy="queue_delay_s: 90\n"), store)
    assert kept.read_text() == "queue_delay_s: 90\n"


def test_the_digest_of_a_world_changes_unless_only_the_store_moved(folder: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    before = read(folder, store).digest
    assert (
        read(write(folder, world=FILE_TEXTS["world"].replace("127.0.0.1:1", "elsewhere:9000")), store).digest
        == before
    )
    for name in BROKEN:
        changed = (
            FILE_TEXTS[name]
            .replace("60", "61")
            .replace("12.50", "12.51")
            .replace("0.71", "0.72")
            .replace("cores: 4", "cores: 5")
        )
        assert read(write(folder, **{name: changed}), store).digest != before


@pytest.mark.parametrize("name", WORLD_FILES)
def test_the_schema_of_a_file_lists_its_fields(name: str) -> None:
    record_type = record_type_named(SCHEMA_OF.get(name, name))
    schema, content = record_type.model_json_schema(), yaml.safe_load(FILE_TEXTS[name])
    assert schema["additionalProperties"] is False
    assert set(schema.get("required", [])) <= set(content) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("pool", "what"),
    [
        ("{name: a, labels: {}}", "at least 1 item"),
        ("{name: a, labels: {x: y}, max_nodes: 2}", "must describe its machine"),
        ("{name: a, labels: {x: y}}, {name: a, labels: {x: z}}", "pools named twice: a"),
        ("{name: a, labels: {x: y}, makret: spot}", "pools.0.makret: Extra inputs are not permitted"),
    ],
)
def test_an_impossible_pool_is_refused_with_the_reason(
    pool: str, what: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorldError, match=what):
        read(write(folder, pools=f"pools: [{pool}]"), FolderStore(tmp_path / "store"))
