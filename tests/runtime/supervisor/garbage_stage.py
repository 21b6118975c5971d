"""A stage that writes garbage for its supervisor, and ends without a result of its own."""

from __future__ import annotations

import os
import time

from shoestring.core.types import StageOutcome
from shoestring.runtime.supervisor.child import PROGRESS_FILE, RESULT_FILE
from shoestring.stages.work import Work


def run(work: Work) -> StageOutcome:
    (work.scratch / PROGRESS_FILE).write_text('{"phase": 7')
    # The supervisor reads the progress once a second.
    time.sleep(1.5)
    os.mkfifo(work.scratch / RESULT_FILE)
    os._exit(0)
