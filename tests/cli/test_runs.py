"""`shoestring runs`, and commands that take the id of a run, on a finished run and on a refused one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import Finished, Ran, shoestring

STAGES = ["ingest", "preprocess", "train", "evaluate"]


@dataclass(frozen=True)
class Two:
    """A store with a finished run and a run that was refused for its budget."""

    finished: Finished
    refused: Ran
    folder: Path

    @property
    def done_id(self) -> str:
        return str(self.finished.ran.json["run_id"])

    @property
    def refused_id(self) -> str:
        return str(self.refused.json["run_id"])

    def runs(self, *arguments: object) -> Any:
        return self.finished.again("runs", *arguments, "--json").json


@pytest.fixture(scope="module")
def two(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Two:
    folder = tmp_path_factory.mktemp("refused") / "runs" / "out"
    refused = finished.again("run", finished.recipe, "--budget", "0.000001", "--out", folder, "--json")
    return Two(finished, refused, folder)


def test_a_refused_run_leaves_no_folder_and_is_listed_and_explained(two: Two) -> None:
    assert two.refused.code == 1
    assert two.refused.json["status"] == "refused"
    assert not two.folder.parent.exists()
    hint = two.refused.err.splitlines()[-1]
    assert hint.partition(": shoestring ")[2].startswith(f"explain {two.refused_id} --world ")
    explained = shoestring(*hint.partition(": shoestring ")[2].split())
    assert explained.code == 0, explained.err
    assert "refused" in explained.out


def test_runs_are_listed_newest_first_with_their_dollars_and_quality(two: Two) -> None:
    found = two.runs()
    times = [each["requested_at"] for each in found]
    assert times == sorted(times, reverse=True)
    by_id = {each["run_id"]: each for each in found}
    done = by_id[two.done_id]
    assert (done["status"], done["name"]) == ("done", "slice")
    assert done["spent_usd"] == two.finished.ran.json["spent_usd"]
    assert done["quality"] == two.finished.ran.json["quality"]
    assert by_id[two.refused_id]["reason"]
    text = two.finished.again("runs").out
    assert re.search(rf"{two.done_id} +done .*log loss [\d.]+", text)


def test_runs_are_filtered_by_recipe_status_and_time(two: Two) -> None:
    every = {each["run_id"] for each in two.runs()}
    refused = {each["run_id"] for each in two.runs("--status", "refused")}
    assert two.refused_id in refused and two.done_id not in refused
    assert {each["run_id"] for each in two.runs("--name", "slice")} == every
    assert two.runs("--name", "another") == []
    assert two.runs("--since", "2100-01-01") == []
    assert {each["run_id"] for each in two.runs("--since", "2020-01-01")} == every
    wrong = two.finished.again("runs", "--status", "gone")
    assert wrong.code == 2 and "refused" in wrong.err


def test_two_runs_are_compared_by_choice_dollars_and_quality(two: Two) -> None:
    alike = two.runs("compare", two.done_id, two.done_id)
    assert [pair["stage"] for pair in alike["stages"]] == STAGES
    assert all(pair["same_choice"] for pair in alike["stages"])
    assert Decimal(alike["second_costs_usd"]) == 0
    metrics = {pair["metric"]: pair for pair in alike["metrics"]}
    assert metrics["log_loss"]["first"]["value"] == two.finished.ran.json["quality"]["log_loss"]
    assert metrics["log_loss"]["verdict"] == "no interval"
    other = two.runs("compare", two.done_id, two.refused_id)
    assert Decimal(other["second_costs_usd"]) == -Decimal(two.finished.ran.json["spent_usd"])
    assert not any(pair["same_choice"] for pair in other["stages"])
    assert other["metrics"] == []
    text = two.finished.again("runs", "compare", two.done_id, two.refused_id).out
    assert "not placed" in text and "quality: not both runs were evaluated" in text


def test_explain_takes_the_id_of_a_run(two: Two) -> None:
    every = two.finished.again("explain", two.done_id)
    assert [line.split(",")[0] for line in every.out.splitlines() if ", attempt 1 of run" in line] == STAGES
    last = two.finished.again("explain", two.done_id, "--last", "--json").json
    assert last["question"]["stage"] == "evaluate"
    found = two.finished.again("explain", two.done_id, "--stage", "train", "--json").json
    file = json.loads((two.finished.out / "decisions" / "train-1.json").read_text())
    assert found == [file]
    several = two.finished.again("explain", two.done_id, "--why-not", "cpu-2")
    assert several.code == 2 and "--stage" in several.err
    one = two.finished.again("explain", two.done_id, "--stage", "train", "--against", two.done_id)
    assert "the inputs are equal" in one.out
    unknown = two.finished.again("explain", "no-such-run")
    assert unknown.code == 2 and two.done_id in unknown.err


def test_a_finished_run_that_is_resumed_says_so_and_spends_nothing(two: Two, tmp_path: Path) -> None:
    again = two.finished.again("run", "--resume", two.done_id, "--out", tmp_path / "out", "--json")
    assert again.code == 0
    assert f"{two.done_id} is done: nothing was started" in again.err
    assert again.json["spent_usd"] == two.finished.ran.json["spent_usd"]
    assert (tmp_path / "out" / "report.html").exists()


def test_the_ledger_shows_a_run_with_its_starts_and_its_month(two: Two) -> None:
    found = two.finished.again("ledger", "show", two.done_id, "--json").json
    assert [account["account"] for account in found] == [two.done_id, found[0]["parent"]]
    month = two.finished.again("ledger", "show", found[0]["parent"], "--json").json
    assert month == found[1:]


def test_the_version_is_printed() -> None:
    ran = shoestring("--version")
    assert (ran.code, ran.out.split()[0]) == (0, "shoestring")
    assert re.fullmatch(r"\d+\.\d+\.\d+", ran.out.split()[1])


def test_completion_offers_commands_and_can_be_installed() -> None:
    assert "--install-completion" in shoestring("--help").out
    asked = {"_SHOESTRING_COMPLETE": "complete_bash", "COMP_WORDS": "shoestring ru", "COMP_CWORD": "1"}
    script = Path(sys.executable).with_name("shoestring")
    answered = subprocess.run([script], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert answered.stdout.split() == ["run", "runs"]
