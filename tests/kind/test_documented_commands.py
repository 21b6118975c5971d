"""Every command of the documentation that is tagged `kind` runs on the cluster."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest
from argo_runs import EndedRun
from kind_cluster import Kind
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
    assert flights.run_id in documentation.run(argo, tmp_path, "shoestring runs --on")
    assert "every hash, sequence and balance holds" in documentation.run(
        argo, tmp_path, "shoestring ledger verify --on"
    )
    assert documentation.executed == set(kind_commands())
