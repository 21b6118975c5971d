"""A stage that works in other processes: one that it waits for, and one that detaches from it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from shoestring.core.errors import StageStopped
from shoestring.core.types import StageOutcome
from shoestring.stages.work import Work

WORK = """
import time
data, began_s = bytearray(300_000_000), time.process_time()
while time.process_time() < began_s + 2:
    pass
"""
DAEMON = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(300)"


def run(work: Work) -> StageOutcome:
    pid_file = Path(str(work.settings["pid_file"]))
    detach(pid_file)
    subprocess.run([sys.executable, "-c", WORK], check=True)
    while work.settings.get("stays"):
        if work.should_stop():
            raise StageStopped("it was asked to")
        time.sleep(0.05)
    return StageOutcome(key="runs/r/none.json", rows=1)


def detach(pid_file: Path) -> None:
    """Start a daemon in a session of its own, whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        subprocess.Popen([sys.executable, "-c", DAEMON, str(pid_file)], env={})
        os._exit(0)
    os.wait()
    while not pid_file.exists() or not pid_file.read_text():
        time.sleep(0.01)
