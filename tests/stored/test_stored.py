"""Stores and compiled pipelines of released schema versions are read by this code, and older ones are
refused.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import StillClock
from commands import Ran, shoestring
from make_store import RECIPE, WORLD

from shoestring.backends.local import open_local_world
from shoestring.core.errors import BudgetExceeded
from shoestring.core.record import SCHEMA_VERSION
from shoestring.data.recipe_files import find_recipe
from shoestring.pipelines.local_runner import run_locally
from shoestring.routing.algorithm import ALGORITHM_VERSION
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.launch.run_request import new_request
from shoestring.spending.ledger.ledger import Ledger

RELEASED = sorted(Path(__file__).parent.glob("v*"))
MONTH_OF = {"v4": datetime(2026, 11, 23, tzinfo=UTC), "v5": datetime(2026, 11, 26, tzinfo=UTC)}
ALGORITHM_OF = {"v4": 3, "v5": 3}
"""The version of the routing algorithm that made the stored decisions."""

pytestmark = pytest.mark.slow


class Stored:
    """A copy of a stored version, its world, and the ids of its finished and its stopped run."""

    def __init__(self, version: Path, folder: Path, month_usd: str = "1") -> None:
        self.version, self.folder, self.store = version, folder, folder / "store"
        shutil.copytree(version / "store", self.store)
        self.world = folder / "world.yaml"
        self.world.write_text(WORLD.format(version=SCHEMA_VERSION, store=self.store, month_usd=month_usd))
        runs = sorted(path.name for path in (self.store / "runs").iterdir())
        self.stopped, self.finished = runs

    def run(self, *arguments: object) -> Ran:
        return shoestring(*arguments, "--world", self.world)


@pytest.fixture(params=RELEASED, ids=lambda path: path.name)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    return Stored(request.param, tmp_path)


def test_every_version_from_this_one_on_is_stored() -> None:
    assert f"v{SCHEMA_VERSION}" in [path.name for path in RELEASED]


def test_the_ledger_verifies(stored: Stored) -> None:
    assert stored.run("ledger", "verify").code == 0


def test_the_decisions_replay_or_are_told_to_be_of_another_algorithm(stored: Stored) -> None:
    is_same = ALGORITHM_OF[stored.version.name] == ALGORITHM_VERSION
    for run_id in (stored.finished, stored.stopped):
        ran = stored.run("replay", run_id, "--json")
        found = ran.json
        assert (found["differences"], found["changed"]) == ({}, {}), ran.err
        assert (found["same"], len(found["not_replayable"])) == (
            (found["decisions"], 0) if is_same else (0, found["decisions"])
        )
        assert (ran.code, "made by another version of the algorithm" in ran.err) == (
            int(not is_same),
            not is_same,
        )


def test_actuals_and_reports_are_made(stored: Stored) -> None:
    ran = stored.run("actuals", "--json")
    assert ran.code == 0 and Decimal(ran.json["total"]["actual_usd"]) > 0
    for run_id in (stored.finished, stored.stopped):
        assert stored.run("report", run_id, "--out", stored.folder / run_id).code == 0
        assert (stored.folder / run_id / "report.html").stat().st_size > 10_000


def test_a_stopped_run_resumes(stored: Stored) -> None:
    ran = stored.run(
        *("run", "--resume", stored.stopped, "--budget", "0.003"), "--out", stored.folder / "out", "--json"
    )
    assert ran.code == 0, ran.err
    assert ran.json["status"] == "done"
    receipts = [json.loads(path.read_text()) for path in sorted(train_receipts(stored))]
    assert [each["attempt"] for each in receipts] == [1, 2]
    is_same = stored.version.name == f"v{SCHEMA_VERSION}"
    assert ("restarted from the beginning" in receipts[-1]["outcome"]["stop_reason"]) == (not is_same)
    assert stored.run("ledger", "verify").code == 0
    # Since its last start has ended, the ledger holds the digests of all its records.
    path = sorted(train_receipts(stored))[0]
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": 1'))
    found = stored.run("ledger", "verify")
    assert found.code == 1 and "train-1.json, which was changed later" in found.err


def planes(stored: Stored) -> Path:
    path = stored.folder / "planes.yaml"
    path.write_text(RECIPE)
    return path


def train_receipts(stored: Stored) -> list[Path]:
    return list((stored.store / "runs" / stored.stopped / "receipts").glob("train-*.json"))


def test_the_months_cap_counts_what_was_spent(stored: Stored) -> None:
    world = open_local_world(stored.world)
    month = Ledger(world.store, world.clock, "test").state(f"{MONTH_OF[stored.version.name]:%Y-%m}")
    assert month.spent_usd > 0
    cap_usd = month.spent_usd + month.held_usd + Decimal("0.0005")
    low = world.budgets.model_copy(update={"month_usd": cap_usd})
    world = replace(world, budgets=low, clock=StillClock(MONTH_OF[stored.version.name]))
    with pytest.raises(BudgetExceeded, match=r"\$0\.001000 requested, \$0\.000500 left"):
        admit(world, new_request(world, find_recipe(str(planes(stored))), Decimal("0.001"), None, None))


def test_the_compiled_pipeline_runs(stored: Stored) -> None:
    arguments = {
        "recipe": find_recipe(str(planes(stored))).model_dump_json(),
        "run_id": "from-the-compiled-file",
        "world": str(stored.world),
    }
    log = stored.folder / "log.txt"
    assert run_locally(arguments, log, stored.version / "compiled" / "train.yaml"), log.read_text()[-3000:]
    assert (stored.store / "runs" / "from-the-compiled-file" / "receipts" / "evaluate-1.json").exists()


def test_a_store_of_an_older_version_is_refused_with_both_versions(stored: Stored) -> None:
    for path in stored.store.rglob("*.json"):
        text = path.read_text()
        path.write_text(re.sub('"schema_version": [0-9]+', '"schema_version": 2', text))
    sentence = (
        "schema version 2 is not readable: this version of Shoestring reads schema versions "
        f"{SCHEMA_VERSION - 1} and {SCHEMA_VERSION}"
    )
    for command in (
        ("ledger", "verify"),
        ("ledger", "show"),
        ("replay", stored.finished),
        ("actuals",),
        ("report", stored.finished),
        ("run", "--resume", stored.stopped),
        ("run", "flights"),
    ):
        ran = stored.run(*command)
        assert (ran.code, ran.err.count(sentence)) == (1, 1), f"{command}: {ran.err}"
        assert "Traceback" not in ran.err
