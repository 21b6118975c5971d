"""`shoestring upload` against a server process: its requests, and its messages when the server refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from commands import shoestring
from kfp_uploads import GOLDEN, Serve, upload

from shoestring.cli.authoring.cron import kfp_cron


def test_the_same_content_sent_twice_is_one_version(serve: Serve) -> None:
    server = serve()
    first, second = (server.upload("--json") for _ in range(2))
    assert [first.code, second.code] == [0, 0], first.err + second.err
    created, version = server.requests()
    assert (created["path"], created["body"]["display_name"]) == (
        "/apis/v2beta1/pipelines",
        "shoestring-train",
    )
    assert version["path"] == "/apis/v2beta1/pipelines/upload_version"
    assert version["query"] == {"name": first.json["version"], "pipelineid": first.json["pipeline_id"]}
    assert version["body"] == list(yaml.safe_load_all(GOLDEN.read_text()))
    assert first.json == second.json
    assert server.upload().out.endswith("exists already\n")


def test_a_changed_pipeline_is_a_new_version_of_the_same_pipeline(serve: Serve, tmp_path: Path) -> None:
    server, changed = serve(), tmp_path / "changed.yaml"
    changed.write_text(GOLDEN.read_text() + "\n# changed\n")
    first, second = server.upload("--json"), server.upload("--file", str(changed), "--json")
    assert first.json["pipeline_id"] == second.json["pipeline_id"]
    assert first.json["version"] != second.json["version"]
    assert first.json["version_id"] != second.json["version_id"]


def test_a_users_compiled_pipeline_is_sent_unchanged_under_its_own_name(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOLDEN.read_text().replace("name: shoestring-train", "name: mine"))
    server = serve()
    assert server.upload("--file", str(tmp_path / "mine.yaml")).out.startswith("mine: version ")
    assert server.requests()[1]["body"] == list(yaml.safe_load_all((tmp_path / "mine.yaml").read_text()))


def test_on_a_multi_user_server_everything_is_in_the_users_namespace(serve: Serve) -> None:
    server = serve("--multi-user", "--token", "secret")
    line = ("--namespace", "team", "--token-env", "KFP_TOKEN", "--run", "--recipe", "flights")
    for _ in range(2):
        ran = server.upload(*line, env={"KFP_TOKEN": "secret"})
        assert ran.code == 0, ran.err
    requests = server.requests("GET", "POST")
    assert {request["token"] for request in requests} == {"Bearer secret"}
    assert [request["path"].rpartition("/")[2] for request in server.requests()] == [
        "pipelines",
        "upload_version",
        "experiments",
        "runs",
        "runs",
    ]
    assert server.requests()[0]["body"]["namespace"] == "team"
    assert server.requests()[2]["body"]["namespace"] == "team"
    lists = [one for one in requests if one["method"] == "GET" and one["path"].endswith("/pipelines")]
    assert {request["query"]["namespace"] for request in lists} == {"team"}


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
    assert (ran.code, len(ran.err.splitlines())) == (0, 2)
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
        (["--run-id", "mine"], "--run-id and --wait apply to one run: add --run"),
        (["--wait", "--cron", "0 3 * * *"], "--run-id and --wait apply to one run: add --run"),
        (["--run", "--cron", "0 3 * * *", "--run-id", "mine"], "each run of --cron has an id of its own"),
        (["--run", "--recipe", "flights", "--run-id", "2026-11"], "is not a valid run id"),
        (["--run", "--recipe", "flights", "--run-id", "{{workflow.name}}"], "is not a valid run id"),
        (["--cron", "0 3", "--recipe", "flights"], "has 2 fields"),
        (["--cron", "0 0 3 * * *", "--recipe", "flights"], "has 6 fields"),
        (["--cron", "60 3 * * *", "--recipe", "flights"], "the minute is 0 to 59, not '60'"),
        (["--cron", "0 24 * * *", "--recipe", "flights"], "the hour is 0 to 23, not '24'"),
        (["--cron", "0 3 * * 7", "--recipe", "flights"], "the weekday is 0 to 6 or sun to sat, not '7'"),
        (["--cron", "0 3 * jän *", "--recipe", "flights"], "the month is 1 to 12 or jan to dec, not 'jän'"),
        (["--cron", "0 3 30 2 *", "--recipe", "flights"], "never runs: no month 2 has a day 30"),
        (["--cron", "0 3 31 apr,6,nov ?", "--recipe", "flights"], "never runs"),
        (["--cron", "*/0 3 * * *", "--recipe", "flights"], "'*/0' is not a minute"),
        (["--cron", "0 5-3 * * *", "--recipe", "flights"], "the range '5-3' ends before it starts"),
        (["--cron", "@often", "--recipe", "flights"], "has 1 fields"),
        (["--token-env", "NOT_SET"], "$NOT_SET is empty"),
        (["--run", "--recipe", "nobody"], "there is no recipe called 'nobody'"),
    ],
)
def test_wrong_options_are_refused_before_any_request(line: list[str], message: str) -> None:
    ran = upload("http://127.0.0.1:9", *line)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("0 3 * * *", "0 0 3 * * *"),
        ("*/15 8-18/2 1,15 jan-Mar MON-fri", "0 */15 8-18/2 1,15 jan-Mar MON-fri"),
        ("0 3 31 2 1", "0 0 3 31 2 1"),
        ("0 3 29 2 *", "0 0 3 29 2 *"),
        ("@daily", "0 0 0 * * *"),
        (" @Hourly ", "0 0 * * * *"),
    ],
)
def test_a_valid_cron_line_is_sent_with_a_field_for_seconds(line: str, sent: str) -> None:
    assert kfp_cron(line) == sent
