"""World files of one machine: what they open as, and how an invalid file is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError
from world_folder import write

from shoestring.backends.local import (
    FolderStore,
    WorldFile,
    open_local_world,
)
from shoestring.core.errors import WorldError

WORLD = {
    "store": "~/store",
    "pools": [{"name": "cpu-1", "cores": 1, "memory_gb": 4}],
    "prices": [
        {
            "pool": "cpu-1",
            "market": "on-demand",
            "usd_per_hour": "0.04",
            "as_of": "2026-11-01",
            "source": "a test",
        }
    ],
}


def written(folder: Path, **changes: object) -> Path:
    (folder / "world.yaml").write_text(yaml.safe_dump(WORLD | changes))
    return folder / "world.yaml"


def test_a_world_file_opens_as_a_world_with_its_store_in_the_home_folder(tmp_path: Path) -> None:
    opened = open_local_world(written(tmp_path))
    assert [quote.pool for quote in opened.prices.book().quotes] == ["cpu-1"]
    assert isinstance(opened.store, FolderStore)
    assert opened.store.root == Path("~/store").expanduser()
    assert open_local_world(written(tmp_path), store=tmp_path / "other").digest == opened.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pools": []}, "pools"),
        ({"pools": [*WORLD["pools"], *WORLD["pools"]]}, "pools named twice: cpu-1"),
        ({"prizes": []}, "prizes"),
        ({"pools": [{"name": "cpu-1", "cores": 1, "memory_gb": 0}]}, "pools.0.memory_gb"),
        ({"purpose": "fun"}, "purpose"),
        ({"prices": [WORLD["prices"][0] | {"pool": "gpu"}]}, "gpu"),  # type: ignore[operator, index]
        ({"schema_version": 2}, "schema version 2 is not readable"),
    ],
)
def test_an_invalid_world_file_is_refused_with_the_field(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WorldError, match=message):
        open_local_world(written(tmp_path, **changes))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"\xff\xfe\x00", b"pools: [", b"as_of: 2026-13-45", b"name: &a [*a]"]
)
def test_a_file_that_is_not_a_world_file_is_a_world_error(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "world.yaml").write_bytes(text)
    with pytest.raises(WorldError, match=r"world\.yaml"):
        open_local_world(tmp_path / "world.yaml")


def test_a_clusters_world_file_is_refused_with_what_is_wanted(tmp_path: Path) -> None:
    folder = write(tmp_path / "lab")
    alone = tmp_path / "world.yaml"
    alone.write_text((folder / "world" / "world.yaml").read_text())
    with pytest.raises(WorldError, match=r"--world takes a folder with world/world\.yaml, .*--on CONTEXT"):
        open_local_world(alone)
    with pytest.raises(WorldError, match=f"give its folder, --world {re.escape(str(folder))};"):
        open_local_world(folder / "world" / "world.yaml")


def test_a_missing_world_file_is_reported_with_the_command_that_creates_one(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="shoestring world init"):
        open_local_world(tmp_path / "nowhere.yaml")
    with pytest.raises(WorldError):
        open_local_world(tmp_path)


def test_pools_of_several_machines_need_a_world_for_planning() -> None:
    pool = {"name": "pair", "cores": 1, "memory_gb": 1, "nodes": 2}
    price = {
        "pool": "pair",
        "market": "on-demand",
        "usd_per_hour": "1",
        "as_of": "2026-11-01",
        "source": "test",
    }
    planned = {"purpose": "plan", "store": "s", "pools": [pool], "prices": [price]}
    assert WorldFile.model_validate(planned).pools[0].nodes == 2
    with pytest.raises(
        ValidationError, match="pair: a stage's pod runs on one machine; set `purpose: plan`, or nodes: 1"
    ):
        WorldFile.model_validate(planned | {"purpose": "run"})
