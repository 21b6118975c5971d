"""Every command of the documentation that is tagged `kind` runs on the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_setup import CLUSTER
from engine_scenarios.engine import Job
from engine_scenarios.jobs import TRAINING
from engine_scenarios.own_package import own_stage_pipeline
from engine_scenarios.predictions import put_new_rows
from engine_scenarios.recipes import RAIN, write_recipe
from engine_scenarios.waiting import wait_for
from kind_cluster import NAMESPACE, Kind, run
from kind_documentation import DATA_SECRET_COMMAND, Documentation, DocumentedArgo, kind_commands

from shoestring.backends.sources.data_variables import DATA_SECRET
from shoestring.routing.placement import RUN_LABEL

pytestmark = pytest.mark.kind


@pytest.fixture
def flights(engine: DocumentedArgo) -> str:
    """The id of the documented run of flights."""
    run = engine.documented_run(Job("flights"))
    assert run.wait().done().status == "done"
    return run.run_id


def test_every_documented_command_for_kind_was_run(
    argo: Kind,
    engine: DocumentedArgo,
    package: Path,
    flights: str,
    documentation: Documentation,
    tmp_path: Path,
) -> None:
    """The fixtures and the scenarios run the commands that compile, build, apply and run; the others run
    here.
    """
    own = Job(write_recipe(tmp_path, RAIN), own_stage_pipeline(package))
    assert engine.documented_run(own).wait().done().status == "done"
    assert engine.documented_run(put_new_rows(engine).job).wait().done().status == "done"
    line = ("compile", "--target", "argo", "--pipeline", "dedupe_rows.pipeline:pipeline", "--out", "argo")
    run("env", "--chdir", str(package), sys.executable, "-m", "shoestring", *line)
    documentation.run(argo, package, "kubectl --namespace shoestring apply --filename argo/dedupe-rows")
    for kinds in ("cronjob", "serviceaccount", "role"):
        documentation.run(argo, tmp_path, f"kubectl --namespace shoestring delete --ignore-not-found {kinds}")
    documentation.run(argo, tmp_path, DATA_SECRET_COMMAND)
    argo.kubectl("delete", "secret", DATA_SECRET)
    # The store is a service of the cluster, which the world's own ConfigMap names.
    with reader_token(argo, documentation) as token:
        reader = Documentation(tmp_path / "kubeconfig", token)
        assert flights in reader.run(argo, tmp_path, "shoestring runs --on")
        verified = reader.run(argo, tmp_path, "shoestring ledger verify --on")
        assert "every hash, sequence and balance holds" in verified
        # Argo alone reports the steps: without the right to read workflows, the store is read instead.
        told = watch(tmp_path / "kubeconfig", flights)
        steps = [step for stage in TRAINING for step in (f"route {stage}", stage)]
        assert [text.split(":")[0] for text in told.splitlines()][:9] == [*steps, "settle"]
        assert "settle: succeeded" in told and f"{flights}: done" in told
    assert documentation.executed | reader.executed == set(kind_commands())


def test_only_the_workflow_and_its_stored_records_remain(argo: Kind, flights: str) -> None:
    def gone() -> bool | None:
        return None if argo.get("pods", "--selector", f"{RUN_LABEL}={flights}")["items"] else True

    assert wait_for(gone, "the pods of a run that is over are deleted")
    results = [each["metadata"]["name"] for each in argo.get("workflowtaskresults")["items"]]
    assert not [name for name in results if flights in name]


@contextmanager
def reader_token(kind: Kind, documentation: Documentation) -> Iterator[str]:
    """Yield the token of an account to which the documented commands bind the roles of readers."""
    bindings = ("ann-reads", "ann-reads-store")
    kind.kubectl("create", "serviceaccount", "ann")
    try:
        for name in bindings:
            line = documentation.command(f"kubectl --namespace shoestring create rolebinding {name} ")
            kind.kubectl(*line.replace("--user ann", f"--serviceaccount {NAMESPACE}:ann").split()[1:])
        yield kind.kubectl("create", "token", "ann").strip()
    finally:
        kind.kubectl("delete", "serviceaccount", "ann")
        kind.kubectl("delete", "--ignore-not-found", "rolebinding", *bindings)


def watch(kubeconfig: Path, run_id: str) -> str:
    command = (sys.executable, "-m", "shoestring", "watch", run_id, "--on", CLUSTER.context)
    return run("env", f"KUBECONFIG={kubeconfig}", *command)
