"""Every command of the documentation that is tagged `kind` runs on the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from argo_runs import EndedRun
from cluster_setup import CLUSTER
from kind_cluster import NAMESPACE, Kind, run
from kind_documentation import Documentation, kind_commands

pytestmark = pytest.mark.kind


def test_every_documented_command_for_kind_was_run(
    argo: Kind, flights: EndedRun, own_run: Future[EndedRun], documentation: Documentation, tmp_path: Path
) -> None:
    """The fixtures run the commands that compile, build, apply and run; those of the upgrade, and those that
    read the cluster's world from outside, run here.
    """
    assert own_run.result().code == 0
    for kinds in ("cronjob", "serviceaccount", "role"):
        documentation.run(argo, tmp_path, f"kubectl --namespace shoestring delete --ignore-not-found {kinds}")
    # The store is a service of the cluster, which the world's own ConfigMap names.
    with reader_token(argo, documentation) as token:
        reader = Documentation(tmp_path / "kubeconfig", token)
        assert flights.run_id in reader.run(argo, tmp_path, "shoestring runs --on")
        verified = reader.run(argo, tmp_path, "shoestring ledger verify --on")
        assert "every hash, sequence and balance holds" in verified
        # Argo alone reports this step: without the right to read workflows, the store is read instead.
        assert "settle: succeeded" in watch(tmp_path / "kubeconfig", flights.run_id)
    assert documentation.executed | reader.executed == set(kind_commands())


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
