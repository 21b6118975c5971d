"""A stage of which one process takes more memory than there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shoestring.core.types import StageOutcome
from shoestring.stages.work import Work

TAKES = "open('/proc/self/oom_score_adj', 'w').write('1000'); data = bytearray(2_000_000_000)"


def run(work: Work) -> StageOutcome:
    if work.settings["who"] == "itself":
        Path("/proc/self/oom_score_adj").write_text("1000")
        return StageOutcome(key=str(len(bytearray(2_000_000_000))))
    ended = subprocess.run([sys.executable, "-c", TAKES])
    if work.settings["who"] == "a helper, and the stage goes on":
        return StageOutcome(key="runs/r/none.json", rows=1)
    raise RuntimeError(f"its helper ended with {ended.returncode}")
