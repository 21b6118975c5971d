"""The commands that look back on what was paid, as a person calls them."""

from __future__ import annotations

import csv
import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from commands import Ran, shoestring
from recorded import RUN_ID
from stories import done


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finished run."""
    folder = tmp_path_factory.mktemp("books")
    done(folder)
    return folder


@pytest.fixture
def look(books: Path, laptop: Path):  # type: ignore[no-untyped-def]
    def call(*arguments: object) -> Ran:
        return shoestring(*arguments, "--store", books, "--world", laptop)

    return call


def test_actuals_prints_a_row_a_stage_and_its_json_holds_the_same(look) -> None:  # type: ignore[no-untyped-def]
    said = look("actuals", "--by", "stage")
    assert said.code == 0, said.err
    assert [line.split()[0] for line in said.out.splitlines() if line.startswith("  ")][1:7] == [
        "evaluate",
        "ingest",
        "overhead",
        "preprocess",
        "train",
        "all",
    ]
    found = look("actuals", "--json").json
    assert found["by"] == ["stage", "gpu"]
    assert sum(Decimal(group["paid_usd"]) for group in found["groups"]) == Decimal(found["total"]["paid_usd"])


def test_actuals_keeps_to_its_window(look) -> None:  # type: ignore[no-untyped-def]
    assert look("actuals", "--until", "2026-11-21", "--json").json["total"]["attempts"] == 0
    assert look("actuals", "--since", "2026-11-21T13:00+01:00", "--json").json["total"]["attempts"] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "yesterday"), "--since: 'yesterday' is not a date"),
        (("--by", "colour"), "there is no colour; there is: stage, gpu"),
    ],
)
def test_actuals_says_what_it_cannot_read(look, arguments: tuple[str, ...], said: str) -> None:  # type: ignore[no-untyped-def]
    ran = look("actuals", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_hindsight_prices_the_roads_not_taken_of_one_run_or_of_all(look) -> None:  # type: ignore[no-untyped-def]
    said = look("hindsight", RUN_ID)
    assert said.code == 0, said.err
    assert f"train of run {RUN_ID}" in said.out
    assert "4 choices" in said.out
    whole = look("hindsight", "--json").json
    assert [each["stage"] for each in whole["each"]] == ["ingest", "preprocess", "train", "evaluate"]
    assert sum(Decimal(each["regret_usd"]) for each in whole["each"]) == Decimal(whole["regret_usd"])
    one = look("hindsight", RUN_ID, "--stage", "train", "--prices", "now", "--json").json
    assert [each["stage"] for each in one["each"]] == ["train"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-such-run",), "there is no run called 'no-such-run'"),
        (("--prices", "later"), "there is: then, now"),
        (("--stage", "brew"), "brew"),
    ],
)
def test_hindsight_says_what_is_not_there(look, arguments: tuple[str, ...], said: str) -> None:  # type: ignore[no-untyped-def]
    ran = look("hindsight", *arguments)
    assert ran.code == 2
    assert said in ran.err


def test_the_ledger_is_held_against_what_opencost_says(look, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    window = {"start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"}
    labels = {"shoestring_dev_run": RUN_ID, "shoestring_dev_stage": "train"}
    pod = {"name": "c/n/ns/p/main", "properties": {"labels": labels}, "totalCost": 0.25, **window}
    (tmp_path / "allocation.json").write_text(json.dumps({"code": 200, "data": [{pod["name"]: pod}]}))
    found = look("reconcile", tmp_path / "allocation.json", "--json").json
    assert [line["stage"] for line in found["lines"] if line["where"] == "both"] == ["train"]
    assert Decimal(found["unexplained_usd"]) == Decimal("0.25") - Decimal(found["ledger_usd"])
    assert "unexplained" in look("reconcile", tmp_path / "allocation.json", "--month", "2026-11").out
    (tmp_path / "empty.json").write_text('{"data": []}')
    assert "holds no allocation" in look("reconcile", tmp_path / "empty.json").err
    assert look("reconcile", tmp_path / "none.json").code == 2


def test_a_run_is_replayed_whole_and_so_is_a_store(look, books: Path) -> None:  # type: ignore[no-untyped-def]
    for target in ((RUN_ID,), ()):
        ran = look("replay", *target, "--json")
        assert (ran.code, ran.json) == (0, {"decisions": 4, "same": 4, "differ": {}})
    folder = books / "runs" / RUN_ID
    assert "4 decisions made again: 4 the same" in look("replay", folder).out


def test_one_decision_that_differs_fails_the_replay_of_its_run(look, books: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    copy = Path(shutil.copytree(books / "runs" / RUN_ID / "decisions", tmp_path / "decisions"))
    made = json.loads((copy / "train-1.json").read_text())
    made["choice"]["p95_usd"] = "0.123456"
    (copy / "train-1.json").write_text(json.dumps(made, sort_keys=True, indent=1) + "\n")
    (copy / "evaluate-1.json").write_text("{}")
    ran = look("replay", tmp_path, "--json")
    assert ran.code == 1
    assert [Path(name).name for name in ran.json["differ"]] == ["evaluate-1.json", "train-1.json"]
    assert "2 of 4 decisions: this version decides otherwise" in ran.err


def test_explain_says_why_not_and_against_what(look, books: Path) -> None:  # type: ignore[no-untyped-def]
    file = books / "runs" / RUN_ID / "decisions" / "train-1.json"
    said = shoestring("explain", file, "--why-not", "cpu-2")
    assert said.out.startswith("cpu-2 on-demand: ")
    assert shoestring("explain", file, "--against", file).out.endswith("no input differs\n")
    assert shoestring("explain", file, "--against", file, "--json").json["same_choice"] is True
    assert shoestring("explain", file, "--json").json["question"]["stage"] == "train"


def test_a_month_is_exported_and_its_sum_is_said(look, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = look(
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
    ("month", "said"), [("2026-12", "there is: 2026-11"), ("November", "write it like 2026-11")]
)
def test_a_month_that_is_not_there_is_not_exported(look, month: str, said: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = look("export", "focus", "--month", month, "--out", tmp_path / "focus.csv")
    assert ran.code == 2
    assert said in ran.err
    assert not (tmp_path / "focus.csv").exists()


def test_the_report_says_what_was_idle(look, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert look("report", RUN_ID, "--out", tmp_path).code == 0
    assert "Estimate against actual" in (tmp_path / "report.html").read_text()
