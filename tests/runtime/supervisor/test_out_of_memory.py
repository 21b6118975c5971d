"""Stages of which the kernel kills a process for memory, in a real cgroup with a limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from memory_cgroups import memory_cgroup

from shoestring.runtime.supervisor.child import ChildResult

LIMIT_BYTES = 768 << 20
SUPERVISOR = """
import os, sys
from dataclasses import replace
from pathlib import Path
cgroup, laptop, recipe, folder, who, pod = sys.argv[1:]
Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
from runtime_world import INGEST, begin, run_request, small_world
from shoestring.core.pod_ref import PodRef
from shoestring.runtime.supervisor.supervisor import supervise
from shoestring.stages.work import Origin
began = begin(small_world(Path(laptop), Path(folder)), run_request(Path(recipe), needs=INGEST))
attempt = replace(began.attempt, origin=Origin(module="hungry_stage", code="1", settings={"who": who}))
if pod:
    attempt.world = replace(attempt.world, pod=PodRef.parse(pod))
print(supervise(attempt, laptop).model_dump_json())
"""
ITSELF, HELPER, GOES_ON = "itself", "a helper", "a helper, and the stage goes on"


@pytest.mark.parametrize(
    ("who", "pod", "status", "cause"),
    [
        (HELPER, "ns.1.ingest", "failed", "memory"),
        pytest.param(GOES_ON, "ns.1.ingest", "done", "", marks=pytest.mark.slow),
        (ITSELF, "", "failed", "memory"),
        # On a laptop the kernel may have killed a process of another stage.
        pytest.param(HELPER, "", "failed", "code", marks=pytest.mark.slow),
    ],
)
def test_memory_is_the_cause_where_the_kernel_killed_a_process_of_a_failed_stage(
    who: str, pod: str, status: str, cause: str, laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    paths = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[1], *sys.path)))
    variables = {"PYTHONPATH": paths, "SHOESTRING_STORE": str(tmp_path / "store")}
    with memory_cgroup(LIMIT_BYTES) as cgroup:
        line = [
            sys.executable,
            "-c",
            SUPERVISOR,
            *map(str, (cgroup, laptop, flights_slice, tmp_path)),
            who,
            pod,
        ]
        ran = subprocess.run(line, env=os.environ | variables, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    result = ChildResult.model_validate_json(ran.stdout.splitlines()[-1])
    assert (result.status, result.cause) == (status, cause), result.reason
    assert ("the kernel killed a process of ingest for memory" in result.reason) == (cause == "memory")
