"""The driver of the scenarios for the cluster of `make cluster`, by which the measurements start runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.engine import Place
from engine_scenarios.pod_history import watch_pods
from kind_cluster import NAMESPACE, Kind

from shoestring.routing.placement import RUN_LABEL

CLUSTER = Kind("shoestring")


@contextmanager
def cluster_engine() -> Iterator[ArgoEngine]:
    """Yield the driver; it deletes at the end what it made on the cluster."""
    place = Place(CLUSTER.context, NAMESPACE)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with watch_pods(place.context, place.namespace, folder, RUN_LABEL) as history:
            engine = ArgoEngine(place, history, folder)
            try:
                yield engine
            finally:
                engine.clean_up()
