"""A run keeps the world of its admission: of an edited world file, only prices that move reach its steps."""

from __future__ import annotations

import json
import os
import subprocess
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Finished, command

from shoestring.backends.admitted_world import ADMITTED_VARIABLE
from shoestring.backends.folder_store import FolderStore
from shoestring.config.world import World
from shoestring.core.errors import UsageError, WorldError
from shoestring.core.types import Market
from shoestring.runtime.launch.local_run import LaunchOptions, environment_of_run
from shoestring.runtime.launch.run_request import resumed_request
from shoestring.runtime.open_world import open_world

AS_OF = {"as_of": "2026-11-01", "source": "a test"}
CATALOGUE = (
    "provider,machine,region,market,usd_per_hour,as_of,source\np,m,here,on-demand,{},{as_of},{source}\n"
)


def content(store: Path, on_demand: str, spot: str) -> dict[str, Any]:
    return {
        "store": str(store),
        "pools": [
            {"name": "own", "cores": 1, "memory_gb": 4, "markets": {"on-demand": {}, "spot": {}}},
            {"name": "listed", "cores": 1, "memory_gb": 4, "provider": "p", "machine": "m", "region": "here"},
        ],
        "prices": [
            {"pool": "own", "market": "on-demand", "usd_per_hour": on_demand} | AS_OF,
            {"pool": "own", "market": "spot", "usd_per_hour": spot} | AS_OF,
        ],
        "catalogues": ["list.csv"],
    }


def write(path: Path, store: str, *, on_demand: str, spot: str, listed: str) -> None:
    path.write_text(yaml.safe_dump(content(path.parent / store, on_demand, spot)))
    (path.parent / "list.csv").write_text(CATALOGUE.format(listed, **AS_OF))


def prices(world: World) -> dict[tuple[str, Market], Decimal]:
    return {(each.pool, each.market): each.usd_per_hour for each in world.prices.book().quotes}


def options(path: Path) -> LaunchOptions:
    return LaunchOptions(path, None, path.parent / "out", None, False, print)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "world.yaml", "first", on_demand="1", spot="0.5", listed="1")
    return tmp_path / "world.yaml"


def test_the_steps_of_a_run_keep_its_store_pools_and_fixed_prices_and_follow_those_that_move(
    path: Path,
) -> None:
    with environment_of_run(open_world(str(path)), options(path)):
        write(path, "second", on_demand="0.2", spot="0.7", listed="0.9")
        step = open_world(str(path))
        assert isinstance(step.store, FolderStore) and step.store.root == path.parent / "first"
        assert prices(step) == {
            ("own", Market.ON_DEMAND): Decimal(1),
            ("own", Market.SPOT): Decimal("0.7"),
            ("listed", Market.ON_DEMAND): Decimal("0.9"),
        }
        write(path, "second", on_demand="0.2", spot="0.8", listed="0.9")
        spot = next(each for each in step.prices.book().quotes if each.market == Market.SPOT)
        assert step.prices.charged_usd_per_hour(spot, step.cluster.pools()[0]) == Decimal("0.8")
        path.write_text("half: [")
        assert step.prices.charged_usd_per_hour(spot, step.cluster.pools()[0]) is None
        assert prices(open_world(str(path)))["own", Market.SPOT] == Decimal("0.5"), "as admitted"
    write(path, "second", on_demand="0.2", spot="0.7", listed="0.9")
    assert prices(open_world(str(path)))["own", Market.ON_DEMAND] == Decimal("0.2"), "the run is over"


def test_another_world_is_opened_as_it_is_meanwhile(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    write(other, "other", on_demand="0.9", spot="0.4", listed="1")
    with environment_of_run(open_world(str(path)), options(path)):
        assert prices(open_world(str(other)))["own", Market.ON_DEMAND] == Decimal("0.9")


def test_a_changed_copy_of_the_admitted_world_is_refused(path: Path) -> None:
    with environment_of_run(open_world(str(path)), options(path)):
        copy = Path(os.environ[ADMITTED_VARIABLE].partition(":")[2])
        copy.write_text(copy.read_text().replace("first", "second"))
        with pytest.raises(WorldError, match="resume the run"):
            open_world(str(path))


def test_a_run_is_not_resumed_in_a_world_with_another_store(path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no run called 'r'.*a resumed run keeps its store"):
        resumed_request(open_world(str(path)), "r", None, None, None)


@pytest.mark.slow
def test_a_world_file_edited_before_the_first_route_step_changes_neither_store_nor_price(
    finished: Finished, tmp_path: Path
) -> None:
    store, path = finished.warm_store(tmp_path / "first"), tmp_path / "world.yaml"
    found = yaml.safe_load(finished.world.read_text()) | {"store": str(store)}
    path.write_text(yaml.safe_dump(found))
    words = ("run", str(finished.recipe), "--world", str(path), "--out", str(tmp_path / "out"))
    run = subprocess.Popen(command(*words, "--seed", "8", "--json"), stdout=subprocess.PIPE, text=True)
    due_s = time.monotonic() + 60
    while not any(store.glob("ledger/*/00000002.json")) and time.monotonic() < due_s:
        time.sleep(0.005)
    cheaper = [row | {"usd_per_hour": str(float(row["usd_per_hour"]) / 5)} for row in found["prices"]]
    edited = found | {"store": str(tmp_path / "second"), "prices": cheaper}
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(edited))
    (tmp_path / "new.yaml").replace(path)
    out, _ = run.communicate(timeout=200)
    assert json.loads(out)["status"] == "done"
    assert not (tmp_path / "second").exists(), "it was admitted twice"
    receipts = [json.loads(each.read_text()) for each in store.glob("runs/*/receipts/*.json")]
    paid = {Decimal(price["usd_per_hour"]) for receipt in receipts for price in receipt["prices"]}
    assert paid and paid <= {Decimal(str(row["usd_per_hour"])) for row in found["prices"]}
