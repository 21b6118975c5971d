"""The commands that compare and export costs, on the real command line."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from commands import Ran, shoestring
from recorded_run import RUN_ID
from run_stories import done

Call = Callable[..., Ran]


@pytest.fixture(scope="module")
def finished_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finished run."""
    folder = tmp_path_factory.mktemp("finished_store")
    done(folder)
    return folder


@pytest.fixture
def call(finished_store: Path, laptop: Path) -> Call:
    def run(*arguments: object) -> Ran:
        return shoestring(*arguments, "--store", finished_store, "--world", laptop)

    return run


def test_actuals_prints_a_row_per_stage_and_the_same_as_json(call: Call) -> None:
    result = call("actuals", "--by", "stage")
    assert result.code == 0, result.err
    assert [line.split()[0] for line in result.out.splitlines() if line.startswith("  ")][1:7] == [
        "evaluate",
        "ingest",
        "overhead",
        "preprocess",
        "train",
        "all",
    ]
    found = call("actuals", "--json").json
    assert found["group_by"] == ["stage", "gpu"]
    assert sum(Decimal(group["paid_usd"]) for group in found["groups"]) == Decimal(found["total"]["paid_usd"])


def test_actuals_respects_its_period(call: Call) -> None:
    assert call("actuals", "--until", "2026-11-21", "--json").json["total"]["attempts"] == 0
    assert call("actuals", "--since", "2026-11-21T13:00+01:00", "--json").json["total"]["attempts"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--since", "yesterday"), "--since: 'yesterday' is not a date"),
        (("--by", "colour"), "unknown: colour; choose from: stage, gpu"),
    ],
)
def test_actuals_rejects_bad_options(call: Call, arguments: tuple[str, ...], message: str) -> None:
    ran = call("actuals", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_hindsight_prices_rejected_alternatives_of_one_run_or_all(call: Call) -> None:
    result = call("hindsight", RUN_ID)
    assert result.code == 0, result.err
    assert f"train of run {RUN_ID}" in result.out
    assert "4 choices" in result.out
    whole = call("hindsight", "--json").json
    assert [each["stage"] for each in whole["choices"]] == ["ingest", "preprocess", "train", "evaluate"]
    assert sum(Decimal(each["regret_usd"]) for each in whole["choices"]) == Decimal(whole["regret_usd"])
    one = call("hindsight", RUN_ID, "--stage", "train", "--prices", "now", "--json").json
    assert [each["stage"] for each in one["choices"]] == ["train"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-run",), "there is no run called 'no-such-run'"),
        (("--prices", "later"), "choose then or now"),
        (("--stage", "brew"), "brew"),
    ],
)
def test_hindsight_rejects_unknown_names(call: Call, arguments: tuple[str, ...], message: str) -> None:
    ran = call("hindsight", *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_the_ledger_is_reconciled_with_opencost(call: Call, tmp_path: Path) -> None:
    window = {"start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"}
    labels = {"shoestring_dev_run": RUN_ID, "shoestring_dev_stage": "train"}
    pod = {"name": "c/n/ns/p/main", "properties": {"labels": labels}, "totalCost": 0.25, **window}
    (tmp_path / "allocation.json").write_text(json.dumps({"code": 200, "data": [{pod["name"]: pod}]}))
    found = call("reconcile", tmp_path / "allocation.json", "--json").json
    assert [line["stage"] for line in found["lines"] if line["found_in"] == "both"] == ["train"]
    assert Decimal(found["unexplained_usd"]) == Decimal("0.25") - Decimal(found["ledger_usd"])
    assert "unexplained" in call("reconcile", tmp_path / "allocation.json", "--month", "2026-11").out
    (tmp_path / "empty.json").write_text('{"data": []}')
    assert "contains no allocation" in call("reconcile", tmp_path / "empty.json").err
    assert call("reconcile", tmp_path / "none.json").code == 2


def test_a_run_and_a_whole_store_are_replayed(call: Call, finished_store: Path) -> None:
    for target in ((RUN_ID,), ()):
        ran = call("replay", *target, "--json")
        assert (ran.code, ran.json) == (
            0,
            {
                "decisions": 4,
                "same": 4,
                "differences": {},
                "changed": {},
                "missing": {},
                "not_replayable": {},
                "records": {},
                "windows": 0,
                "trainings": {},
            },
        )
    folder = finished_store / "runs" / RUN_ID
    assert "4 decisions replayed: 4 the same" in call("replay", folder).out


def test_one_decision_that_differs_fails_the_replay_of_its_run(
    call: Call, finished_store: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(finished_store / "runs" / RUN_ID / "decisions", tmp_path / "decisions"))
    decision = json.loads((copy / "train-1.json").read_text())
    decision["choice"]["p95_usd"] = "0.123456"
    (copy / "train-1.json").write_text(json.dumps(decision, sort_keys=True, indent=1) + "\n")
    (copy / "evaluate-1.json").write_text("{}")
    ran = call("replay", tmp_path, "--json")
    assert ran.code == 1
    assert [Path(name).name for name in ran.json["differences"]] == ["evaluate-1.json", "train-1.json"]
    assert "2 of 4 decisions: this version decides differently" in ran.err


def test_explain_compares_decisions_and_explains_rejections(call: Call, finished_store: Path) -> None:
    file = finished_store / "runs" / RUN_ID / "decisions" / "train-1.json"
    result = shoestring("explain", file, "--why-not", "cpu-2")
    assert result.out.startswith("cpu-2 on-demand: ")
    assert shoestring("explain", file, "--against", file).out.endswith("the inputs are equal\n")
    assert shoestring("explain", file, "--against", file, "--json").json["same_choice"] is True
    assert shoestring("explain", file, "--json").json["question"]["stage"] == "train"


def test_a_month_is_exported_with_its_total(call: Call, tmp_path: Path) -> None:
    ran = call(
        "export",
        "focus",
        "--month",
        "2026-11",
        "--out",
        tmp_path / "new" / "focus.csv",
        "--provider",
        "ours",
        "--json",
    )
    assert ran.code == 0, ran.err
    rows = list(csv.DictReader((tmp_path / "new" / "focus.csv").read_text().splitlines()))
    assert len(rows) == ran.json["rows"] == 5
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(ran.json["total_usd"])
    assert (ran.json["open_usd"], {row["ProviderName"] for row in rows}) == ("0.000000", {"ours"})


@pytest.mark.parametrize(
    ("month", "message"), [("2026-12", "known: 2026-11"), ("November", "write it like 2026-11")]
)
def test_an_unknown_month_is_not_exported(call: Call, month: str, message: str, tmp_path: Path) -> None:
    ran = call("export", "focus", "--month", month, "--out", tmp_path / "focus.csv")
    assert ran.code == 2
    assert message in ran.err
    assert not (tmp_path / "focus.csv").exists()


def test_the_report_shows_idle_costs(call: Call, tmp_path: Path) -> None:
    assert call("report", RUN_ID, "--out", tmp_path).code == 0
    assert "Estimate against actual" in (tmp_path / "report.html").read_text()
