"""The interfaces on one machine: lifetimes of processes, cores of a stage, and the size of interfaces."""

from __future__ import annotations

import inspect
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_type_hints

import psutil
import pytest

from shoestring.backends.local import LocalCluster, this_process
from shoestring.backends.processes import THREAD_VARIABLES
from shoestring.config import world
from shoestring.core import interfaces
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.types import Placement


def test_a_process_is_identified_by_host_id_and_creation_time() -> None:
    cluster = LocalCluster(())
    this = this_process()
    assert cluster.lifetime(this).alive
    reused = replace(this, created_ms=this.created_ms - 60_000)
    assert not cluster.lifetime(reused).alive
    # This machine cannot see the process, so it must not settle it.
    assert cluster.lifetime(replace(this, host=f"elsewhere.{this.host}")).alive


def process_ref(pid: int) -> LocalProcess:
    return LocalProcess(socket.gethostname(), pid, int(psutil.Process(pid).create_time() * 1000))


def test_an_ended_process_is_not_alive_even_before_its_parent_waited_for_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = process_ref(child.pid)
    cluster = LocalCluster(())
    assert cluster.lifetime(process).alive
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not cluster.lifetime(process).alive
    child.wait()
    assert not cluster.lifetime(process).alive
    assert cluster.lifetime(process).started_at is not None


def placed(cpu: str) -> Placement:
    return Placement(
        node_selector={},
        tolerations=(),
        affinity={},
        cpu=cpu,
        memory="1G",
        accelerator="",
        accelerator_count="0",
        image="base",
    )


def test_the_age_of_a_process_is_exact_to_20_ms() -> None:
    before = datetime.now(UTC)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        started_at = LocalCluster(()).lifetime(process_ref(child.pid)).started_at
        after = datetime.now(UTC)
    tick = timedelta(seconds=0.02)
    assert started_at is not None and before - tick <= started_at <= after + tick


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process to cores")
def test_applying_a_placement_pins_the_process_and_returns_its_thread_variables() -> None:
    text = f"""
import os
from shoestring.backends.local import LocalCluster
from shoestring.core.types import Placement
before = os.sched_getaffinity(0)
variables = LocalCluster(()).apply_placement(Placement.model_validate_json({placed("1").model_dump_json()!r}))
after = os.sched_getaffinity(0)
print(len(after), after <= before, variables)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    count, inside, variables = done.stdout.split(maxsplit=2)
    assert (count, inside) == ("1", "True")
    assert all(f"'{name}': '1'" in variables for name in THREAD_VARIABLES)


def test_no_interface_has_more_than_three_methods() -> None:
    holders = [
        get_type_hints(world.World)[name] for name in ("prices", "cluster", "store", "remote", "clock")
    ]
    protocols = [
        value
        for module in (interfaces, world)
        for _, value in inspect.getmembers(module, inspect.isclass)
        if getattr(value, "_is_protocol", False)
    ]
    own_protocols = {
        protocol for protocol in protocols if protocol.__module__ in (interfaces.__name__, world.__name__)
    }
    # The others are no part of a World: no process but the reaper may end pods, and none but gc may delete.
    # Only a cluster has node pools and Workflows.
    others = {interfaces.PendingPods, interfaces.StoreTimes, interfaces.NodePools, interfaces.Workflows}
    others |= {interfaces.StoreInventory, interfaces.ObjectDeletion, interfaces.EndNotices}
    others |= {interfaces.VerifiedMarks, interfaces.FetchedCopies, interfaces.RangedReads}
    assert own_protocols == {*holders, *others}
    for protocol in own_protocols:
        verbs = [
            name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if not name.startswith("_")
        ]
        assert 1 <= len(verbs) <= 3, f"{protocol.__name__}: {verbs}"
