"""Stop the supervisor of a stage's pod with SIGSTOP, as a hostile or broken stage could."""

from __future__ import annotations

from argo_runs import wait_for
from kind_cluster import Kind

# Argo's executor is process 1, and its command contains the stage's.
STOP_SUPERVISOR = """
import os, pathlib, signal, time

def read(process, file):
    try:
        return (process / file).read_text()
    except OSError:
        return ""

end_s = time.monotonic() + 60
while time.monotonic() < end_s:
    found = list(pathlib.Path("/proc").glob("[0-9]*"))
    stats = [read(process, "stat").rpartition(")")[2].split() for process in found]
    parents = {stat[1] for stat in stats if stat}
    for process in found:
        if process.name != "1" and process.name in parents and "--decision-key" in read(process, "cmdline"):
            os.kill(int(process.name), signal.SIGSTOP)
            print("stopped", process.name)
            raise SystemExit
    time.sleep(0.02)
raise SystemExit("there is no supervisor with a child")
"""


def stop_supervisor(kind: Kind, pod: str) -> None:
    """Wait until the supervisor of a pod has started its stage, and stop it."""
    wait_for(lambda: is_running(kind, pod) or None, f"the container of {pod}")
    kind.kubectl("exec", pod, "--container", "main", "--", "python", "-c", STOP_SUPERVISOR)


def is_running(kind: Kind, pod: str) -> bool:
    boxes = kind.get("pod", pod)["status"].get("containerStatuses") or []
    return any(box["name"] == "main" and "running" in box["state"] for box in boxes)
