"""`shoestring upload` against a server process: its requests, and its messages when the server refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Ran, shoestring
from typer.testing import CliRunner

from shoestring.cli import app
from shoestring.core.errors import ShoestringError

GOLDEN = Path(__file__).parent / "golden" / "train.yaml"


def upload(host: str, *more: str, env: dict[str, str] | None = None) -> Ran:
    """Run the command in this process, since importing KFP's client takes seconds."""
    done = CliRunner().invoke(app, ["upload", "--host", host, *more], env=env)
    error = done.exception
    if isinstance(error, ShoestringError):
        return Ran(error.exit_code, done.stdout, f"{done.stderr}{error}\n")
    if error and not isinstance(error, SystemExit):
        raise error
    return Ran(done.exit_code, done.stdout, done.stderr)


@dataclass(frozen=True)
class Server:
    host: str
    log: Path

    def upload(self, *more: str, env: dict[str, str] | None = None) -> Ran:
        return upload(self.host, *more, env=env)

    def requests(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the requests that change something, or are of these kinds, in order."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [request for request in found if request["method"] in (kinds or ("POST", "DELETE"))]


Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    running: list[subprocess.Popen[str]] = []

    def begin(*options: str, scheme: str = "http") -> Server:
        command = [
            sys.executable,
            str(Path(__file__).parent / "kfp_server.py"),
            str(tmp_path / "requests.jsonl"),
            *options,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return Server(
            f"{scheme}://127.0.0.1:{process.stdout.readline().strip()}", tmp_path / "requests.jsonl"
        )

    yield begin
    for process in running:
        process.terminate()
        process.wait()


def test_a_pipeline_is_created_once_and_the_same_file_is_not_sent_a_third_time(serve: Serve) -> None:
    server = serve()
    first, second, third = (server.upload("--json") for _ in range(3))
    assert [first.code, second.code, third.code] == [0, 0, 0], first.err + second.err + third.err
    created, version = server.requests()
    assert created["path"] == "/apis/v2beta1/pipelines/upload"
    assert created["query"] == {"name": "shoestring-train"}
    assert created["body"] == list(yaml.safe_load_all(GOLDEN.read_text()))
    assert version["path"] == "/apis/v2beta1/pipelines/upload_version"
    assert version["query"]["pipelineid"] == first.json["pipeline_id"]
    assert version["body"] == created["body"]
    assert first.json["version_id"] != second.json["version_id"] == third.json["version_id"]
    assert (first.json["pipeline_id"], first.err) == (third.json["pipeline_id"], "")


def test_a_run_gets_the_recipe_and_the_budget_and_the_uploaded_version(serve: Serve) -> None:
    server = serve()
    ran = server.upload("--name", "mine", "--run", "--recipe", "flights", "--budget", "0.004")
    assert ran.code == 0, ran.err
    _, experiment, run = server.requests()
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
    assert ran.out.splitlines() == ["mine: version mine uploaded", f"run: {server.host}/#/runs/details/run-1"]


def test_a_run_gets_the_deadline_and_seed_of_the_options_or_of_the_recipe(serve: Serve) -> None:
    server = serve()
    ran = server.upload("--run", "--recipe", "flights", "--deadline", "600", "--seed", "3")
    assert ran.code == 0, ran.err
    *_, sent = server.requests()
    parameters = sent["body"]["runtime_config"]["parameters"]
    assert (parameters["deadline_s"], parameters["seed"]) == (600.0, 3)


def test_a_users_compiled_pipeline_is_sent_unchanged_under_its_own_name(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOLDEN.read_text().replace("name: shoestring-train", "name: mine"))
    server = serve()
    assert server.upload("--file", str(tmp_path / "mine.yaml")).out.splitlines() == [
        "mine: version mine uploaded"
    ]
    assert server.requests()[0]["body"] == list(yaml.safe_load_all((tmp_path / "mine.yaml").read_text()))


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


def test_on_a_multi_user_server_everything_is_in_the_users_namespace(serve: Serve) -> None:
    server = serve("--multi-user", "--token", "secret")
    line = ("--namespace", "team", "--token-env", "KFP_TOKEN", "--run", "--recipe", "flights")
    for _ in range(2):
        ran = server.upload(*line, env={"KFP_TOKEN": "secret"})
        assert ran.code == 0, ran.err
    requests = server.requests("GET", "POST")
    assert {request["token"] for request in requests} == {"Bearer secret"}
    assert [request["path"].rpartition("/")[2] for request in server.requests()] == [
        "upload",
        "experiments",
        "runs",
        "upload_version",
        "runs",
    ]
    assert server.requests()[0]["query"]["namespace"] == "team"
    assert server.requests()[1]["body"]["namespace"] == "team"
    assert {
        request["query"]["namespace"] for request in requests if request["path"].endswith("/pipelines")
    } == {"team"}


@pytest.mark.parametrize(
    ("options", "line", "code", "message"),
    [
        (
            ["--token", "secret"],
            [],
            1,
            "requires authentication: name a token's environment variable with --token-env",
        ),
        (["--token", "secret"], ["--token-env", "OLD"], 1, "the token in $OLD is invalid or expired"),
        (["--deny"], [], 1, "denies permission: ask its administrator for the right"),
        (["--tag", "2.15.2"], [], 1, "is Kubeflow Pipelines 2.15.2: 2.16 or newer is needed"),
        (
            ["--api", "v1beta1", "--tag", "1.8.5"],
            [],
            1,
            "is Kubeflow Pipelines version 1: 2.16 or newer is needed",
        ),
        (["--page"], [], 2, "answers, but is not a Kubeflow Pipelines server"),
        (["--api", "v3"], [], 2, "answers, but is not a Kubeflow Pipelines server"),
        (["--multi-user"], [], 2, "name your namespace with --namespace"),
        ([], ["--namespace", "team"], 2, "omit --namespace"),
    ],
)
def test_an_unsuitable_server_is_reported_and_left_unchanged(
    options: list[str], line: list[str], code: int, message: str, serve: Serve
) -> None:
    server = serve(*options)
    ran = server.upload(*line, env={"OLD": "expired"})
    assert ran.code == code
    assert message in ran.err
    assert server.host in ran.err
    assert len(ran.err.splitlines()) == 1
    assert [request for request in server.requests() if "--deny" not in options] == []


def test_the_command_prints_only_json_on_stdout(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    # KFP's client reads, and may write, a file in the home folder.
    ran = shoestring(
        "upload", "--host", server.host, "--run", "--recipe", "flights", "--json", env={"HOME": str(tmp_path)}
    )
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == {"pipeline", "pipeline_id", "version", "version_id", "run_id"}


def test_a_server_without_a_version_is_accepted(serve: Serve) -> None:
    ran = serve("--tag", "unknown").upload()
    assert ran.code == 0, ran.err


def test_an_untrusted_certificate_is_refused_until_its_authority_is_configured(
    serve: Serve, tmp_path: Path
) -> None:
    both = tmp_path / "server.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    subprocess.run(
        [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", both, "-out", tmp_path / "ca.pem"],
        check=True,
        capture_output=True,
    )
    both.write_text(both.read_text() + (tmp_path / "ca.pem").read_text())
    server = serve("--certificate", str(both), scheme="https")
    refused = server.upload()
    assert refused.code == 1
    assert "its certificate is not trusted" in refused.err
    trusted = server.upload(env={"SSL_CERT_FILE": str(tmp_path / "ca.pem")})
    assert trusted.code == 0, trusted.err


@pytest.mark.parametrize(
    ("host", "code", "message"),
    [
        ("http://kubeflow.invalid", 1, "http://kubeflow.invalid cannot be reached: no such host"),
        ("http://127.0.0.1:9", 1, "the connection was refused"),
        ("localhost:8080", 2, "it must begin with http:// or https://"),
    ],
)
def test_an_unreachable_host_is_reported_in_one_sentence(host: str, code: int, message: str) -> None:
    ran = upload(host)
    assert ran.code == code
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--run"], "name the recipe to run"),
        (["--file", "nowhere.yaml"], "there is no compiled pipeline at nowhere.yaml"),
        (["--file", str(GOLDEN.parent.parent / "test_upload.py")], "is not a compiled pipeline"),
        (["--budget", "1"], "apply to runs"),
        (["--seed", "0"], "apply to runs"),
        (["--cron", "0 3", "--recipe", "flights"], "has 2 fields"),
        (["--token-env", "NOT_SET"], "$NOT_SET is empty"),
        (["--run", "--recipe", "nobody"], "there is no recipe called 'nobody'"),
    ],
)
def test_wrong_options_are_refused_before_any_request(line: list[str], message: str) -> None:
    ran = upload("http://127.0.0.1:9", *line)
    assert ran.code == 2
    assert message in ran.err
