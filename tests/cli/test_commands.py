"""Every command except `run`, on a finished run: its output, the files it writes, and its exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Finished, command, shoestring

import shoestring as package
from shoestring.backends.folder_store import FolderStore
from shoestring.cli import COMMANDS
from shoestring.cli.authoring.schema import record_type_named

ROOT = Path(__file__).parent.parent.parent


def decision(finished: Finished, stage: str = "train") -> Path:
    return finished.out / "decisions" / f"{stage}-1.json"


def run_id(finished: Finished) -> str:
    return str(finished.ran.json["run_id"])


def test_help_lists_every_command_once_in_its_group() -> None:
    ran = shoestring("--help")
    assert ran.code == 0
    headings = [f"{heading}:" for heading in COMMANDS]
    assert [line for line in ran.out.splitlines() if line in headings] == headings
    listed = [
        line.split()[0] for line in ran.out.partition(headings[0])[2].splitlines() if line.startswith("  ")
    ]
    assert listed == [name for commands in COMMANDS.values() for name in commands]


def test_world_init_names_this_machine_and_refuses_to_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "new" / "world.yaml"
    ran = shoestring("world", "init", "--out", path, "--store", tmp_path / "store")
    assert (ran.code, ran.err) == (0, "")
    content = yaml.safe_load(path.read_text())
    assert content["pools"][0]["name"] == "cpu-1"
    assert content["store"] == str(tmp_path / "store")
    path.write_text("mine")
    again = shoestring("world", "init", "--out", path)
    assert again.code == 2
    assert "--force" in again.err
    assert path.read_text() == "mine"
    assert shoestring("world", "init", "--out", path, "--force", "--example", "cloud").code == 0
    cloud = yaml.safe_load(path.read_text())
    assert cloud["purpose"] == "plan"
    assert any(pool.get("gpu") for pool in cloud["pools"])


def test_world_init_names_its_examples_when_one_is_unknown(tmp_path: Path) -> None:
    ran = shoestring("world", "init", "--out", tmp_path / "w.yaml", "--example", "moon")
    assert ran.code == 2
    assert "cloud" in ran.err
    assert not (tmp_path / "w.yaml").exists()


def test_plan_starts_nothing_and_is_repeatable(finished: Finished, tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = finished.again("plan", finished.recipe, store=store)
    assert result.code == 0, result.err
    assert "cpu-" in result.out
    assert "All stages" in result.out and "Cost against time" in result.out
    first, second = (finished.again("plan", finished.recipe, "--json", store=store) for _ in range(2))
    answers = [one.json for one in (first, second)]
    assert answers[0]["question"].pop("asked_at") != answers[1]["question"].pop("asked_at")
    assert answers[0] == answers[1]
    assert [line["stage"] for line in answers[0]["stages"]] == ["ingest", "preprocess", "train", "evaluate"]
    assert [Decimal(each["est_usd"]) for each in answers[0]["pareto_front"]] == sorted(
        Decimal(each["est_usd"]) for each in answers[0]["pareto_front"]
    )
    kept = set(FolderStore(store).list(""))
    assert {key.split("/")[0] for key in kept} == {"learned"}


def test_a_plan_that_does_not_fit_reports_the_smallest_budget_and_exits_with_1(
    finished: Finished, tmp_path: Path
) -> None:
    ran = finished.again("plan", finished.recipe, "--budget", "0.000001", "--json", store=tmp_path)
    assert ran.code == 1
    assert ran.json["choice"] is None
    assert Decimal(ran.json["smallest_budget_usd"]) > Decimal("0.000001")


def test_explain_prints_the_choice_its_price_and_its_reason(finished: Finished) -> None:
    decided = json.loads(decision(finished).read_text())
    result = shoestring("explain", decision(finished))
    assert result.code == 0
    for part in (decided["choice"]["pool"], decided["choice"]["sentence"], decided["choice"]["p95_usd"]):
        assert part in result.out
    page = shoestring("explain", decision(finished), "--markdown")
    assert page.code == 0
    assert "|" in page.out


def test_a_file_that_is_not_a_decision_is_bad_usage(finished: Finished, tmp_path: Path) -> None:
    receipt = finished.out / "receipts" / "train-1.json"
    for file, message in ((receipt, "is not a decision"), (tmp_path / "none.json", "cannot read")):
        for verb in ("explain", "replay"):
            ran = shoestring(verb, file)
            assert ran.code == 2
            assert message in ran.err


def test_an_edited_decision_does_not_replay(finished: Finished, tmp_path: Path) -> None:
    decided = json.loads(decision(finished).read_text())
    decided["choice"]["p95_usd"] = "0.123456"
    (tmp_path / "edited.json").write_text(json.dumps(decided, sort_keys=True, indent=1) + "\n")
    ran = shoestring("replay", tmp_path / "edited.json")
    assert ran.code == 1
    assert '-  "p95_usd": "0.123456"' in ran.out
    assert f'+  "p95_usd": "{json.loads(decision(finished).read_text())["choice"]["p95_usd"]}"' in ran.out


def test_a_decision_does_not_replay_on_code_with_another_constant(finished: Finished, tmp_path: Path) -> None:
    copy = shutil.copytree(
        Path(package.__path__[0]), tmp_path / "shoestring", ignore=shutil.ignore_patterns("__pycache__")
    )
    source = (copy / "pricing" / "learned" / "learning.py").read_text()
    assert "PRIOR_LOG_SD = 0.5\n" in source
    (copy / "pricing" / "learned" / "learning.py").write_text(
        source.replace("PRIOR_LOG_SD = 0.5\n", "PRIOR_LOG_SD = 0.6\n")
    )
    done = subprocess.run(
        command("replay", str(decision(finished))),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert '-   "prior_log_sd": "0.5"' in done.stdout
    assert '+   "prior_log_sd": "0.6"' in done.stdout
    assert "decides differently" in done.stderr


def test_the_ledger_is_shown_by_account_and_as_a_whole(finished: Finished) -> None:
    one = finished.again("ledger", "show", run_id(finished), "--json").json
    every = finished.again("ledger", "show", "--json").json
    assert [account["account"] for account in one] == [run_id(finished), one[0]["parent"]]
    assert all(account in every for account in one)
    assert one[0]["spent_usd"] == finished.ran.json["spent_usd"]
    assert {"ingest", "preprocess", "train", "evaluate", "overhead"} == set(one[0]["stages"])
    result = finished.again("ledger", "show", run_id(finished))
    assert f"train: ${one[0]['stages']['train']['spent_usd']} spent" in result.out
    unknown = finished.again("ledger", "show", "no-such-run")
    assert unknown.code == 2
    assert run_id(finished) in unknown.err


def test_the_ledger_verifies_as_text_and_as_json(finished: Finished, tmp_path: Path) -> None:
    result = finished.again("ledger", "verify")
    assert result.code == 0
    assert "every hash, sequence and balance holds" in result.out
    found = finished.again("ledger", "verify", "--json").json
    assert found["held_usd"] == "0.000000"
    assert found["unfinished"] == []
    assert shoestring("ledger", "verify", "--store", tmp_path / "none").code == 2


def files_of(finished: Finished, name: str) -> list[Any]:
    """Return the real files that a schema describes."""
    if name == "world":
        return [json.loads(json.dumps(yaml.safe_load(finished.world.read_text()), default=str))]
    if name == "recipe":
        return [yaml.safe_load(finished.recipe.read_text())]
    return [json.loads(path.read_text()) for path in sorted(finished.out.glob(WRITTEN[name]))]


WRITTEN = {
    "decision": "decisions/*.json",
    "receipt": "receipts/*.json",
    "ledger": "ledger/*/0*.json",
    "summary": "summary.json",
}


@pytest.mark.parametrize("name", ["world", "recipe", *WRITTEN])
def test_the_files_of_a_run_match_their_schema(name: str, finished: Finished) -> None:
    ran = shoestring("schema", name)
    assert ran.code == 0
    schema, files = ran.json, files_of(finished, name)
    assert files
    assert schema["additionalProperties"] is False
    for content in files:
        record_type_named(name).model_validate_json(json.dumps(content))
        assert set(schema.get("required", [])) <= set(content) <= set(schema["properties"])


def test_a_report_is_written_again_with_all_files(finished: Finished, tmp_path: Path) -> None:
    ran = finished.again("report", run_id(finished), "--out", tmp_path / "again")
    assert ran.code == 0, ran.err
    assert ran.out.strip() == str(tmp_path / "again" / "report.html")
    assert "<html" in (tmp_path / "again" / "report.html").read_text()
    again, before = (
        {path.relative_to(folder).as_posix() for path in folder.rglob("*.json")}
        for folder in (tmp_path / "again", finished.out)
    )
    # Other runs may have written to the month's account since then.
    assert before <= again and all(name.startswith("ledger/20") for name in again - before)
    assert shoestring("ledger", "verify", "--store", tmp_path / "again" / "ledger").code == 0
    assert finished.again("report", "no-such-run", "--out", tmp_path / "no-such-run").code == 2
    assert not (tmp_path / "no-such-run").exists()


def test_watching_a_finished_run_prints_its_stages_and_returns(finished: Finished) -> None:
    result = finished.again("watch", run_id(finished))
    assert result.code == 0
    lines = result.out.splitlines()
    stages, end = lines[:5], lines[5:]
    assert [line.split(":")[0] for line in stages] == [
        "ingest",
        "preprocess",
        "train",
        "evaluate",
        "overhead",
    ]
    stated = [Decimal(re.findall(r"\$([\d.]+)", line)[0]) for line in stages]
    assert sum(stated) == Decimal(finished.ran.json["spent_usd"])
    assert end[0].startswith(f"{run_id(finished)}: done, ${finished.ran.json['spent_usd']} of $")
    assert f"report: in its store, runs/{run_id(finished)}/report.html" in end
    ran = finished.again("watch", run_id(finished), "--json")
    *_, last, summary = map(json.loads, ran.out.splitlines())
    assert (last["stage"], last["state"], last["spent_usd"]) == (None, "done", finished.ran.json["spent_usd"])
    assert summary == finished.ran.json


def test_json_output_is_json_alone_even_for_a_refusal(finished: Finished) -> None:
    ran = finished.again("ledger", "show", "no-such-run", "--json")
    assert ran.code == 2
    assert ran.json["status"] == "usage"
    assert ran.json["error"] in ran.err


def test_an_unwritable_folder_is_reported(finished: Finished, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ran = finished.again("report", run_id(finished), "--out", tmp_path / "taken" / "out")
    assert ran.code == 2
    assert str(tmp_path / "taken") in ran.err
    assert "Traceback" not in ran.err
