"""The Kubeflow of the tests of this folder, which SHOESTRING_KFP names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_scenarios.kubeflow_engine import KubeflowEngine, KubeflowServer
from engine_scenarios.own_package import write_package
from engine_scenarios.pod_history import watch_pods
from engine_scenarios.preflight import missing, report

from shoestring.routing.placement import KUBEFLOW_RUN_LABEL


@pytest.fixture(scope="session")
def server() -> KubeflowServer:
    """The server with everything that the tests need of it; otherwise all of them fail with one message."""
    if not os.environ.get("SHOESTRING_KFP"):
        pytest.skip(
            "SHOESTRING_KFP names no Kubeflow Pipelines server: docs/kubeflow.md, Test it on your cluster"
        )
    if "SHOESTRING_KFP_CONTEXT" not in os.environ:
        pytest.exit("set SHOESTRING_KFP_CONTEXT to the kubeconfig's context of the cluster", returncode=2)
    server = KubeflowServer.of_environment(os.environ)
    if found := missing(server):
        pytest.exit(report(server, found), returncode=1)
    return server


@pytest.fixture(scope="session")
def package(server: KubeflowServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("own"), server.registry)


@pytest.fixture(scope="session")
def engine(server: KubeflowServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeflowEngine]:
    """The driver; it deletes at the end what it made on the server."""
    place, folder = server.place, tmp_path_factory.mktemp("watched")
    with watch_pods(place.context, place.namespace, folder, KUBEFLOW_RUN_LABEL) as history:
        engine = KubeflowEngine(server, history, tmp_path_factory.mktemp("engine"))
        try:
            yield engine
        finally:
            engine.clean_up()
